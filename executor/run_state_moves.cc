// RunState: what a plan does with whole rows before its first step and after its last one (compiler/row_move.h).
#include <numeric>

#include "stepnet/core/accumulate.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/executor/run_state.h"

namespace stepnet {
namespace {

// Rows of a state, whose own shape may leave out the dimensions of one element: [L, …].
Tensor RowsOf(const Tensor& items, std::int64_t num_rows) {
  return num_rows == 0 ? items : items.Reshaped(Shape({num_rows, items.size() / num_rows}));
}

// A batch of one, [L, 1, …], goes to each row of the batch, [L, B, …].
void Copy(const Tensor& from, const Tensor& to) {
  if (from.size() == to.size()) return CopyTensor(from, to);
  const Tensor items = RowsOf(from, to.dim(0));
  for (std::int64_t r = 0; r < to.dim(0); ++r) CopyToEach(items.Slice(r, r + 1), to.Slice(r, r + 1));
}

// A batch of one gets the sum over the batch.
void Add(const Tensor& from, const Tensor& to) {
  if (from.size() == to.size()) return AddTensor(from, to);
  const Tensor items = RowsOf(to, from.dim(0));
  for (std::int64_t r = 0; r < from.dim(0); ++r) AddEach(from.Slice(r, r + 1), items.Slice(r, r + 1));
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

void RunState::RunMoves(const std::vector<Instruction>& moves, size_t first_number, RunContext& context) {
  for (size_t i = 0; i < moves.size(); ++i) {
    const RowMove& move = *moves[i].rows;
    if (move.only_without_steps && num_steps_ > 0) continue;
    if (move.kind != RowMove::Kind::kGive) CheckCancelled();  // the caller is given all or nothing
    const int number = static_cast<int>(first_number + i);
    const ObservedScope scope(context.observers, EventOf(moves[i], number, /*step=*/-1, context, {}));
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
