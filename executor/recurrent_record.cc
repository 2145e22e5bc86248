#include "stepnet/executor/recurrent_record.h"

#include <algorithm>

namespace stepnet {
namespace {

// Not where their device does its work later, nor where others read all of a run.
bool LendsTemporaries(const RecurrentRecord& record) {
  return record.steps->device().IsHost() && !record.plan->keeps_all;
}

}  // namespace

BorrowedTemporaries::BorrowedTemporaries(const RecurrentRecord& record, RunState* borrower) : borrower_(borrower) {
  if (!LendsTemporaries(record) || record.is_lent.test_and_set()) return;
  is_lent_ = &record.is_lent;
  borrower->BorrowTemporaries(record.steps.get());
}

BorrowedTemporaries::~BorrowedTemporaries() {
  if (is_lent_ == nullptr) return;
  borrower_->BorrowTemporaries(nullptr);
  is_lent_->clear();
}

double BytesOfStates(const ForwardPlan& plan, std::int64_t num_steps) {
  double bytes = 0;
  for (const StateLayout& state : plan.states) {
    const double row = static_cast<double>(state.row.size()) * static_cast<double>(DTypeBytes(state.dtype));
    bytes += row * static_cast<double>(state.NumRows(num_steps));
  }
  return bytes;
}

std::int64_t BytesOfStepsBack(const RecurrentRecord& record, const StepPlan& backward) {
  const std::int64_t bytes = backward.ArenaBytes(record.num_steps);
  if (!LendsTemporaries(record)) return bytes;
  return bytes -
         std::min(record.plan->steps->TemporaryBytes(record.num_steps), backward.TemporaryBytes(record.num_steps));
}

Error WithNeeds(const Error& error, const RecurrentRecord& record) {
  if (error.code() != ErrorCode::kOutOfMemory) return error;
  const ForwardPlan& plan = *record.plan;
  double states = BytesOfStates(plan, record.num_steps);
  const auto bytes = [](double number) { return static_cast<std::int64_t>(number); };
  std::string gradient;
  if (const std::shared_ptr<const StepPlan> backward = record.gradient->Of(record.plan)) {
    gradient = StrCat(", and its gradient ", bytes(states), " for those of states and ",
                      BytesOfStepsBack(record, *backward), " for what the steps back compute");
  }
  for (const auto& [base, info] : plan.step_outputs) {
    states += static_cast<double>(info.size_bytes()) * static_cast<double>(record.num_steps);
  }
  // What the plan does not keep is not in its arena; what was freed since is.
  const std::int64_t of_plan = BytesOf(plan.recomputed), recomputed = BytesOf(record.spare.Recomputed());
  const std::int64_t arena = plan.steps->ArenaBytes(record.num_steps) - (recomputed - of_plan) * record.num_steps;
  const std::string more =
      recomputed == 0 ? "" : StrCat(", ", recomputed * record.num_steps, " more where nothing is computed again");
  Error told(error.code(),
             StrCat("a run of ", record.num_steps, " steps needs ", bytes(states), " bytes for states and outputs and ",
                    arena, " for what the steps compute", more, gradient, ": ", error.message()));
  for (const Place& place : error.places()) told.At(place);
  return told;
}

void CheckSequence(const std::vector<Link>& links, const std::string& name, const Tensor& tensor,
                   std::int64_t num_steps) {
  for (const Link& link : links) {
    if (link.external != name) continue;
    if (tensor.shape().rank() == 0) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("\"", name, "\" is linked as a sequence and is ", tensor.Description()));
    }
    if (link.offset == 0 && link.window == 1 && tensor.dim(0) != num_steps) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("the sequence \"", name, "\" is ", tensor.Description(), " and has ", tensor.dim(0),
                         " steps where the first input has ", num_steps));
    }
    CheckLinkInBounds(link, tensor.dim(0), num_steps);
  }
}

}  // namespace stepnet
