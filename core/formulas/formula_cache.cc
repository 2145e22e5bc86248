#include "stepnet/core/formulas/formula_cache.h"

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>

#include "stepnet/core/expansion.h"
#include "stepnet/core/formulas/formula_kernel.h"
#include "stepnet/core/index_of.h"
#include "stepnet/core/kept_by_key.h"

namespace stepnet {
namespace {

// All that a formula may depend on when it does not ask for the operator itself, as bytes.
class KeyWriter {
 public:
  KeyWriter() = default;
  KeyWriter(const KeyWriter&) = delete;
  KeyWriter& operator=(const KeyWriter&) = delete;

  void Query(const ShapeQuery& query) {
    const OperatorCall& op = query.op();
    Number(reinterpret_cast<std::uintptr_t>(&op.schema()));
    Number(op.arguments().size());
    for (const auto& [name, value] : op.arguments()) Argument(name, value);
    Number(static_cast<std::uint64_t>(query.num_inputs()));
    for (int i = 0; i < query.num_inputs(); ++i) Info(query.In(i));
    Number(op.outputs().size());
    Blobs(op);
  }
  void Infos(std::span<const TensorInfo> infos) {
    Number(infos.size());
    for (const TensorInfo& info : infos) Info(info);
  }
  void Number(std::uint64_t number) { Bytes(&number, sizeof(number)); }

  // False where a value of an argument or input is no plain number: bytes() do not tell them apart then.
  bool is_plain() const { return is_plain_; }
  std::string_view bytes() const { return many_.empty() ? std::string_view(few_.data(), num_few_) : many_; }

 private:
  // Which operands are the same blob: the first of each.
  void Blobs(const OperatorCall& op) {
    constexpr size_t kMaxOperands = 16;
    if (op.inputs().size() + op.outputs().size() <= kMaxOperands) {
      for (const std::string& input : op.inputs()) Number(static_cast<std::uint64_t>(IndexOf(op.inputs(), input)));
      for (const std::string& output : op.outputs()) Number(static_cast<std::uint64_t>(IndexOf(op.inputs(), output)));
      return;
    }
    std::unordered_map<std::string_view, std::uint64_t> first;
    for (const std::vector<std::string>* names : {&op.inputs(), &op.outputs()}) {
      for (const std::string& name : *names) Number(first.emplace(name, first.size()).first->second);
    }
  }

  void Text(const std::string& text) {
    Number(text.size());
    Bytes(text.data(), text.size());
  }
  template <typename T>
  void List(const std::vector<T>& list) {
    Number(list.size());
    Bytes(list.data(), list.size() * sizeof(T));
  }
  template <typename T>
  void Optional(const std::optional<T>& value) {
    Number(value ? 1 : 0);
    if (value) Bytes(&*value, sizeof(T));
  }

  void Argument(const std::string& name, const ArgumentValue& value) {
    Text(name);
    Optional(value.f);
    Optional(value.i);
    Number(value.s ? 1 : 0);
    if (value.s) Text(*value.s);
    List(value.floats);
    List(value.ints);
    Number(value.strings.size());
    for (const std::string& text : value.strings) Text(text);
    is_plain_ &= value.net == nullptr;
  }

  void Info(const TensorInfo& info) {
    Number(static_cast<std::uint64_t>(info.dtype));
    Number(static_cast<std::uint64_t>(info.shape.rank()));
    for (const std::int64_t size : info.shape.dims()) Number(static_cast<std::uint64_t>(size));
    is_plain_ &= !info.value.defined();
  }

  void Bytes(const void* bytes, size_t size) {
    if (size == 0) return;
    if (many_.empty() && num_few_ + size <= few_.size()) {
      std::memcpy(few_.data() + num_few_, bytes, size);
      num_few_ += size;
      return;
    }
    if (many_.empty()) many_.assign(few_.data(), num_few_);
    many_.append(static_cast<const char*>(bytes), size);
  }

  // Most keys fit into `few_` and cost no allocation: operators that are alike ask for one again and again.
  std::array<char, 512> few_;
  size_t num_few_ = 0;
  std::string many_;  // all of them, where there are more
  bool is_plain_ = true;
};

// Keeps what kernels share. It is never destroyed: kernels may run while statics are.
template <typename Value>
KeptByKey<Value>& TheKept() {
  static auto* const kept = new KeptByKey<Value>(/*max_kept=*/512);
  return *kept;
}

OperatorParts MakeParts(const ShapeQuery& query) {
  OperatorParts made{.outputs = query.op().schema().shapes(query), .is_shared = true};
  for (TensorInfo& output : made.outputs) output.value = {};  // what is kept holds no tensors
  if (!query.op().schema().formula || !FormulaApplies(query, made.outputs)) {
    const Expansion expansion(query);
    made.parts.assign(expansion.parts().begin(), expansion.parts().end());
    if (made.parts.empty()) made.parts = expansion.sum_parts();
    return made;
  }
  const std::shared_ptr<const FormulaProgram> program = FindFormula(query, kWholeOperator, made.outputs);
  const FormulaRegion& formula = program->formula();
  RegionPart& part =
      made.parts.emplace_back(RegionPart{.region = formula.region, .inputs = formula.inputs, .outputs = {}});
  for (const int output : formula.outputs) part.outputs.push_back(query.num_inputs() + output);
  part.region.in_place.clear();
  made.checks_values = std::ranges::any_of(part.region.Roots(), [](const Expr& root) { return root->has_require(); });
  made.is_shared = !formula.asks_for_operator;
  return made;
}

}  // namespace

std::shared_ptr<const FormulaProgram> FindFormula(const ShapeQuery& query, std::uint64_t wanted,
                                                  std::span<const TensorInfo> outputs) {
  // Others follow from the query.
  const bool reads_values = !query.op().schema().shape_value_inputs.empty();
  if (!reads_values) outputs = {};
  KeyWriter key;
  key.Query(query);
  key.Number(wanted);
  key.Infos(outputs);
  if (key.is_plain()) {
    if (auto found = TheKept<FormulaProgram>().Find(key.bytes())) return found;
  }
  std::vector<TensorInfo> declared;
  if (!reads_values) {
    declared = DeclaredOutputs(query);
    outputs = declared;
  }
  auto made = std::make_shared<const FormulaProgram>(query, wanted, MakeFormulaRegion(query, outputs, wanted));
  if (key.is_plain() && !made->formula().asks_for_operator) TheKept<FormulaProgram>().Keep(key.bytes(), made);
  return made;
}

std::shared_ptr<const OperatorParts> FindParts(const ShapeQuery& query) {
  KeyWriter key;
  key.Query(query);
  if (key.is_plain()) {
    if (auto found = TheKept<OperatorParts>().Find(key.bytes())) return found;
  }
  auto made = std::make_shared<OperatorParts>(MakeParts(query));
  made->is_shared &= key.is_plain();
  if (made->is_shared) TheKept<OperatorParts>().Keep(key.bytes(), made);
  return made;
}

bool MayFindBadValues(const ShapeQuery& query, const Kernel& kernel) {
  const OperatorSchema& schema = query.op().schema();
  // What only copies and fills finds none, whatever the kernel finds of other arguments.
  const bool may_only_copy = kernel.checks_values && schema.expansion;
  if (!schema.formula && !may_only_copy) return kernel.checks_values;
  try {
    const std::shared_ptr<const OperatorParts> made = FindParts(query);
    return made->parts.empty() ? kernel.checks_values : made->checks_values;
  } catch (const ValueUnknown&) {  // shapes follow from what an input holds
    return kernel.checks_values;
  }
}

bool FollowsInputs(const ShapeQuery& query) {
  return query.op().schema().formula && FormulaApplies(query, {}) && FindFormula(query)->formula().follows_inputs;
}

bool IsElementwise(const ShapeQuery& query) {
  const OperatorSchema& schema = query.op().schema();
  if (schema.elementwise || !schema.formula) return schema.elementwise;
  return FormulaApplies(query, schema.shapes(query)) && FindFormula(query)->formula().is_elementwise;
}

}  // namespace stepnet
