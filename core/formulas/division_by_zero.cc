// MayDivideByZero: samples of an operator's formula tell whether it divides whole numbers.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/core/kept_by_key.h"

namespace stepnet {
namespace {

bool Divides(const ExprNode& node) { return node.op == ExprOp::kDivide || node.op == ExprOp::kMod; }

bool Checks(const Region& region) {
  return std::ranges::any_of(region.Roots(), [](const Expr& root) { return root->has_require(); });
}

// For each division of the formula, dtypes for which it is one of whole numbers, where others stay floats.
std::vector<std::vector<DType>> DTypesThatDivideWholes(const SampledFormula& sample, DType whole) {
  std::vector<std::vector<DType>> found;
  for (const ExprNode* node : ExprNodes(sample.region.Roots())) {
    if (!Divides(*node)) continue;
    const Expr quotient = Expr::Of(node);
    std::vector<DType> dtypes = sample.dtypes;
    for (const ExprNode* below : ExprNodes({&quotient, 1})) {
      const int input = below->op == ExprOp::kInput ? sample.inputs[below->number] : -1;
      if (input >= 0) dtypes[input] = whole;
    }
    if (std::ranges::find(found, dtypes) == found.end()) found.push_back(std::move(dtypes));
  }
  return found;
}

// Nothing where there is no sample.
std::optional<bool> MayDivideByZero(const OperatorSchema& schema, const SampleRequest& request) {
  // Few types divide at all; of these, most take no whole numbers.
  std::optional<SampledFormula> sample = SampleFormula(schema, request);
  if (!sample) return {};
  if (Checks(sample->region)) return true;
  const auto checks_for = [&](const SampleRequest& wholes) {
    const std::optional<SampledFormula> of_wholes = SampleFormula(schema, wholes);
    return of_wholes && of_wholes->is_ruled && Checks(of_wholes->region);
  };
  for (const DType whole : {DType::kInt32, DType::kInt64}) {
    const std::vector<std::vector<DType>> dividing = DTypesThatDivideWholes(*sample, whole);
    if (dividing.empty()) break;
    SampleRequest wholes = request;
    wholes.dtype = whole;
    if (checks_for(wholes)) return true;
    for (const std::vector<DType>& dtypes : dividing) {
      SampledFormula like = *sample;
      like.dtypes = dtypes;
      like.is_ruled = true;
      wholes.like = &like;
      if (checks_for(wholes)) return true;
    }
  }
  return false;
}

// The argument with all its bits.
void AddToKey(const std::string& name, const ArgumentValue& value, std::string* key) {
  const auto add = [&](const auto& items) {
    const size_t size = items.size();
    key->append(reinterpret_cast<const char*>(&size), sizeof(size));
    key->append(reinterpret_cast<const char*>(items.data()), size * sizeof(items[0]));
  };
  add(name);
  add(value.f ? std::vector<double>{*value.f} : std::vector<double>{});
  add(value.i ? std::vector<std::int64_t>{*value.i} : std::vector<std::int64_t>{});
  add(value.s.value_or(""));
  add(value.floats);
  add(value.ints);
  key->append(std::to_string(value.strings.size()));
  for (const std::string& text : value.strings) add(text);
}

}  // namespace

bool MayDivideByZero(const OperatorSchema& schema) {
  if (!schema.formula) return false;
  static KeptByKey<bool>& known = *new KeptByKey<bool>(/*max_kept=*/4096);
  if (const auto found = known.Find(schema.type)) return *found;
  const bool may = MayDivideByZero(schema, SampleRequest{}).value_or(false);
  known.Keep(schema.type, std::make_shared<bool>(may));
  return may;
}

bool MayDivideByZero(const OperatorCall& op) {
  if (!op.schema().formula || op.arguments().empty()) return MayDivideByZero(op.schema());
  std::string key = op.type();
  SampleRequest request;
  for (const auto& [name, value] : op.arguments()) {
    if (value.net != nullptr) return true;
    AddToKey(name, value, &key);
    request.arguments.emplace(name, value);
  }
  static KeptByKey<bool>& known = *new KeptByKey<bool>(/*max_kept=*/4096);
  if (const auto found = known.Find(key)) return *found;
  const bool may = MayDivideByZero(op.schema(), request).value_or(true);
  known.Keep(key, std::make_shared<bool>(may));
  return may;
}

}  // namespace stepnet
