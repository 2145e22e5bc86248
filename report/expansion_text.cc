#include "stepnet/report/expansion_text.h"

#include <algorithm>
#include <span>
#include <vector>

#include "stepnet/core/expansion.h"
#include "stepnet/core/strings.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/report/gradient_text.h"

namespace stepnet {
namespace {

// Sizes of samples are all the same, so that whatever must meet does. Those whose elements are known may be sizes that
// Reshape keeps, or where Slice begins and ends.
std::vector<TensorInfo> TriedInputs() {
  std::vector<TensorInfo> tried;
  for (const DType dtype : {DType::kFloat, DType::kInt64}) {
    for (const Shape& shape : {Shape{2, 2}, Shape{2}, Shape{2, 2, 2}, Shape{2, 2, 2, 2}, Shape{1}}) {
      tried.push_back({.dtype = dtype, .shape = shape});
    }
  }
  for (const std::int64_t value : {0, -1}) {
    const std::vector<std::int64_t> elements(2, value);
    tried.push_back({.dtype = DType::kInt64, .shape = {2}, .value = Tensor::Of({2}, elements)});
  }
  return tried;
}

class ExpansionPrinter {
 public:
  ExpansionPrinter(const OperatorCall& op, const Expansion& expansion) : op_(op), expansion_(expansion) {}

  std::string Text() const {
    std::vector<std::string> texts;
    for (int o = 0; o < op_.num_outputs(); ++o) {
      const std::string what = WhatIs(o);
      if (!what.empty()) texts.push_back(StrCat(op_.outputs()[o], " = ", what));
    }
    return Join(texts, "; ");
  }

 private:
  const std::string& NameOf(int input) const { return op_.inputs()[input]; }
  std::string FactorText(const ProductFactor& factor) const {
    return NameOf(factor.input) + (factor.transposed ? "^T" : "");
  }

  std::string WhatIs(int output) const {
    if (!expansion_.products().empty()) {
      const std::optional<Product>& product = expansion_.products()[output];
      if (!product) return "";
      if (!product->right) return "the sum of the rows of " + NameOf(product->left.input);
      return StrCat(FactorText(product->left), " * ", FactorText(*product->right),
                    product->bias < 0 ? "" : " + " + NameOf(product->bias), " (matrices)");
    }
    if (!expansion_.sums().empty()) {
      const std::optional<DimSum>& sum = expansion_.sums()[output];
      if (!sum) return "";
      return StrCat(sum->factor == 1 ? "" : "a factor times ", "sums of ", NameOf(sum->input), " over dimensions");
    }
    return PartsText(output);
  }

  // Names what the elements of an output come from.
  std::string PartsText(int output) const {
    std::vector<std::string> from;
    bool is_given = false, is_scaled = false, has_constants = false;
    for (const RegionPart& part : expansion_.parts()) {
      for (size_t o = 0; o < part.outputs.size(); ++o) {
        if (part.outputs[o] != op_.num_inputs() + output) continue;
        is_given = true;
        const ExprOp root = part.region.outputs[o].value->op;
        is_scaled |= root != ExprOp::kInput && root != ExprOp::kConstant;
        has_constants |= root == ExprOp::kConstant;
        for (const int input : part.inputs) {
          if (std::ranges::find(from, NameOf(input)) == from.end()) from.push_back(NameOf(input));
        }
      }
    }
    if (!is_given) return "";
    if (from.empty()) return "constants";
    return StrCat("copies of elements of ", Join(from, ", "), is_scaled ? ", times a factor" : "",
                  has_constants ? ", and constants" : "");
  }

  const OperatorCall& op_;
  const Expansion& expansion_;
};

// What the operator is made of for these inputs; "" where it does not take them.
std::string TextFor(const OperatorCall& call, std::span<const TensorInfo> inputs) {
  try {
    const ShapeQuery query(call, inputs);
    const std::vector<TensorInfo> outputs = call.schema().shapes(query);
    return ExpansionPrinter(call, Expansion(query, outputs)).Text();
  } catch (const Error&) {
  } catch (const ValueUnknown&) {
  }
  return "";
}

// Goes through all inputs that are tried, those of one kind first.
std::string FirstText(const OperatorCall& call) {
  constexpr int kMaxInputs = 4;  // of which there are 12^4 at most
  const std::vector<TensorInfo> tried = TriedInputs();
  if (call.num_inputs() > kMaxInputs) return "";
  std::vector<size_t> choice(call.num_inputs());
  std::vector<TensorInfo> inputs(call.num_inputs());
  for (;;) {
    for (size_t i = 0; i < choice.size(); ++i) inputs[i] = tried[choice[i]];
    if (std::string text = TextFor(call, inputs); !text.empty()) return text;
    size_t i = 0;
    while (i < choice.size() && ++choice[i] == tried.size()) choice[i++] = 0;
    if (i == choice.size()) return "";
  }
}

// The operator with lists of numbers that have a default and must be given all the same, as starts and ends of Slice
// are: 0 is the first one, 1 the next.
OperatorDef WithLists(OperatorDef op, const OperatorSchema& schema) {
  std::int64_t number = 0;
  for (const ArgumentSpec& spec : schema.arguments) {
    if (spec.required || spec.type != ArgumentType::kInts) continue;
    Argument* argument = op.add_arg();
    argument->set_name(spec.name);
    argument->add_ints(number++);
  }
  return op;
}

}  // namespace

std::string ExpansionText(const OperatorSchema& schema) {
  if (!schema.expansion) return "";
  const std::vector<OperatorDef> samples = SampleOperators(schema);
  for (const bool with_lists : {false, true}) {
    for (const OperatorDef& op : samples) {
      try {
        const OperatorCall call(with_lists ? WithLists(op, schema) : op);
        if (std::string text = FirstText(call); !text.empty()) return text;
      } catch (const Error&) {  // these arguments do not go together
      }
    }
  }
  return "";
}

}  // namespace stepnet
