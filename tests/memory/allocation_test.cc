// What happens when the n-th allocation fails, and when all from the n-th on do: an exception that says so, or the same
// result without it; never a signal, a wait without end, or other results, then or later.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "failing_allocations.h"
#include "stepnet/cells/cell_expand.h"
#include "stepnet/cells/cell_reader.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/workspace.h"
#include "stepnet/io/file.h"
#include "stepnet/io/npy.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/model.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/training_net.h"
#include "stepnet/tests/core/source_path.h"
#include "stepnet/tests/core/temp_dir.h"
#include "stepnet/tests/executor/layers.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tools/rnn_runner/error_text.h"
#include "stepnet/tools/rnn_runner/run_stats.h"
#include "stepnet/tools/rnn_runner/trace.h"

namespace stepnet {
namespace {

// Work that is done again after it failed, from what the failure has left.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual std::string Run() = 0;  // gives the bits of all results
};
using MakeSubject = std::function<std::unique_ptr<Subject>()>;

std::string BitsOf(const Tensor& tensor) {
  std::string bits = tensor.Description();
  if (tensor.dtype() != DType::kString) {
    return bits.append(static_cast<const char*>(tensor.raw()), static_cast<size_t>(tensor.size_bytes()));
  }
  for (std::int64_t i = 0; i < tensor.size(); ++i) bits += tensor.data<std::string>()[i] + '\n';
  return bits;
}

// Something that leaves nothing behind.
class Computes : public Subject {
 public:
  explicit Computes(std::function<std::string()> compute) : compute_(std::move(compute)) {}
  std::string Run() override { return compute_(); }

 private:
  const std::function<std::string()> compute_;
};

MakeSubject Computation(const std::function<std::string()>& compute) {
  return [compute] { return std::make_unique<Computes>(compute); };
}

struct Nets {
  NetDef init_net = {};
  NetDef net;
};

// Makes nets, and a net of them, the first time; feeds and runs it.
class RunsNet : public Subject {
 public:
  RunsNet(std::function<Nets()> make, const NamedTensors& feeds, const RunOptions& options)
      : make_(std::move(make)), feeds_(feeds), options_(options) {}

  std::string Run() override {
    for (const auto& [name, tensor] : feeds_) workspace_.SetTensor(name, tensor.Clone());
    if (net_ == nullptr) {
      nets_ = make_();
      RunNetOnce(nets_.init_net, workspace_, options_);
      net_ = Net::Create(nets_.net, workspace_, options_);
    } else {
      RunNetOnce(nets_.init_net, workspace_, options_);
    }
    net_->SetRunCounter(0);
    net_->Run();
    std::string bits;
    for (const std::string& name : workspace_.LocalBlobs()) {
      if (workspace_.FindBlob(name)->HasTensor()) bits += name + " " + BitsOf(workspace_.GetTensor(name));
    }
    return bits;
  }

 private:
  const std::function<Nets()> make_;
  const NamedTensors& feeds_;
  const RunOptions options_;
  Workspace workspace_;
  Nets nets_;
  std::unique_ptr<Net> net_;
};

MakeSubject Runs(const std::function<Nets()>& make, const NamedTensors& feeds, const RunOptions& options) {
  return [=] { return std::make_unique<RunsNet>(make, feeds, options); };
}

MakeSubject AfterOneRun(const MakeSubject& make) {
  return [=] {
    std::unique_ptr<Subject> subject = make();
    subject->Run();
    return subject;
  };
}

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// Runs with failing allocations, then again without. False when none failed.
bool ExpectSurvives(const MakeSubject& make, std::int64_t first, std::int64_t last, const std::string& expected) {
  SCOPED_TRACE(StrCat("allocation ", first, last == first ? " fails" : " fails and all behind it"));
  const std::int64_t tensors = TensorMemory().current;
  std::int64_t count = 0;
  {
    const std::unique_ptr<Subject> subject = make();
    std::string result = expected;
    {
      FailingAllocations failing(first, last);
      try {
        result = subject->Run();
        failing.Stop();
      } catch (const Error& error) {
        failing.Stop();
        EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory) << error.what();
        EXPECT_GE(failing.count(), first) << error.what();
      } catch (const std::bad_alloc&) {
        failing.Stop();
      }
      count = failing.count();
    }
    EXPECT_TRUE(result == expected) << "not an exception, but another result";
    EXPECT_TRUE(subject->Run() == expected) << "another result afterwards";
  }
  EXPECT_EQ(TensorMemory().current, tensors) << "bytes of tensors are kept";
  return count >= first;
}

std::int64_t CountAllocations(const MakeSubject& make) {
  const std::unique_ptr<Subject> subject = make();
  FailingAllocations none(kNever, kNever);
  subject->Run();
  none.Stop();
  return none.count();
}

// What is made once for the process is made: it is not the subject.
std::string ResultOf(const MakeSubject& make) {
  const std::unique_ptr<Subject> subject = make();
  const std::string result = subject->Run();
  EXPECT_TRUE(subject->Run() == result) << "it differs from run to run";
  return result;
}

void ExpectSurvivesAll(const MakeSubject& make, std::int64_t min_allocations = 20) {
  const std::string expected = ResultOf(make);
  std::int64_t n = 1;
  while (!testing::Test::HasFailure() && ExpectSurvives(make, n, n, expected)) {
    ExpectSurvives(make, n, kNever, expected);
    ++n;
  }
  EXPECT_GT(n, min_allocations) << "of allocations";
}

void ExpectSurvivesSome(const MakeSubject& make, int samples, unsigned seed = 1) {
  const std::string expected = ResultOf(make);
  std::mt19937 random(seed);
  std::uniform_int_distribution<std::int64_t> any(1, CountAllocations(make));
  for (int i = 0; i < samples && !testing::Test::HasFailure(); ++i) {
    const std::int64_t n = any(random);
    ExpectSurvives(make, n, i % 2 == 0 ? n : kNever, expected);
  }
}

NetDef ParseNet(const std::string& text) {
  NetDef net;
  ParseMessageText(text, "the net", &net);
  return net;
}

const RunOptions kSerial = {.executor = "serial"};

TEST(FailingAllocations, EveryOneOfANetOfTwoOperators) {
  const std::string text =
      "name: 'two' external_input: 'x' op { type: 'FC' input: 'x' input: 'w' input: 'b' output: 'y' }"
      " op { type: 'Tanh' input: 'y' output: 'z' }";
  const NamedTensors feeds = {{"x", Random({3, 5}, 1, DType::kFloat)},
                              {"w", Random({4, 5}, 2, DType::kFloat)},
                              {"b", Random({4}, 3, DType::kFloat)}};
  ExpectSurvivesAll(Runs([=] { return Nets{.net = ParseNet(text)}; }, feeds, kSerial));
}

// Layers of recurrent networks with their gradients.
NamedTensors FeedsOfLayers(int layers) {
  Workspace workspace;
  FeedLayers(layers, /*steps=*/12, /*seed=*/1, workspace);
  NamedTensors feeds;
  for (const std::string& name : workspace.LocalBlobs()) feeds.emplace_back(name, workspace.GetTensor(name));
  return feeds;
}

using ExecutorAndLevel = std::tuple<std::string, int>;
class RecurrentAllocations : public testing::TestWithParam<ExecutorAndLevel> {
 protected:
  const RunOptions options_ = {.executor = std::get<0>(GetParam()), .threads = 2, .opt_level = std::get<1>(GetParam())};
};
INSTANTIATE_TEST_SUITE_P(Executors, RecurrentAllocations,
                         testing::Combine(testing::Values("serial", "parallel"), testing::Values(0, kMaxOptLevel)));

TEST_P(RecurrentAllocations, SomeOfARecurrentNetworkWithItsGradient) {
  const NamedTensors feeds = FeedsOfLayers(2);
  const NetDef net = Layers(2, /*training=*/true);
  ExpectSurvivesSome(Runs([=] { return Nets{.net = net}; }, feeds, options_), 150);
}

// The net is there and has run once.
TEST_P(RecurrentAllocations, EveryOneOfALaterRun) {
  const NamedTensors feeds = FeedsOfLayers(1);
  const NetDef net = Layers(1, /*training=*/true);
  const MakeSubject make = Runs([=] { return Nets{.net = net}; }, feeds, options_);
  ExpectSurvivesAll(AfterOneRun(make));
}

TEST(FailingAllocations, SomeOfAnIterationOfTraining) {
  const NamedTensors feeds = FeedsOfLayers(1);
  OptimizerDef optimizer;
  optimizer.set_clip_norm(1);
  const NetDef layers = Layers(1, /*training=*/false);
  const auto make = [=] {
    NetDef net = layers;
    OperatorDef* op = net.add_op();
    op->set_type("SumElements");
    op->add_input("l0_all");
    op->add_output("loss");
    const TrainingNet training = MakeTrainingNet(net, "loss", {"l0_w", "l0_u"}, optimizer);
    return Nets{.init_net = training.init_net, .net = training.net};
  };
  ExpectSurvivesSome(Runs(make, feeds, kSerial), 150);
}

TEST(FailingAllocations, SomeOfACellThatIsParsedAndExpanded) {
  const std::string text = ReadFile(SourcePath("examples/cells/lstm.cell"));
  ExpectSurvivesSome(Computation([=] {
                       const CellNet cell = ExpandCell(ParseCell(text, "lstm.cell"), {.training = true});
                       return cell.init_net.SerializeAsString() + cell.net.SerializeAsString();
                     }),
                     200);
}

TEST(FailingAllocations, SomeOfANetOnSeveralThreads) {
  std::string text = "type: 'dag' num_workers: 2";
  for (const char* begin : {"a", "b", "c"}) {
    for (int i = 0; i < 6; ++i) {
      const std::string from = i == 0 ? "x" : StrCat(begin, i - 1);
      text += StrCat(" op { type: 'Tanh' input: '", from, "' output: '", begin, i, "' }");
      text += StrCat(" op { type: 'Scale' input: '", from, "' output: '", begin, "_scaled", i, "' }");
    }
  }
  const NamedTensors feeds = {{"x", Random({3, 5}, 1)}};
  const MakeSubject make = Runs([=] { return Nets{.net = ParseNet(text)}; }, feeds, kSerial);
  ExpectSurvivesSome(make, 300);
  ExpectSurvivesAll(AfterOneRun(make));
}

// Nets that Caffe2 ran: cells of all kinds, with what surrounds them.
TEST(FailingAllocations, SomeOfNetsOfAllFamiliesOfOperators) {
  for (const char* name : {"att_lstm_dot_enclengths", "att_milstm_softcoverage", "layernorm_lstm_varlen", "gru_varlen",
                           "basic_rnn_relu", "dropout_multi2_is_test", "net_two_states_fc", "net_inplace_tanh",
                           "blob_fetcher_exec_on", "window_conv_w3", "net_uses_timestep", "lstm_unrolled"}) {
    SCOPED_TRACE(name);
    const std::string folder = SourcePath(StrCat("tests/golden/", name));
    const NamedTensors feeds = ReadTensors(folder + "/inputs.pb");
    ExpectSurvivesSome(Runs([=] { return Nets{.net = LoadModel(folder + "/net.pb").net}; }, feeds, {.threads = 2}), 40);
  }
}

TEST(FailingAllocations, SomeOfOperatorsThatTakeMemory) {
  const std::string text = R"(
      op { type: "GaussianFill" output: "g" arg { name: "shape" ints: 4 ints: 6 } device_option { random_seed: 1 } }
      op { type: "TopK" input: "x" output: "values" output: "indices" arg { name: "k" i: 2 } }
      op { type: "Transpose" input: "x" output: "xt" }
      op { type: "MatMul" input: "x" input: "xt" output: "product" }
      op { type: "Concat" input: "x" input: "g" output: "joined" output: "sizes" arg { name: "axis" i: 0 } }
      op { type: "Softmax" input: "joined" output: "p" }
      op { type: "ReduceSum" input: "p" output: "sum" arg { name: "axes" ints: 0 } }
      op { type: "Gather" input: "x" input: "rows" output: "picked" }
      op { type: "Tile" input: "picked" output: "tiled" arg { name: "tiles" i: 3 } arg { name: "axis" i: 1 } }
      op { type: "Shape" input: "tiled" output: "shape" }
      op { type: "Dropout" input: "tiled" output: "dropped" output: "mask" arg { name: "ratio" f: 0.5 } })";
  const NamedTensors feeds = {{"x", Random({4, 6}, 1, DType::kFloat)}, {"rows", Tensor::Of<std::int32_t>({2}, {3, 1})}};
  ExpectSurvivesSome(Runs([=] { return Nets{.net = ParseNet(text)}; }, feeds, {.threads = 2}), 600);
}

TEST(FailingAllocations, EveryOneOfReadingTensors) {
  const TempDir dir;
  const NamedTensors tensors = {{"a", Random({3, 5}, 1)},
                                {"b", Tensor::Of<std::string>({2}, {"short", std::string(99, 'l')})}};
  WriteTensors(tensors, dir.Path("tensors.pb"));
  WriteTensors(tensors, dir.Path("tensors.pbtxt"));
  WriteMiniDb(tensors, dir.Path("tensors.minidb"), /*elements_of_chunk=*/4);
  WriteTensors(tensors, dir.Path("tensors.npz"));
  WriteTensors({tensors[0]}, dir.Path("tensors.safetensors"));
  WriteNpy(tensors[0].second, dir.Path("a.npy"));
  for (const std::string name :
       {"tensors.pb", "tensors.pbtxt", "tensors.minidb", "tensors.npz", "tensors.safetensors"}) {
    SCOPED_TRACE(name);
    ExpectSurvivesAll(Computation([&] {
      std::string bits;
      for (const auto& [blob, tensor] : ReadTensors(dir.Path(name))) bits += blob + BitsOf(tensor);
      return bits;
    }));
  }
  ExpectSurvivesAll(Computation([&] { return BitsOf(ReadNpy(dir.Path("a.npy"))); }), /*min_allocations=*/5);
}

// Looks at a net that runs, which does not notice when there is no memory for that.
class Watches : public Subject {
 public:
  Watches() {
    for (const auto& [name, tensor] : FeedsOfLayers(1)) workspace_.SetTensor(name, tensor);
    net_ = Net::Create(Layers(1, /*training=*/true), workspace_, {.executor = "parallel", .threads = 2});
  }
  std::string Run() override {
    runner::Trace trace(dir_.Path("trace.json"));
    runner::RunStats stats;
    const Attached to_trace(*net_, &trace), to_stats(*net_, &stats);
    net_->Run();  // the trace is not written: the JSON library ends the process when its destructors find no memory
    std::string nets;
    for (const runner::NetStats& net : stats.Nets()) nets += StrCat(net.net, " ", net.runs, "\n");
    return nets + BitsOf(workspace_.GetTensor("l0_all"));
  }

 private:
  struct Attached {
    Attached(Net& net, Observer* observer) : net(net), observer(observer) { net.AttachObserver(observer); }
    ~Attached() { net.DetachObserver(observer); }
    Net& net;
    Observer* observer;
  };
  const TempDir dir_;
  Workspace workspace_;
  std::unique_ptr<Net> net_;
};

TEST(FailingAllocations, SomeOfARunThatIsWatched) {
  ExpectSurvivesSome([] { return std::make_unique<Watches>(); }, 200);
}

TEST(FailingAllocations, EveryOneOfPrintingAnError) {
  bool has_failed = true;
  for (std::int64_t n = 1; has_failed; ++n) {
    testing::internal::CaptureStderr();
    try {
      throw Error(ErrorCode::kFailed, "a message too long to be kept in place");
    } catch (...) {
      FailingAllocations failing(n, kNever);
      runner::PrintCurrentError("rnn_runner run");
      failing.Stop();
      has_failed = failing.count() >= n;
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              has_failed ? "rnn_runner: out of memory: the system has no more memory to give\n"
                         : "rnn_runner run: operator failed: a message too long to be kept in place\n");
  }
}

// Libraries that make something once, in a process that has made nothing yet and may not grow any more.
TEST(RefusedMemoryDeathTest, WhatLibrariesMakeOnceIsMadeLater) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run_with_little = [](std::int64_t more) {
    const NamedTensors feeds = {{"x", Random({20, 30}, 1, DType::kFloat)},
                                {"w", Random({40, 30}, 2, DType::kFloat)},
                                {"b", Random({40}, 3, DType::kFloat)}};
    RunsNet subject(
        [] { return Nets{.net = ParseNet("op { type: 'FC' input: 'x' input: 'w' input: 'b' output: 'y' }")}; }, feeds,
        kSerial);
    std::int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit addresses = {};
    getrlimit(RLIMIT_AS, &addresses);
    const rlim_t before = addresses.rlim_cur;
    addresses.rlim_cur = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + more);
    setrlimit(RLIMIT_AS, &addresses);
    try {
      subject.Run();
    } catch (const std::exception&) {
    }
    addresses.rlim_cur = before;
    setrlimit(RLIMIT_AS, &addresses);
    _exit(subject.Run().empty() ? 1 : 0);
  };
  for (const std::int64_t kilobytes : {0, 100, 200, 300, 400, 600, 800, 1000, 2000, 4500, 8000, 16000, 24000, 30000}) {
    EXPECT_EXIT(run_with_little(kilobytes << 10), testing::ExitedWithCode(0), "") << kilobytes << " KB";
  }
}

}  // namespace
}  // namespace stepnet
