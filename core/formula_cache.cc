#include "stepnet/core/formula_cache.h"

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "stepnet/core/index_of.h"

namespace stepnet {
namespace {

constexpr std::int64_t kFlatSize = 2;  // of regions that stand for any size: operands of one element are not elements
constexpr size_t kMaxKept = 512;

bool MayBeFlat(const ShapeQuery& query, const FormulaRegion& formula) {
  const Region& region = formula.region;
  if (!formula.is_elementwise || region.outputs.empty() || !region.requirements.empty()) return false;
  for (int i = 0; i < query.num_inputs(); ++i) {
    if (query.In(i).shape.size() != region.outputs[0].memory.size) return false;
  }
  return true;
}

Region Flattened(Region region) {
  const auto flatten = [](RegionOperand* operand) {
    operand->size = kFlatSize;
    operand->strides = {0, 0, 0, 1};
  };
  region.sizes = {1, 1, 1, kFlatSize};
  for (RegionOperand& input : region.inputs) flatten(&input);
  for (RegionOutput& output : region.outputs) flatten(&output.memory);
  return region;
}

// All that a formula may depend on when it does not ask for the operator itself, as bytes.
class KeyWriter {
 public:
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
  void Number(std::uint64_t number) { bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number)); }

  // Nothing where a value of an argument or input is no plain number.
  std::optional<std::string> Take() {
    if (!is_plain_) return {};
    return std::move(bytes_);
  }

 private:
  // Which operands are the same blob: the first of each.
  void Blobs(const OperatorCall& op) {
    constexpr size_t kFew = 8;
    if (op.inputs().size() + op.outputs().size() <= kFew) {
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
    bytes_ += text;
  }
  template <typename T>
  void List(const std::vector<T>& list) {
    Number(list.size());
    bytes_.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T));
  }
  template <typename T>
  void Optional(const std::optional<T>& value) {
    Number(value ? 1 : 0);
    if (value) bytes_.append(reinterpret_cast<const char*>(&*value), sizeof(T));
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

  std::string bytes_;
  bool is_plain_ = true;
};

struct Kept {
  std::mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<const FormulaProgram>> programs;
};

Kept& TheKept() {
  static Kept* const kept = new Kept;  // kernels may run while statics are destroyed
  return *kept;
}

}  // namespace

FormulaProgram::FormulaProgram(const ShapeQuery& query, FormulaRegion formula)
    : formula_(std::move(formula)), may_be_flat_(MayBeFlat(query, formula_)) {}

void FormulaProgram::Make() const {
  std::call_once(once_, [this] {
    if (may_be_flat_) {
      RegionProgram flat(Flattened(formula_.region));
      is_flat_ = flat.is_flat();
      if (is_flat_) program_.emplace(std::move(flat));
    }
    if (!is_flat_) program_.emplace(formula_.region);
  });
}

bool FormulaProgram::is_flat() const {
  Make();
  return is_flat_;
}

const RegionProgram& FormulaProgram::program() const {
  Make();
  return *program_;
}

int FormulaProgram::max_parts() const {
  return is_flat() ? RegionProgram::MaxFlatParts(formula_.region.NumElements()) : program().max_parts();
}

std::shared_ptr<const FormulaProgram> FindFormula(const ShapeQuery& query, std::span<const TensorInfo> outputs,
                                                  std::uint64_t wanted) {
  KeyWriter writer;
  writer.Query(query);
  writer.Infos(outputs);
  writer.Number(wanted);
  const std::optional<std::string> key = writer.Take();
  Kept& kept = TheKept();
  if (key) {
    const std::lock_guard lock(kept.mutex);
    const auto found = kept.programs.find(*key);
    if (found != kept.programs.end()) return found->second;
  }
  auto made = std::make_shared<const FormulaProgram>(query, MakeFormulaRegion(query, outputs, wanted));
  if (key && !made->formula().asks_for_operator) {
    const std::lock_guard lock(kept.mutex);
    if (kept.programs.size() >= kMaxKept) kept.programs.clear();
    kept.programs.emplace(*key, made);
  }
  return made;
}

bool IsElementwise(const ShapeQuery& query) {
  const OperatorSchema& schema = query.op().schema();
  if (schema.elementwise || !schema.formula) return schema.elementwise;
  return AreExprTypes(query, schema.shapes(query)) && FindFormula(query)->formula().is_elementwise;
}

}  // namespace stepnet
