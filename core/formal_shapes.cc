#include "stepnet/core/formal_shapes.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "stepnet/core/formulas/formula_layout.h"
#include "stepnet/core/index_of.h"
#include "stepnet/core/input_checks.h"

namespace stepnet {
namespace {

bool IsLike(const Formal& formal) { return !formal.like.empty(); }

// The shape rule of a type whose declaration says more than texts.
class FormalShapes {
 public:
  explicit FormalShapes(const OperatorSchema& schema)
      : inputs_(schema.inputs), outputs_(schema.outputs), check_(schema.shape_check), rule_(schema.shapes) {
    for (const Formal& formal : inputs_) input_like_.push_back(IndexOf(inputs_, formal.like, &Formal::name));
    for (const Formal& formal : outputs_) output_like_.push_back(IndexOf(inputs_, formal.like, &Formal::name));
  }

  // Nothing where neither the declaration nor its rule says what outputs are.
  std::vector<TensorInfo> Infer(const ShapeQuery& query) const {
    for (size_t k = 0; k < inputs_.size(); ++k) CheckInput(query, static_cast<int>(k));
    if (check_) check_(query);
    if (rule_) return rule_(query);
    return std::ranges::all_of(outputs_, IsLike) ? Outputs(query) : std::vector<TensorInfo>();
  }

 private:
  void CheckInput(const ShapeQuery& query, int k) const {
    const Formal& formal = inputs_[k];
    const int first = PositionOf(inputs_, k, query.num_inputs());
    if (first < 0) return;
    const int like = IsLike(formal) ? PositionOf(inputs_, input_like_[k], query.num_inputs()) : -1;
    const bool shares_type = formal.types.empty() || input_like_[k] == k;  // with what it is like
    const int end = formal.variadic ? query.num_inputs() : first + 1;
    for (int i = first; i < end; ++i) {
      if (!shares_type || (i == like && !formal.types.empty())) ExpectType(query, i, formal.types);
      if (like < 0 || i == like) continue;
      if (shares_type) ExpectSameType(query, like, i);
      ExpectSameShape(query, like, i);
    }
  }

  std::vector<TensorInfo> Outputs(const ShapeQuery& query) const {
    std::vector<TensorInfo> outputs;
    for (size_t k = 0; k < outputs_.size(); ++k) {
      const Formal& formal = outputs_[k];
      const int like = output_like_[k];
      const int first = PositionOf(inputs_, like, query.num_inputs());
      if (first < 0) continue;
      const std::ptrdiff_t count = formal.variadic ? query.op().num_outputs() - std::ssize(outputs) : 1;
      for (std::ptrdiff_t i = 0; i < count; ++i) {
        const TensorInfo& input = query.In(first + (inputs_[like].variadic ? static_cast<int>(i) : 0));
        outputs.push_back({.dtype = formal.types.empty() ? input.dtype : formal.types[0], .shape = input.shape});
      }
    }
    return outputs;
  }

  const std::vector<Formal> inputs_, outputs_;
  std::vector<int> input_like_, output_like_;  // the input that each is like, or -1
  const ShapeCheck check_;
  const ShapeRule rule_;
};

}  // namespace

FormalInfo OfTypes(std::vector<DType> types, std::string doc, std::string shape_of) {
  FormalInfo info(std::move(doc));
  info.types = std::move(types);
  info.like = std::move(shape_of);
  return info;
}
FormalInfo OfFloats(std::string doc, std::string shape_of) {
  return OfTypes({DType::kFloat, DType::kDouble}, std::move(doc), std::move(shape_of));
}
FormalInfo OfNumbers(std::string doc, std::string shape_of) {
  return OfTypes({DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64}, std::move(doc), std::move(shape_of));
}

FormalInfo Like(const std::string& input, const std::string& doc) {
  // No StrCat: each process does this for all types when it starts.
  return OfTypes({}, "the shape of " + input + (doc.empty() ? doc : "; " + doc), input);
}

void CompleteFromFormals(OperatorSchema* schema) {
  const auto says_more = [](const Formal& formal) { return IsLike(formal) || !formal.types.empty(); };
  const bool has_checks = schema->shape_check || std::ranges::any_of(schema->inputs, says_more);
  const bool gives_all = !schema->outputs.empty() && std::ranges::all_of(schema->outputs, IsLike);
  // Where nothing says what outputs are the type is refused, and so it shall be.
  if ((has_checks && (schema->shapes || schema->formula)) || (gives_all && !schema->shapes)) {
    schema->shapes = [shapes = std::make_shared<const FormalShapes>(*schema)](const ShapeQuery& query) {
      return shapes->Infer(query);
    };
  }
}

std::string FormalProblem(const OperatorSchema& schema) {
  for (const std::vector<Formal>* formals : {&schema.inputs, &schema.outputs}) {
    for (const Formal& formal : *formals) {
      if (!IsLike(formal) || IndexOf(schema.inputs, formal.like, &Formal::name) >= 0) continue;
      return StrCat(schema.type, " says that \"", formal.name, "\" is like \"", formal.like,
                    "\", which is no input: name one of its inputs");
    }
  }
  return "";
}

}  // namespace stepnet
