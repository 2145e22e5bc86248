// What to write in a cell in place of what people write who know other languages: texts for messages.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "stepnet/cells/cell.h"
#include "stepnet/core/operator.h"

namespace stepnet {

// "; there is no if: …", of a word that begins a statement elsewhere; "" for other words.
std::string AdviceOnWord(const std::string& word);
// Where a sign stands that has no meaning.
struct SignPlace {
  std::string_view line;    // what is before it in its line
  std::string_view behind;  // what follows it
  bool is_in_index = false;
  bool is_in_header = false;  // of the cell, before its brace
};
// "; powers are Sqr(x) and …", of a sign that is none here; "" for others.
std::string AdviceOnSign(char sign, const SignPlace& place);
// "; did you mean …?", of an operator that does not exist, as torch.tanh and Mean; "" where nothing is near.
std::string AdviceOnType(const std::string& type);
// "; operators stand before what they are given, as in Tanh(x)", where a method of `value` is called.
std::string AdviceOnMethod(std::string_view method, const std::string& value);
// "; B stands for the batch, …", of B and T where a size or a blob of that name is looked for; "" for other names.
std::string AdviceOnBatch(const std::string& name);
// What to give an operator in place of B or T in its argument.
std::string AdviceOnBatch(const OperatorDef& op, const std::string& argument);

// What an input or a state of the step goes into: blobs that are not computed of parameters alone.
std::set<std::string> BlobsOfTheStep(const CellDef& cell);
// What `@` takes, where operator k stands for one whose right side is of the step; "" for others.
std::string AdviceOnTwoValues(const CellSource& source, int k, const std::set<std::string>& of_the_step);
// What `@` takes, for an error of shapes of the FC that it stands for: "" for other operators.
std::string AdviceOnProduct(const CellSource& source, int k);

// What to say to an operator that goes over other dimensions than the last, as nothing was said or as it can do nothing
// else: "" for others.
std::string AdviceOnAxis(const OperatorDef& op);
// What to say to an operator of several inputs that has one and so does nothing, as Sum(x): "" for others.
std::string AdviceOnOneInput(const OperatorDef& op);

// What to write in place of a state that has a window, of whose rows steps that do not count take some.
std::string AdviceOnWindow(const CellState& state);

// What to write in place of what operator k is given beside floats, or alone where it takes floats: "" where there is
// nothing of the kind. `dtypes` are those of its inputs, of which some may be beside the point; `works_on_floats`:
// whether the input at fault may be of floats.
std::string AdviceOnTypes(const CellDef& cell, int k, const std::vector<std::optional<DType>>& dtypes,
                          bool works_on_floats);
// What a blob of the cell is in a step; nothing for one that is not there yet.
using ShapeOfBlob = std::function<std::optional<Shape>(const std::string& blob)>;
// The outer product, where operator k, whose shapes do not fit, takes v * k for one: "" elsewhere.
std::string AdviceOnOuterProduct(const CellDef& cell, int k, const ShapeOfBlob& shape_of);

// What to write for a fill that makes no floats.
std::string AdviceOnFill(const OperatorDef& fill, const CellParameter& parameter);
// What a parameter can start as.
std::string FillsText();
// "Clip(…, min=-1, max=1)": numbers that were given without the names of arguments that take them. "" where no argument
// takes the first.
std::string WithNames(const OperatorSchema& schema, bool has_inputs, const std::vector<double>& numbers);

}  // namespace stepnet
