// What to write in a cell in place of what people write who know other languages: texts for messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stepnet/core/operator.h"

namespace stepnet {

// "; there is no if: …", of a word that begins a statement elsewhere; "" for other words.
std::string AdviceOnWord(const std::string& word);
// Where a sign stands that has no meaning.
struct SignPlace {
  std::string_view line;  // what is before it in its line
  char next = 0;          // what comes behind it
  bool is_in_index = false;
  bool is_in_header = false;  // of the cell, before its brace
};
// "; powers are Sqr(x) and …", of a sign that is none here; "" for others.
std::string AdviceOnSign(char sign, const SignPlace& place);
// "; did you mean …?", of an operator that does not exist, as torch.tanh and Mean; "" where nothing is near.
std::string AdviceOnType(const std::string& type);
// What a parameter can start as.
std::string FillsText();
// "Clip(…, min=-1, max=1)": numbers that were given without the names of arguments that take them. "" where no argument
// takes the first.
std::string WithNames(const OperatorSchema& schema, bool has_inputs, const std::vector<double>& numbers);

}  // namespace stepnet
