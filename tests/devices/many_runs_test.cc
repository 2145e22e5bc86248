// Runs upon runs, on every device: no memory is lost while steps, batch and addresses change, threads do not meet, and
// training goes on on another device than the one that began it.
#include <thread>

#include "stepnet/core/strings.h"
#include "stepnet/core/tensor.h"
#include "stepnet/io/file.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/nets/training_net.h"
#include "stepnet/tests/core/source_path.h"
#include "stepnet/tests/core/temp_dir.h"
#include "stepnet/tests/executor/layers.h"
#include "stepnet/tests/executor/random_step.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tools/rnn_runner/checkpoint.h"
#include "stepnet/tools/rnn_runner/language_model.h"
#include "stepnet/tools/rnn_runner/trainer.h"
#include "tested_devices.h"

namespace stepnet {
namespace {

class ManyRuns : public OnEveryDevice {
 protected:
  std::int64_t BytesInUse() const {
    return GetParam().IsHost() ? TensorMemory().current : RuntimeOf(GetParam()).memory().current;
  }
  int NumRuns() const { return GetParam() == kCuda ? 10'000 : 1'000; }
};
INSTANTIATE_ON_EVERY_DEVICE(ManyRuns);

// h = tanh(x w + h u), with gradients.
struct OneLayer {
  explicit OneLayer(const RunOptions& options) {
    FeedLayers(1, 1, 1, workspace);
    net = Net::Create(Layers(1, /*training=*/true), workspace, options);
  }
  void Run(std::int64_t steps, std::int64_t batch, unsigned seed) {
    workspace.SetTensor("x", Random({steps, batch, 12}, seed));
    workspace.SetTensor("l0_init", Random({batch, 12}, seed + 1));
    net->Run();
  }

  Workspace workspace;
  std::unique_ptr<Net> net;
};

TEST_P(ManyRuns, LoseNoMemory) {
  const std::int64_t before = BytesInUse();
  {
    OneLayer layer(Options());
    std::mt19937 random(1);
    std::int64_t most_at_first = 0;
    for (int run = 0; run < NumRuns(); ++run) {
      layer.Run(static_cast<std::int64_t>(random() % 20), static_cast<std::int64_t>(random() % 5), run % 10);
      const std::int64_t now = BytesInUse();
      if (run < 300) {
        most_at_first = std::max(most_at_first, now);
      } else {
        ASSERT_LE(now, 2 * most_at_first) << "after " << run << " runs";
      }
    }
  }
  EXPECT_EQ(BytesInUse(), before) << "all memory is given back";
}

// Nets that record graphs, where the device has such an executor, on workspaces of their own.
TEST_P(ManyRuns, OfSeveralThreadsDoNotMeet) {
  constexpr int kThreads = 3, kRuns = 40;
  std::vector<std::unique_ptr<OneLayer>> expected, layers;
  for (int k = 0; k < kThreads; ++k) {
    expected.push_back(std::make_unique<OneLayer>(Options(kMaxOptLevel, "serial")));
    layers.push_back(std::make_unique<OneLayer>(Options()));
  }
  {
    std::vector<std::jthread> threads;
    for (int k = 0; k < kThreads; ++k) {
      threads.emplace_back([&, k] {
        for (int run = 0; run < kRuns; ++run) layers[k]->Run(5 + run / 10, 3, static_cast<unsigned>(100 * k + run % 3));
      });
    }
  }
  for (int k = 0; k < kThreads; ++k) {
    expected[k]->Run(5 + (kRuns - 1) / 10, 3, static_cast<unsigned>(100 * k + (kRuns - 1) % 3));
    ExpectSameValues(layers[k]->workspace, expected[k]->workspace, StrCat("thread ", k));
  }
}

// The host gives bytes to a step, of which a recording would keep those of one run.
TEST_P(ManyRuns, GiveStepsWhatTheHostKnowsOfThisRun) {
  OperatorDef reshape = ParseOp("flat, old_shape = Reshape(s)");
  AddInts(&reshape, "shape", {1, -1});
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  net.Step("s = Sum(x_t, h_prev)").Step(reshape).Step("t = Tanh(flat)").Step("h_next = Reshape(t, old_shape)");
  net.Output("h_all", "h", 1);
  for (OperatorDef& op : *net.step_net().mutable_op()) {
    if (op.output_size() == 1 && op.type() == "Reshape") op.add_output("shape_before");
  }
  const NetDef def = net.Build();
  if (const std::string why = WhyRefused(def, GetParam()); !why.empty()) GTEST_SKIP() << why;
  Workspace expected, found;
  std::unique_ptr<Net> cpu, there;
  for (int run = 0; run < 12; ++run) {
    for (Workspace* workspace : {&expected, &found}) {
      workspace->SetTensor("x", Random({4, 2 + run / 4, 3}, static_cast<unsigned>(run)));
      workspace->SetTensor("h0", Random({2 + run / 4, 3}, 7));
    }
    if (cpu == nullptr) {
      cpu = Net::Create(def, expected, Reference());
      there = Net::Create(def, found, Options());
    }
    cpu->Run();
    there->Run();
    ExpectNearTensor(found.GetTensor("h_all"), expected.GetTensor("h_all"), ToleranceOf(GetParam()),
                     StrCat("run ", run));
  }
}

class SmallJob {
 public:
  SmallJob() {
    dir_.Put("lstm.cell", ReadFile(SourcePath("examples/cells/lstm.cell")));
    std::string text;
    for (int i = 0; i < 200; ++i) text += "abcdbacd"[(i * i + i / 3) % 8];
    dir_.Put("text", text);
    job_ = runner::ReadTrainJob(
        dir_.Put("train.prototxt",
                 "text: 'text' cell: 'lstm.cell' embedding: 3 size { name: 'H' value: 5 } batch: 2 steps: 4 "
                 "validation: 0.25 optimizer { learning_rate: 0.01 clip_norm: 1 }"));
    corpus_ = runner::ReadCorpus(job_.text, job_.config.validation());
    job_.model.vocabulary = corpus_.vocabulary.size();
  }
  runner::Trainer Make(const RunOptions& options) const { return {job_, corpus_, options}; }
  // What of an iteration can be recorded.
  RecordableOperators Recordable(const RunOptions& options) const {
    const runner::LanguageModel model = runner::MakeLanguageModel(job_.model, runner::ModelUse::kTraining);
    TrainingNet training = MakeTrainingNet(model.net, "loss", model.parameters, job_.config.optimizer());
    Workspace workspace;
    RunNetOnce(model.init_net, workspace);
    RunNetOnce(training.init_net, workspace);
    for (const char* blob : {"tokens", "targets"}) workspace.CreateBlob(blob);
    for (const CarriedState& state : model.states) {
      workspace.CreateBlob(state.initial);
      AddOp(&training.net, "Copy", {state.last}, {state.initial});
    }
    return Net::Create(training.net, workspace, options)->Recordable();
  }
  // What the trainer has come to, through a file.
  runner::SavedCheckpoint Save(const runner::Trainer& trainer) const {
    runner::Checkpoint checkpoint{.state = {}, .tensors = trainer.Tensors()};
    *checkpoint.state.mutable_config() = job_.config;
    *checkpoint.state.mutable_cell() = job_.model.cell.def;
    checkpoint.state.set_iteration(trainer.iteration());
    const std::string path = dir_.Path("checkpoint");
    WriteCheckpoint(checkpoint, path);
    return runner::ReadCheckpoint(path);
  }

 private:
  TempDir dir_;
  runner::TrainJob job_;
  runner::Corpus corpus_;
};

// A device that records plays a whole iteration of the character model as one. The host waits for it where it looks for
// bad values, and for the loss, the learning rate and the norm.
TEST_P(ManyRuns, OfTrainingGiveTheBitsOfLaunchedOnes) {
  constexpr int kIterations = 30;
  const SmallJob job;
  runner::Trainer played = job.Make(Options());
  runner::Trainer launched = job.Make(Options(kMaxOptLevel, "serial"));
  for (int i = 0; i < kIterations; ++i) {
    const PoisonCounts before = CountsOfPoisonDevice();
    const runner::IterationMetrics found = played.Iterate();
    const PoisonCounts after = CountsOfPoisonDevice();
    if (GetParam() == kPoisonDevice) {
      // Where the text begins anew, as it does every 18 iterations, states start anew in other memory.
      const int since = i % 18;
      EXPECT_EQ(after.played - before.played, since > 1 ? 1 : 0) << i;
      EXPECT_EQ(after.kernels == before.kernels && after.copies == before.copies, since > 2) << i;
      EXPECT_EQ(after.host_waits - before.host_waits, 4) << i;
    }
    const runner::IterationMetrics expected = launched.Iterate();
    EXPECT_EQ(found.loss, expected.loss) << i;
    EXPECT_EQ(found.gradient_norm, expected.gradient_norm) << i;
  }
  const NamedTensors found = played.Tensors(), expected = launched.Tensors();
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ExpectSame(found[i].second.To({}), expected[i].second.To({}), found[i].first);
  }
}

// Needs none.
TEST(IterationsOnAGpu, AreRecordedAsAWhole) {
  if (FindDeviceSpec(kCuda.kind) == nullptr) GTEST_SKIP() << "this program was built without cuda";
  EXPECT_EQ(SmallJob().Recordable(OnDevice({}, kCuda)).why_no_more, "");
}

TEST_P(ManyRuns, OfTrainingGoOnOnAnotherDevice) {
  constexpr int kIterations = 24, kCut = 10;
  const SmallJob job;
  const double tolerance = ToleranceOf(GetParam()).of_float * 10;  // that rounding grows to
  std::vector<double> losses;
  runner::Trainer cpu = job.Make({});
  for (int i = 0; i < kIterations; ++i) losses.push_back(cpu.Iterate().loss);
  for (const bool begins_there : {false, true}) {
    runner::Trainer first = job.Make(begins_there ? Options() : RunOptions{});
    for (int i = 0; i < kCut; ++i) EXPECT_NEAR(first.Iterate().loss, losses[i], tolerance) << i;
    runner::Trainer second = job.Make(begins_there ? RunOptions{} : Options());
    second.Restore(job.Save(first));
    for (int i = kCut; i < kIterations; ++i) EXPECT_NEAR(second.Iterate().loss, losses[i], tolerance) << i;
    EXPECT_NEAR(second.Validate(), cpu.Validate(), tolerance);
  }
}

}  // namespace
}  // namespace stepnet
