// RunState: what a plan does with whole rows before its first step and after its last one (compiler/row_move.h).
#include <numeric>

#include "stepnet/core/accumulate.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/executor/run_state.h"

namespace stepnet {
namespace {

// Row r of `items`, [L, 1, …], with each item r, b of `batch`, [L, B, …].
void ForEachItem(const Tensor& items, const Tensor& batch,
                 const std::function<void(const Tensor& item, const Tensor& of_batch)>& visit) {
  const std::int64_t rows = batch.dim(0), batch_size = batch.dim(1);
  if (rows * batch_size == 0) return;
  const Tensor from = items.Reshaped(Shape({rows, items.size() / rows}));
  const Tensor to = batch.Reshaped(Shape({rows * batch_size, items.size() / rows}));
  for (std::int64_t k = 0; k < rows * batch_size; ++k) {
    visit(from.Slice(k / batch_size, k / batch_size + 1), to.Slice(k, k + 1));
  }
}

void Copy(const Tensor& from, const Tensor& to) {
  if (from.size() == to.size()) return CopyTensor(from, to);
  ForEachItem(from, to, [](const Tensor& item, const Tensor& of_batch) { CopyTensor(item, of_batch); });
}

void Add(const Tensor& from, const Tensor& to) {
  if (from.size() == to.size()) return AddTensor(from, to);
  ForEachItem(to, from, [](const Tensor& item, const Tensor& of_batch) { AddTensor(of_batch, item); });
}

}  // namespace

// The host gives them to a device: not again where they are there from the run before.
void RunState::SetNumbers(const Tensor& to) {
  if (to.device().IsHost()) {
    auto* const numbers = to.data<std::int32_t>();
    std::iota(numbers, numbers + to.size(), 0);
    return;
  }
  const std::pair<const void*, std::int64_t> memory(to.raw(device_), to.size());
  if (numbers_ == memory) return;
  std::vector<std::int32_t> numbers(to.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  CopyTensor(Tensor::Of(to.shape(), numbers), to);
  numbers_ = memory;
}

Tensor RunState::RowsAt(const BaseRows& rows) const {
  const Tensor& base = bases_[rows.base];
  if (rows.IsWhole()) return base;
  const std::int64_t count = base.dim(0);
  const auto row = [count](std::int64_t r) { return r < 0 ? count + r : r; };
  const std::int64_t end = rows.end == BaseRows::kEnd ? count : row(rows.end);
  return base.Slice(rows.begins_at_steps ? std::min(num_steps_ + rows.begin, end) : row(rows.begin), end);
}

void RunState::RunMoves(const std::vector<PlannedMove>& moves, size_t first_number, RunContext& context) {
  for (size_t i = 0; i < moves.size(); ++i) {
    const RowMove& move = moves[i].move;
    if (move.only_without_steps && num_steps_ > 0) continue;
    if (move.kind != RowMove::Kind::kGive) CheckCancelled();  // the caller is given all or nothing
    const ObservedScope scope(context.observers, {.kind = RunEventKind::kMove,
                                                  .net = &plan_->name,
                                                  .op_type = &moves[i].type,
                                                  .op_text = &moves[i].text,
                                                  .backward = plan_->backward,
                                                  .queue = context.queue,
                                                  .plan = &plan_,
                                                  .num_steps = num_steps_,
                                                  .instruction = static_cast<int>(first_number + i)});
    const Tensor to = RowsAt(move.to);
    switch (move.kind) {
      case RowMove::Kind::kGive:
      case RowMove::Kind::kCopy: Copy(RowsAt(move.from), to); break;
      case RowMove::Kind::kAdd: Add(RowsAt(move.from), to); break;
      case RowMove::Kind::kZero: SetZero(to); break;
      case RowMove::Kind::kNumbers: SetNumbers(to); break;
      case RowMove::Kind::kLend: CopyTensor(lent_.at(move.to.base), to); break;
    }
  }
}

void RunState::RunMovesBefore(RunContext& context) { RunMoves(plan_->before, plan_->FirstNumberBefore(), context); }

void RunState::RunMovesAfter(RunContext& context) { RunMoves(plan_->after, plan_->FirstNumberAfter(), context); }

}  // namespace stepnet
