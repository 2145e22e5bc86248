#include <algorithm>
#include <memory>
#include <optional>

#include "stepnet/compiler/emit.h"
#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/verify_graph.h"
#include "stepnet/executor/executor.h"
#include "stepnet/nets/side_effects.h"
#include "trials.h"

namespace stepnet {
namespace {

// Returns false for what is a graph and means nothing.
bool IsVerified(const StepGraph& graph) {
  try {
    VerifyGraph(graph, "parse");
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Memory outside of just as many rows as the steps of a run touch, for what a graph says of it; nothing where that is
// no tensor, or large.
class MemoryOutside {
 public:
  MemoryOutside(const StepGraph& graph, std::int64_t num_steps)
      : graph_(graph), num_steps_(num_steps), tensors_(graph.num_bases) {}

  std::optional<std::vector<Tensor>> Make() {
    for (const StepValue& value : graph_.values) {
      if (!Add(value)) return std::nullopt;
    }
    for (const std::vector<RowMove>* moves : {&graph_.before, &graph_.after}) {
      for (const RowMove& move : *moves) AddLike(move);
    }
    for (Tensor& tensor : tensors_) {
      if (!tensor.defined()) tensor = Tensor::Zeros(DType::kFloat, {num_steps_ + 1, 1});
    }
    return tensors_;
  }

 private:
  static constexpr std::int64_t kMaxBytes = 1 << 20;

  bool Add(const StepValue& value) {
    const Home& home = graph_.homes[value.home];
    if (value.dynamic || value.info.dtype == DType::kString || value.info.size_bytes() > kMaxBytes) return false;
    if (home.kind != Home::Kind::kOutside) return true;
    const Slot& slot = home.slot;
    if (slot.bytes > kMaxBytes) return false;
    if (slot.row_bytes == 0) return Take(slot.base, {.dtype = value.info.dtype, .shape = value.info.shape});
    const std::int64_t item = DTypeBytes(value.info.dtype);
    const std::int64_t rows = num_steps_ - 1 + slot.offset + (slot.bytes + slot.row_bytes - 1) / slot.row_bytes;
    if (slot.row_bytes % item != 0 || rows > kMaxBytes / slot.row_bytes) return false;
    const Shape row =
        value.info.shape.size() * item == slot.row_bytes ? value.info.shape : Shape{slot.row_bytes / item};
    return Take(slot.base, {.dtype = value.info.dtype, .shape = row.Inserted(0, std::max<std::int64_t>(rows, 0))});
  }

  // The larger one of two that homes of one base ask for.
  bool Take(int base, const TensorInfo& info) {
    Tensor& tensor = tensors_[base];
    if (!tensor.defined() || tensor.size_bytes() < info.size_bytes()) tensor = Tensor::Zeros(info.dtype, info.shape);
    return true;
  }

  // What is moved alone, and seen by no step, has the rows of what it is moved to or from.
  void AddLike(const RowMove& move) {
    if (move.kind != RowMove::Kind::kCopy && move.kind != RowMove::Kind::kAdd) return;
    const auto add = [&](const BaseRows& rows, const BaseRows& like) {
      const Tensor& known = tensors_[like.base];
      if (tensors_[rows.base].defined() || !known.defined() || known.shape().rank() == 0) return;
      const bool has_count = like.end != BaseRows::kEnd && like.end >= like.begin;
      const std::int64_t count = has_count ? std::min(like.end - like.begin, known.dim(0)) : known.dim(0);
      tensors_[rows.base] = Tensor::Zeros(known.dtype(), known.shape().With(0, count));
    };
    add(move.from, move.to);
    add(move.to, move.from);
  }

  const StepGraph& graph_;
  const std::int64_t num_steps_;
  std::vector<Tensor> tensors_;  // by base
};

bool HasSideEffects(const StepGraph& graph) {
  return std::ranges::any_of(graph.nodes, [](const StepNode& node) {
    const auto has = [](const RegionCall& call) { return HasSideEffects(*call.call); };
    return (node.call != nullptr && HasSideEffects(*node.call)) || std::ranges::any_of(node.calls(), has);
  });
}

// Runs what the verifier has accepted, step by step, in memory of its own: it stays within that, which sanitizers see.
// Returns what is wrong.
std::string RunVerified(const StepGraph& graph) {
  if (graph.num_lists > 0 || graph.num_bases > 64 || graph.target->device != DeviceKind::kCpu || HasSideEffects(graph))
    return "";
  try {
    const auto plan = std::make_shared<const StepPlan>(EmitPlan(graph, {.ring_rows = 1}));
    for (const std::int64_t num_steps : {0, 1, 3}) {
      const std::optional<std::vector<Tensor>> memory = MemoryOutside(graph, num_steps).Make();
      if (!memory) return "";
      RunState state(plan);
      for (int base = 0; base < graph.num_bases; ++base) {
        graph.lent.contains(base) ? state.LendBase(base, (*memory)[base]) : state.SetBase(base, (*memory)[base]);
      }
      Workspace workspace;
      RunContext context;
      state.Prepare(num_steps, workspace);
      MakeSerialExecutor()->Run(state, context);
    }
    return "";
  } catch (const Error& error) {
    return RefusedBy(error).fault;
  }
}

}  // namespace

TrialResult TryGraph(const std::string& text) {
  std::string printed;
  bool means_something = false;
  try {
    const StepGraph graph = ParseGraph(text);
    printed = GraphText(graph);
    means_something = IsVerified(graph);
  } catch (const Error& error) {
    return RefusedBy(error);
  }
  try {
    const StepGraph again = ParseGraph(printed);
    if (GraphText(again) != printed) return {.fault = "is printed in two ways", .ran = true};
    if (IsVerified(again) != means_something) return {.fault = "means something else when it is read", .ran = true};
    return {.fault = means_something ? RunVerified(again) : "", .ran = true};
  } catch (const Error& error) {
    return {.fault = std::string("is printed as what is refused: ") + error.what()};
  }
}

}  // namespace stepnet
