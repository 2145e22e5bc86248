#include "stepnet/nets/decomposition.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/rename.h"

namespace stepnet {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, Decomposition> decompositions;
};

Registry& TheRegistry() {
  static Registry registry;
  return registry;
}

// Null where the type has none.
Decomposition Find(const std::string& type) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.decompositions.find(type);
  return found == registry.decompositions.end() ? nullptr : found->second;
}

bool IsDecomposed(const NetDef& net) {
  return std::ranges::any_of(net.op(), [](const OperatorDef& op) {
    return HasDecomposition(op.type()) ||
           std::ranges::any_of(op.arg(), [](const Argument& arg) { return arg.has_n() && IsDecomposed(arg.n()); });
  });
}

// Nothing else of a net concerns the parts of the operator.
void ThrowIfWrong(const OperatorDef& op) {
  const std::vector<NetProblem> problems = CheckOperator(op);
  if (!problems.empty()) throw Error(ErrorCode::kInvalidNet, problems.front().message);
}

// Bytes of the messages of all parts: a few bytes of a file can stand for a thousand layers.
class PartsSize {
 public:
  void Add(const NetDef& parts) {
    constexpr size_t kMaxBytes = 64 << 20;
    bytes_ += parts.ByteSizeLong();
    if (bytes_ <= kMaxBytes) return;
    throw Error(
        ErrorCode::kInvalidNet,
        StrCat("the operators that this one and those before it stand for take more than ", kMaxBytes >> 20, " MB"));
  }

 private:
  size_t bytes_ = 0;
};

class Decomposer {
 public:
  Decomposer(const NetDef& net, NetUse use, PartsSize* size)
      : net_(net), use_(use), size_(size), names_(BlobNames(net)) {}

  DecomposedNet Run() {
    *made_ = net_;
    made_->clear_op();
    for (int i = 0; i < net_.op_size(); ++i) {
      try {
        Add(i);
      } catch (...) {
        throw CurrentError().At({.net = net_.name(), .op_index = i, .op_text = OperatorText(net_.op(i))});
      }
    }
    result_.net = made_;
    return std::move(result_);
  }

 private:
  void Add(int i) {
    const OperatorDef& op = net_.op(i);
    const Decomposition decomposition = Find(op.type());
    if (!decomposition) return Append(i, WithinArguments(op));
    constexpr std::int64_t kWork = 1'000'000;  // of one decomposition
    CountWork(kWork);
    ThrowIfWrong(op);
    NetDef parts = decomposition(OperatorCall(op), {.use = use_, .scope = NewScope(op.output(0))});
    size_->Add(parts);
    for (OperatorDef& part : *parts.mutable_op()) {
      if (op.has_device_option()) *part.mutable_device_option() = op.device_option();
      *part.mutable_control_input() = op.control_input();
      Append(i, std::move(part));
    }
    result_.wholes[i] = {.text = OperatorText(op), .inputs = {op.input().begin(), op.input().end()}};
  }

  OperatorDef WithinArguments(OperatorDef op) const {
    for (Argument& argument : *op.mutable_arg()) {
      if (argument.has_n() && IsDecomposed(argument.n())) {
        *argument.mutable_n() = *Decomposer(argument.n(), use_, size_).Run().net;
      }
    }
    return op;
  }

  void Append(int i, OperatorDef op) {
    *made_->add_op() = std::move(op);
    result_.origins.push_back(i);
  }

  // "y/", or more of these signs where a blob's name begins so.
  std::string NewScope(const std::string& output) {
    std::string scope = output + "/";
    for (auto next = names_.lower_bound(scope); next != names_.end() && next->starts_with(scope);
         next = names_.lower_bound(scope)) {
      scope += "/";
    }
    names_.insert(scope);
    return scope;
  }

  const NetDef& net_;
  const NetUse use_;
  PartsSize* const size_;
  std::set<std::string> names_;  // of blobs, and scopes
  const std::shared_ptr<NetDef> made_ = std::make_shared<NetDef>();
  DecomposedNet result_;
};

}  // namespace

DecompositionRegistration::DecompositionRegistration(const std::string& type, Decomposition decomposition) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  registry.decompositions[type] = std::move(decomposition);
}

bool HasDecomposition(const std::string& type) { return Find(type) != nullptr; }

DecomposedNet Decomposed(std::shared_ptr<const NetDef> net, NetUse use) {
  if (IsDecomposed(*net)) {
    PartsSize size;
    return Decomposer(*net, use, &size).Run();
  }
  DecomposedNet same{.net = std::move(net), .origins = {}, .wholes = {}};
  same.origins.resize(same.net->op_size());
  std::iota(same.origins.begin(), same.origins.end(), 0);
  return same;
}

}  // namespace stepnet
