#include "stepnet/cells/finite_gradients.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/cells/cell_advice.h"
#include "stepnet/cells/size_arguments.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/expressions/expr_range.h"
#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/core/kept_by_key.h"
#include "stepnet/core/strings.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// Those that say neither by a formula nor by an expansion what they compute, or for some arguments do not: they add up
// products, move and choose elements, or have no gradient.
const std::set<std::string>& FiniteTypes() {
  static const std::set<std::string> types = {"ArgMax", "ArgMin", "Cast", "Conv", "Gather", "Shape", "Size", "TopK"};
  return types;
}

// Between which numbers blobs lie; anywhere those that are not here.
using BlobRanges = std::map<std::string, ExprRange>;

// Adds those of the outputs of an operator, where its inputs are finite; false where an output may not be, or where
// nothing is known.
bool AddOutputs(const std::string& type, const ArgumentMap& arguments, const std::vector<std::string>& inputs,
                const std::vector<std::string>& outputs, BlobRanges* ranges) {
  const OperatorSchema& schema = GetOperator(type);
  if (!schema.formula) return schema.expansion != nullptr;
  SampleRequest request{.arguments = {arguments.begin(), arguments.end()}};
  const bool is_variadic = !schema.inputs.empty() && schema.inputs.back().variadic;
  if (!is_variadic) request.left_out = static_cast<int>(schema.inputs.size() - inputs.size());
  const std::optional<SampledFormula> sample = SampleFormula(schema, request);
  if (!sample) return false;
  std::vector<ExprRange> read;
  for (const int input : sample->inputs) {
    const auto known = input >= 0 && input < std::ssize(inputs) ? ranges->find(inputs[input]) : ranges->end();
    read.push_back(known == ranges->end() ? ExprRange() : known->second);
  }
  for (size_t o = 0; o < sample->region.outputs.size(); ++o) {
    const std::optional<ExprRange> range = RangeOf(sample->region.outputs[o].value, read);
    if (!range) return false;
    const auto output = static_cast<size_t>(sample->outputs[o]);
    if (output < outputs.size()) (*ranges)[outputs[output]] = *range;
  }
  return true;
}

// Which outputs have a gradient: all of them; or, where not all can have one, each alone.
std::vector<std::vector<GradientBlobs>> OutputGradients(const OperatorCall& call) {
  std::vector<GradientBlobs> all;
  for (const std::string& output : call.outputs()) all.push_back({.dense = output + "_grad"});
  std::vector<std::vector<GradientBlobs>> choices = {all};
  for (size_t o = 0; o < all.size() && all.size() > 1; ++o) {
    std::vector<GradientBlobs>& alone = choices.emplace_back(all.size());
    alone[o] = all[o];
  }
  return choices;
}

// Whether the gradient is finite, where outputs have these; nothing where they cannot.
std::optional<bool> HasFiniteGradient(const OperatorCall& call, const std::vector<GradientBlobs>& of_outputs,
                                      BlobRanges ranges) {
  GradientBuilder builder(call, of_outputs);
  try {
    call.schema().gradient(builder);
  } catch (const Error&) {
    CheckCancelled();
    return {};
  }
  return std::ranges::all_of(builder.ops(), [&](const GradientOp& op) {
    ArgumentMap arguments = op.arguments;
    if (op.copies_arguments) arguments.insert(call.arguments().begin(), call.arguments().end());
    return AddOutputs(op.type, arguments, op.inputs, op.outputs, &ranges);
  });
}

bool FindIsFinite(const OperatorCall& call) {
  const OperatorSchema& schema = call.schema();
  if (call.num_inputs() < schema.min_inputs() || call.num_inputs() > schema.max_inputs()) return false;
  BlobRanges ranges;
  if (!AddOutputs(call.type(), call.arguments(), call.inputs(), call.outputs(), &ranges)) return false;
  if (schema.gradient_kind != GradientKind::kRule) return true;
  return std::ranges::none_of(OutputGradients(call), [&](const std::vector<GradientBlobs>& of_outputs) {
    return HasFiniteGradient(call, of_outputs, ranges) == false;
  });
}

// Whether outputs and gradients are finite where all that the operator reads is. False for one that is refused.
bool IsFinite(OperatorDef op) {
  if (FiniteTypes().contains(op.type())) return true;
  // Blobs that several of them share would have one range.
  for (int i = 0; i < op.input_size(); ++i) op.set_input(i, StrCat("x", i));
  for (int o = 0; o < op.output_size(); ++o) op.set_output(o, StrCat("y", o));
  static KeptByKey<bool>& known = *new KeptByKey<bool>(/*max_kept=*/4096);
  const std::string key = op.SerializeAsString();
  if (const auto found = known.Find(key)) return *found;
  bool is_finite = false;
  try {
    is_finite = FindIsFinite(OperatorCall(op));
  } catch (const Error&) {
    CheckCancelled();
  }
  known.Keep(key, std::make_shared<bool>(is_finite));
  return is_finite;
}

}  // namespace

bool HasFiniteGradients(const CellDef& cell, const CellSizes& sizes) {
  const std::set<std::string> of_step = BlobsOfTheStep(cell);
  return std::ranges::all_of(cell.op(), [&](OperatorDef op) {
    const auto is_of_step = [&](const std::string& input) { return of_step.contains(input); };
    if (std::ranges::none_of(op.input(), is_of_step)) return true;
    ReplaceSizes(sizes, /*exact_numbers=*/true, &op);
    return IsFinite(std::move(op));
  });
}

}  // namespace stepnet
