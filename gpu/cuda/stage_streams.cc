#include "stepnet/gpu/cuda/stage_streams.h"

#include <algorithm>
#include <memory>

#include "stepnet/compiler/dependencies.h"
#include "stepnet/gpu/cuda/cuda_event.h"

namespace stepnet {
namespace {

bool TakesChunks(const Stage& stage) { return stage.steps_at_once != kAllSteps; }

}  // namespace

// That a chunk of steps puts in, of all stages that take chunks.
std::int64_t NumOperatorsOfChunk(const StepPlan& plan) {
  std::int64_t number = 0;
  for (const Stage& stage : plan.stages) {
    if (!TakesChunks(stage)) continue;
    number += (stage.end - stage.begin) * ((plan.chunk_steps + stage.steps_at_once - 1) / stage.steps_at_once);
  }
  return number;
}

// The streams of the stages, and who waits for whom.
class StageStreams::Joins {
 public:
  // All stages in `queue`, or, with others, the stages that take chunks in those.
  Joins(const StepPlan& plan, std::int64_t num_steps, CudaQueue& queue, bool has_others)
      : chunk_(plan.chunk_steps), num_chunks_(chunk_ == 0 ? 1 : (num_steps + chunk_ - 1) / chunk_), queues_{&queue} {
    const auto count = static_cast<size_t>(std::ranges::count_if(plan.stages, TakesChunks));
    if (num_chunks_ < 2 || count < 2) return;
    const std::int64_t suitable = plan.target->max_queues;
    const std::int64_t max = plan.max_queues > 0 ? std::min(plan.max_queues, suitable) : suitable;
    num_streams_ = std::min(count, static_cast<size_t>(max));
    dependencies_ = FindChunkDependencies(plan);
    done_.resize(plan.stages.size());
    std::vector<bool> has_loop(num_streams_, false);
    for (size_t s = 0, place = 0; s < plan.stages.size(); ++s) {
      const Stage& stage = plan.stages[s];
      stream_of_.push_back(TakesChunks(stage) ? place++ % num_streams_ : 0);
      if (stage.steps_at_once == 1) has_loop[stream_of_[s]] = true;
    }
    if (!has_others) return;
    // Loops are what others wait for; products of many steps fill the processors between.
    for (size_t k = 1; k < num_streams_; ++k) {
      queues_.push_back(others_.emplace_back(std::make_unique<CudaQueue>(queue.runtime(), has_loop[k])).get());
    }
  }

  bool overlaps() const { return num_streams_ > 1; }
  std::int64_t chunk() const { return chunk_; }
  std::int64_t num_chunks() const { return num_chunks_; }
  size_t num_streams() const { return num_streams_; }
  size_t StreamOf(size_t stage) const { return stream_of_[stage]; }
  CudaQueue& QueueOf(size_t stream) const { return *queues_[queues_.size() == 1 ? 0 : stream]; }

  // The other streams begin behind the first, with a chunk, and the first goes on behind them. Nobody waits for chunks
  // before it any more.
  void Fork(std::int64_t chunk) {
    first_chunk_ = chunk;
    for (std::vector<CudaEvent>& of_stage : done_) {
      for (CudaEvent& event : of_stage) event.reset();
    }
    if (others_.empty()) return;
    const CudaEvent begun = EventOf(*queues_[0]);
    for (const auto& other : others_) WaitFor(begun, *other);
  }
  void Join() const {
    for (const auto& other : others_) WaitFor(EventOf(*other), *queues_[0]);
  }

  // Before and after a stage has been given its chunk.
  void Begin(size_t stage, std::int64_t chunk) const {
    if (others_.empty()) return;
    for (const Dependency& edge : dependencies_.edges) {
      const auto from = static_cast<size_t>(edge.from);
      if (static_cast<size_t>(edge.to) != stage || chunk - edge.delta < first_chunk_) continue;
      if (StreamOf(from) == StreamOf(stage)) continue;
      WaitFor(done_[from][chunk - edge.delta], QueueOf(StreamOf(stage)));
    }
  }
  void End(size_t stage) {
    if (!others_.empty()) done_[stage].push_back(EventOf(QueueOf(StreamOf(stage))));
  }

 private:
  const std::int64_t chunk_;
  const std::int64_t num_chunks_;
  size_t num_streams_ = 1;
  Dependencies dependencies_;
  std::vector<size_t> stream_of_;  // by stage
  std::vector<CudaQueue*> queues_;
  std::vector<std::unique_ptr<CudaQueue>> others_;
  std::vector<std::vector<CudaEvent>> done_;  // by stage and chunk
  std::int64_t first_chunk_ = 0;              // that runs since the streams forked; those before are done
};

StageStreams::StageStreams() = default;
StageStreams::~StageStreams() = default;

void StageStreams::Run(RunState& state, RunContext& context) {
  auto& queue = static_cast<CudaQueue&>(*context.queue);
  joins_ = std::make_unique<Joins>(state.plan(), state.num_steps(), queue, /*has_others=*/queue.is_recorded());
  Prepare(state, context);
  bool have_chunks_run = false;
  ForEachTurn(state, [&](size_t s, std::int64_t begin, std::int64_t end) {
    const Stage& stage = state.plan().stages[s];
    if (!joins_->overlaps() || !TakesChunks(stage)) {
      RunStage(state, stage, begin, end, contexts_[0]);
    } else if (!have_chunks_run) {
      RunChunks(state, context.recording);
      have_chunks_run = true;
    }
  });
  for (RunContext& own : contexts_) own.ResetScratch();
}

void StageStreams::Prepare(const RunState& state, const RunContext& lender) {
  contexts_.resize(joins_->num_streams());
  for (size_t k = 0; k < contexts_.size(); ++k) {
    RunContext& context = contexts_[k];
    context.ServeRunOf(lender);
    context.UseDevice(state.device());
    context.queue = &joins_->QueueOf(k);
  }
}

void StageStreams::RunChunks(RunState& state, RecordingNotes* notes) {
  const std::vector<Stage>& stages = state.plan().stages;
  const std::int64_t num_operators = NumOperatorsOfChunk(state.plan());
  joins_->Fork(0);
  for (std::int64_t chunk = 0; chunk < joins_->num_chunks(); ++chunk) {
    if (notes != nullptr && notes->IsFullFor(num_operators, state.plan().target->max_operators_of_graph)) {
      joins_->Join();
      notes->Cut();
      joins_->Fork(chunk);
    }
    if (notes != nullptr) notes->num_in_piece += num_operators;
    const std::int64_t begin = chunk * joins_->chunk();
    for (size_t s = 0; s < stages.size(); ++s) {
      if (!TakesChunks(stages[s])) continue;
      joins_->Begin(s, chunk);
      RunSerially(state, stages[s], begin, begin + joins_->chunk(), contexts_[joins_->StreamOf(s)]);
      joins_->End(s);
    }
  }
  joins_->Join();
}

}  // namespace stepnet
