// Nets of both types.
#include "stepnet/nets/net.h"

#include <atomic>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <thread>

#include "stepnet/io/proto_io.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/operators/op_test.h"
#include "stepnet/tests/poison_device/poison_device.h"

namespace stepnet {
namespace {

// y = 3 x + tag of the operator, in whole numbers: order matters, and results are exact.
const Registration mix = Operator("test.Mix")
                             .Inputs("xs", "int64, one shape")
                             .Output("y", "as the inputs")
                             .Arg("tag", 0, "")
                             .Shapes(SameAsInput(0))
                             .OneToOneInPlace()
                             .Cpu([](const OperatorCall& op) -> RunFn {
                               return [tag = op.Int("tag")](const OpRun& run) {
                                 std::uint64_t sum = static_cast<std::uint64_t>(tag);
                                 for (int i = 0; i < run.num_inputs(); ++i) {
                                   sum = sum * 3 + static_cast<std::uint64_t>(*run.In(i).As<std::int64_t>());
                                 }
                                 *run.Out(0).As<std::int64_t>() = static_cast<std::int64_t>(sum);
                               };
                             });

std::atomic<bool> failing{false};
const Registration fail = Operator("test.Fail")
                              .Input("x", "int64")
                              .Output("y", "as x")
                              .Arg("how", "runtime_error", "")
                              .Shapes(SameAsInput(0))
                              .InPlace({{0, 0}})
                              .Cpu([](const OperatorCall& op) -> RunFn {
                                return [how = op.String("how")](const OpRun& run) {
                                  if (failing && how == "runtime_error") throw std::runtime_error("made to fail");
                                  if (failing && how == "bad_alloc") throw std::bad_alloc();
                                  if (failing && how == "Error") throw Error(ErrorCode::kShapeMismatch, "made to fail");
                                  if (failing) throw 3;
                                  CopyElements(run.In(0), run.Out(0));
                                };
                              });

const Registration draw =
    Operator("test.Random")
        .Output("y", "int64 []")
        .Shapes([](const ShapeQuery&) { return std::vector<TensorInfo>{{.dtype = DType::kInt64, .shape = Shape()}}; })
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [op](const OpRun& run) { *run.Out(0).As<std::int64_t>() = run.Random(op).Word(0); };
        });

std::atomic<int> inside{0};
std::atomic<bool> overlapped{false};
const Registration alone = Operator("test.Alone")
                               .OptionalOutput("y", "")
                               .Cpu({.make = [](const OperatorCall&) -> RunFn {
                                       return [](const OpRun&) {
                                         if (++inside != 1) overlapped = true;
                                         std::this_thread::yield();
                                         --inside;
                                       };
                                     },
                                     .takes_blobs = true});

std::atomic<int> met{0};
const Registration meet = Operator("test.MeetAnother")
                              .Output("y", "")
                              .Cpu({.make = [](const OperatorCall&) -> RunFn {
                                      return [](const OpRun&) {
                                        ++met;
                                        while (met < 2) std::this_thread::yield();
                                      };
                                    },
                                    .takes_blobs = true});

NetDef NetOf(const std::string& text) {
  NetDef net;
  ParseMessageText(text, "test", &net);
  return net;
}

std::int64_t Value(const Workspace& workspace, const std::string& blob) {
  return *workspace.GetTensor(blob).data<std::int64_t>();
}

// Operators that read and write few blobs at random, so that every kind of order matters.
NetDef RandomNet(std::mt19937& rng) {
  NetDef net;
  const auto blob = [&] { return StrCat("b", rng() % 6); };
  for (int i = 0; i < 30; ++i) {
    OperatorDef* op = net.add_op();
    op->set_type("test.Mix");
    const int inputs = static_cast<int>(1 + rng() % 3);
    for (int k = 0; k < inputs; ++k) op->add_input(blob());
    // In place on input 0, or a blob that it does not read.
    std::string output = blob();
    while (std::ranges::count(op->input(), output) > 0) output = StrCat("b", rng() % 20);
    op->add_output(rng() % 4 == 0 ? op->input(0) : output);
    Argument* tag = op->add_arg();
    tag->set_name("tag");
    tag->set_i(i);
  }
  return net;
}

TEST(Net, DagsGiveWhatProgramOrderGives) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 rng(seed);
    NetDef def = RandomNet(rng);
    std::vector<std::vector<std::int64_t>> results;
    for (const char* type : {"simple", "dag"}) {
      def.set_type(type);
      def.set_num_workers(3);
      Workspace workspace;
      for (int i = 0; i < 20; ++i) workspace.SetTensor(StrCat("b", i), Tensor::Of<std::int64_t>({}, {i}));
      const std::unique_ptr<Net> net = Net::Create(def, workspace);
      std::vector<std::int64_t>& values = results.emplace_back();
      for (int run = 0; run < 3; ++run) {
        net->Run();
        for (const std::string& blob : workspace.LocalBlobs()) values.push_back(Value(workspace, blob));
      }
    }
    EXPECT_EQ(results[0], results[1]) << "seed " << seed << "\n" << PrintMessageText(def);
  }
}

TEST(Net, DagsWaitForControlInputs) {
  NetDef def = NetOf("type: 'dag' num_workers: 4 op { type: 'test.Alone' output: 'y0' }");
  for (int i = 1; i < 20; ++i) {
    OperatorDef* op = def.add_op();
    op->set_type("test.Alone");
    op->add_output(StrCat("y", i));
    op->add_control_input(StrCat("y", i - 1));
  }
  Workspace workspace;
  overlapped = false;
  Net::Create(def, workspace)->Run();
  EXPECT_FALSE(overlapped);
}

TEST(Net, DagsRunOperatorsAtTheSameTime) {
  met = 0;
  Workspace workspace;
  RunNetOnce(
      NetOf("type: 'dag' num_workers: 2 op { type: 'test.MeetAnother' output: 'a' } op { type: 'test.MeetAnother' "
            "output: 'b' }"),
      workspace);
  EXPECT_EQ(met, 2);
}

constexpr const char* kFails =
    "name: 'n' num_workers: 2 op { type: 'test.Mix' input: 'x' output: 'a' } op { type: 'test.Fail' input: 'a' output: "
    "'b' arg { name: 'how' s: 'HOW' } } op { type: 'test.Mix' input: 'b' output: 'c' } ";

NetDef FailingNet(const std::string& how, const std::string& type) {
  std::string text = kFails;
  text.replace(text.find("HOW"), 3, how);
  return NetOf(text + "type: '" + type + "'");
}

// F1, F2, F4: whatever an operator throws fails the run and reaches the caller with its place and its text.
// F3, F5: nothing is running any more, and the next run works.
TEST(Net, FailuresAreNamedAndTheNextRunWorks) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"runtime_error", "operator failed: made to fail"},
      {"bad_alloc", "out of memory: the system has no more memory to give"},
      {"Error", "shape mismatch: made to fail"},
      {"number", "operator failed: an exception that is no std::exception"}};
  for (const char* type : {"simple", "dag"}) {
    for (const auto& [how, message] : cases) {
      Workspace workspace;
      workspace.SetTensor("x", Tensor::Of<std::int64_t>({}, {1}));
      const std::unique_ptr<Net> net = Net::Create(FailingNet(how, type), workspace);
      failing = true;
      for (int run = 0; run < 2; ++run) {
        ExpectError([&] { net->Run(); }, message + "\n  at op 1 `b = test.Fail(a)` with a int64 []\n  in net \"n\"");
        EXPECT_FALSE(workspace.GetBlob("c").HasTensor());
      }
      failing = false;
      net->Run();
      EXPECT_EQ(Value(workspace, "c"), 1);
    }
  }
}

TEST(Net, ADagThatFailsWaitsForWhatIsRunning) {
  // Many independent operators, one of which fails; those that began have ended when Run returns.
  NetDef def = NetOf("type: 'dag' num_workers: 4 op { type: 'test.Fail' input: 'x' output: 'z' }");
  for (int i = 0; i < 50; ++i) {
    OperatorDef* op = def.add_op();
    op->set_type("test.Mix");
    op->add_input("x");
    op->add_output(StrCat("y", i));
  }
  Workspace workspace;
  workspace.SetTensor("x", Tensor::Of<std::int64_t>({}, {1}));
  const std::unique_ptr<Net> net = Net::Create(def, workspace);
  for (int run = 0; run < 20; ++run) {
    failing = true;
    EXPECT_THROW(net->Run(), Error);
    failing = false;
    net->Run();
    EXPECT_EQ(Value(workspace, "y49"), 1);
  }
}

class Recorder : public Observer {
 public:
  void Start(const RunEvent& event) override { Record("start", event, 1); }
  void Stop(const RunEvent& event) override { Record("stop", event, -1); }

  std::vector<std::string> events;
  int open = 0;

 private:
  void Record(const char* what, const RunEvent& event, int change) {
    const std::lock_guard lock(mutex_);
    open += change;
    events.push_back(event.op_index < 0 ? StrCat(what, " ", *event.net)
                                        : StrCat(what, " ", event.op_index, " ", *event.op_type));
  }
  std::mutex mutex_;
};

TEST(Net, TellsObserversOfEveryOperator) {
  Workspace workspace;
  workspace.SetTensor("x", Tensor::Of<std::int64_t>({}, {1}));
  const std::unique_ptr<Net> net = Net::Create(FailingNet("Error", "simple"), workspace);
  Recorder recorder;
  net->AttachObserver(&recorder);
  net->Run();
  EXPECT_EQ(recorder.events,
            (std::vector<std::string>{"start n", "start 0 test.Mix", "stop 0 test.Mix", "start 1 test.Fail",
                                      "stop 1 test.Fail", "start 2 test.Mix", "stop 2 test.Mix", "stop n"}));
  net->DetachObserver(&recorder);
  net->Run();
  EXPECT_EQ(recorder.events.size(), 8u);
}

// M9: Start and Stop are balanced, also on failure.
TEST(Net, ObserversAreBalancedOnFailure) {
  for (const char* type : {"simple", "dag"}) {
    Workspace workspace;
    workspace.SetTensor("x", Tensor::Of<std::int64_t>({}, {1}));
    const std::unique_ptr<Net> net = Net::Create(FailingNet("Error", type), workspace);
    Recorder recorder;
    net->AttachObserver(&recorder);
    failing = true;
    EXPECT_THROW(net->Run(), Error);
    failing = false;
    EXPECT_EQ(recorder.open, 0);
    EXPECT_EQ(recorder.events, (std::vector<std::string>{"start n", "start 0 test.Mix", "stop 0 test.Mix",
                                                         "start 1 test.Fail", "stop 1 test.Fail", "stop n"}));
  }
}

TEST(Net, RunsFromSeveralThreadsOneByOne) {
  Workspace workspace;
  overlapped = false;
  const std::unique_ptr<Net> net = Net::Create(NetOf("op { type: 'test.Alone' }"), workspace);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i) net->Run();
      });
    }
  }
  EXPECT_FALSE(overlapped);
}

TEST(Net, RandomNumbersFollowSeedAndRun) {
  const auto numbers = [](const std::string& text, std::uint64_t seed, std::uint64_t first_run = 0) {
    Workspace workspace;
    const std::unique_ptr<Net> net = Net::Create(NetOf(text), workspace, {.seed = seed});
    net->SetRunCounter(first_run);
    std::vector<std::int64_t> values;
    for (int run = 0; run < 2; ++run) {
      net->Run();
      values.push_back(Value(workspace, "a"));
      values.push_back(Value(workspace, "b"));
    }
    return values;
  };
  const std::string ops = "op { type: 'test.Random' output: 'a' } op { type: 'test.Random' output: 'b' } ";
  const std::vector<std::int64_t> values = numbers(ops, 1);
  EXPECT_EQ(std::set<std::int64_t>(values.begin(), values.end()).size(), 4u);
  EXPECT_EQ(numbers(ops, 1), values);
  EXPECT_EQ(numbers(ops + "type: 'dag'", 1), values);
  EXPECT_NE(numbers(ops, 2), values);
  EXPECT_EQ(numbers(ops, 1, 1)[0], values[2]);
  // The net's device_option reaches operators that have none, and goes before the run's seed.
  EXPECT_EQ(numbers(ops + "device_option { random_seed: 1 }", 5), values);
}

TEST(Net, KeepsBlobsOfTheWorkspace) {
  Workspace outer;
  outer.SetTensor("x", Tensor::Of<std::int64_t>({}, {1}));
  Workspace inner(&outer);
  RunNetOnce(NetOf("op { type: 'test.Mix' input: 'x' output: 'y' } op { type: 'test.Mix' input: 'x' output: 'x' arg { "
                   "name: 'tag' i: 1 } }"),
             inner);
  EXPECT_TRUE(inner.HasBlob("y"));
  EXPECT_FALSE(outer.HasBlob("y"));
  EXPECT_EQ(Value(outer, "x"), 4);
}

TEST(Net, SaysWhichInputIsMissing) {
  Workspace workspace;
  ExpectError([&] { RunNetOnce(NetOf("name: 'n' op { type: 'test.Mix' input: 'x' output: 'y' }"), workspace); },
              "type mismatch: blob \"x\" holds nothing, a tensor is needed; test.Mix reads it as xs: int64, one "
              "shape\n"
              "  at op 0 `y = test.Mix(x)` with x nothing\n"
              "  in net \"n\"");
}

TEST(CanonicalNetType, MapsCaffe2sTypesToOurs) {
  for (const char* type : {"", "simple", "async_simple", "rnn", "singlethread_async"}) {
    EXPECT_EQ(CanonicalNetType(type), "simple") << type;
  }
  for (const char* type :
       {"dag", "async_dag", "async_scheduling", "async_polling", "prof_dag", "htrace_dag", "htrace_async_dag"}) {
    EXPECT_EQ(CanonicalNetType(type), "dag") << type;
  }
  ExpectError([] { CanonicalNetType("opengl"); }, "invalid net: no net type \"opengl\"");
}

// An option that were ignored would be a defect.
TEST(Net, OnTheCpuComputesInFloat32) {
  Workspace workspace;
  ExpectError([&] { Net::Create(NetDef(), workspace, {.math = Math::kTf32}); },
              "…products in tf32 are a GPU's; the CPU computes them in float32");
  RunOptions on_device = OnDevice({}, kPoisonDevice);
  on_device.math = Math::kTf32;
  EXPECT_EQ(OnDevice(on_device, kPoisonDevice).math, Math::kTf32);
  EXPECT_EQ(OnDevice(on_device, {}).math, Math::kFloat32) << "operators of a GPU's net that run on the CPU";
}

}  // namespace
}  // namespace stepnet
