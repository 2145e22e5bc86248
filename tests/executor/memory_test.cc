// Memory and sharing: rules M1, M4-M6 and M10 of docs/caffe2_compatibility.md.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>
#include <random>
#include <thread>

#include "lstm_case.h"
#include "stepnet/executor/recurrent_record.h"
#include "stepnet/tests/core/sanitized.h"

// Every allocation of the test program is counted. Sanitizers bring their own.
#if !STEPNET_IS_SANITIZED
#define STEPNET_COUNTS_ALLOCATIONS
namespace {

std::atomic<std::int64_t> num_allocations{0};

void* Counted(std::size_t size, std::size_t alignment) {
  ++num_allocations;
  void* data = nullptr;
  if (posix_memalign(&data, alignment < sizeof(void*) ? sizeof(void*) : alignment, size == 0 ? 1 : size) != 0) {
    throw std::bad_alloc();
  }
  return data;
}

// Out of line: GCC takes `free` of what `new` gave for a mistake.
[[gnu::noinline]] void Release(void* data) { std::free(data); }

}  // namespace

void* operator new(std::size_t size) { return Counted(size, alignof(std::max_align_t)); }
void* operator new[](std::size_t size) { return Counted(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return Counted(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return Counted(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* data) noexcept { Release(data); }
void operator delete[](void* data) noexcept { Release(data); }
void operator delete(void* data, std::size_t) noexcept { Release(data); }
void operator delete[](void* data, std::size_t) noexcept { Release(data); }
void operator delete(void* data, std::align_val_t) noexcept { Release(data); }
void operator delete[](void* data, std::align_val_t) noexcept { Release(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept { Release(data); }
void operator delete[](void* data, std::size_t, std::align_val_t) noexcept { Release(data); }
#endif

namespace stepnet {
namespace {

#ifdef STEPNET_COUNTS_ALLOCATIONS
// The least of some runs: what a thread needs is made when it first finds something to do, in whichever run that is.
std::int64_t AllocationsOfARun(RecurrentCase& net, std::int64_t steps) {
  FeedLstm(net, steps, 2, 8);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int run = 0; run < 5; ++run) {
    const std::int64_t before = num_allocations;
    net.Run();
    least = std::min<std::int64_t>(least, num_allocations - before);
  }
  return least;
}

TEST(Memory, NothingIsAllocatedInAStep) {
  for (const bool with_gradient : {false, true}) {
    RecurrentCase net = LstmCase(with_gradient);
    const std::int64_t few = AllocationsOfARun(net, 1000);  // as many as threads come for
    const std::int64_t many = AllocationsOfARun(net, 3000);
    EXPECT_EQ(few, many) << "a run of 1000 steps allocates as often as one of 3000";
  }
}

TEST(Memory, BuildingAPlanCostsTheSameForAnyT) {
  // The least of some: caches of the process are bounded, and make again now and then what they have dropped.
  const auto allocations = [](std::int64_t steps) {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (int k = 0; k < 4; ++k) {
      RecurrentCase net = LstmCase(true);
      FeedLstm(net, steps, 2, 8);
      const std::int64_t before = num_allocations;
      // On one thread: two may both make what they need at the same time.
      Net::Create(net.Build(), net.workspace(), {.threads = 1})->Run();
      least = std::min<std::int64_t>(least, num_allocations - before);
    }
    return least;
  };
  const std::int64_t of_few = allocations(1000), of_many = allocations(10000);
  EXPECT_EQ(of_few, of_many);
}

TEST(Memory, BatchesOfTwoSizesThatTakeTurnsAllocateNoMoreThanOne) {
  for (const bool with_gradient : {false, true}) {
    RecurrentCase net = LstmCase(with_gradient);
    const auto allocations = [&](std::int64_t batch) {
      FeedLstm(net, 5, batch, 8);
      const std::int64_t before = num_allocations;
      net.Run();
      return num_allocations - before;
    };
    for (const std::int64_t batch : {6, 2, 6, 6, 2, 2}) allocations(batch);
    const std::int64_t in_turns = allocations(6), again = allocations(6);
    EXPECT_EQ(in_turns, again) << "with gradient: " << with_gradient;
  }
}
#endif

TEST(Memory, ShapesThatTakeTurnsNeedAtMostTwiceTheMemoryOfTheLargest) {
  RecurrentCase net = LstmCase(true);
  const auto memory_after = [&](std::int64_t batch) {
    FeedLstm(net, 100, batch, 32);
    net.Run();
    return TensorMemory().current;
  };
  const std::int64_t before = TensorMemory().current;
  const std::int64_t largest = memory_after(8) - before;
  for (int turn = 0; turn < 3; ++turn) {
    for (const std::int64_t batch : {8, 7, 6, 5, 4, 3}) EXPECT_LE(memory_after(batch) - before, 2 * largest);
  }
}

std::int64_t PeakOfARun(bool with_gradient, std::int64_t steps) {
  RecurrentCase net = LstmCase(with_gradient);
  FeedLstm(net, steps, 2, 64);
  ResetPeakTensorMemory();
  const std::int64_t before = TensorMemory().current;
  net.Run();
  return TensorMemory().peak - before;
}

TEST(Memory, M1ForwardOnlyKeepsNoTemporaries) {
  constexpr std::int64_t kBatch = 2, kSize = 64, kFloat = 4;
  const std::int64_t states = 2 * kBatch * kSize * kFloat;  // h and c, of one step
  const std::int64_t timestep = 4;
  const std::int64_t grows = PeakOfARun(false, 200) - PeakOfARun(false, 100);
  EXPECT_EQ(grows, 100 * (states + timestep));
}

TEST(Memory, M1TrainingKeepsWhatTheBackwardPassReads) {
  constexpr std::int64_t kBatch = 2, kSize = 64, kFloat = 4;
  const std::int64_t row = kBatch * kSize * kFloat;
  const std::int64_t timesteps = 2 * 4;
  // States and their gradients, the gates, the gradient of x.
  const std::int64_t grows = PeakOfARun(true, 200) - PeakOfARun(true, 100);
  EXPECT_EQ(grows, 100 * (4 * row + 4 * row + 4 * row + timesteps));
}

TEST(Memory, StaysFlatOverManyRunsOfAnyLength) {
  RecurrentCase net = LstmCase(true);
  std::mt19937 rng(7);
  std::int64_t peak_early = 0;
  for (int run = 0; run < FewerIfSanitized(10000); ++run) {
    FeedLstm(net, static_cast<std::int64_t>(rng() % 40), 2, 4);
    net.Run();
    if (run == 200) {
      ResetPeakTensorMemory();
      peak_early = TensorMemory().current;
    }
  }
  // Feeding and running the longest sequence takes a few hundred KB at most; leaking a run would take far more.
  EXPECT_LT(TensorMemory().peak, peak_early + 400'000);
}

TEST(Memory, ARunLetsGoOfWhatItReadsAndGives) {
  RecurrentCase net = LstmCase(true);
  FeedLstm(net, 5, 2, 8);
  net.Run();
  for (const char* blob :
       {"x", "w", "b", "lengths", "h_all_grad", "x_grad", "w_grad", "b_grad", "h0_grad", "c0_grad"}) {
    EXPECT_TRUE(net.workspace().GetBlob(blob).GetTensor().OwnsStorageAlone()) << blob;
  }
}

TEST(Memory, TheNextRunUsesTheMemoryOfStatesAgain) {
  RecurrentCase net = LstmCase(true);
  FeedLstm(net, 5, 2, 8);
  net.Run();
  std::vector<const void*> before;
  const std::vector<std::string> blobs = {"h", "c", "h_grad", "c_grad"};
  for (const std::string& blob : blobs) before.push_back(net.Get(blob).raw());
  net.Run();
  for (size_t i = 0; i < blobs.size(); ++i) EXPECT_EQ(net.Get(blobs[i]).raw(), before[i]) << blobs[i];
}

TEST(Memory, M4NetsInSeveralThreadsShareParametersSafely) {
  Workspace shared;
  RecurrentCase reference = LstmCase(true);
  FeedLstm(reference, 5, 2, 8);
  reference.Run();
  for (const char* blob : {"x", "h0", "c0", "w", "b", "lengths", "h_all_grad"}) {
    shared.SetTensor(blob, reference.Get(blob));
  }
  const NetDef def = LstmCase(true).Build();
  std::vector<std::thread> threads;
  std::atomic<int> equal{0};
  for (int k = 0; k < 4; ++k) {
    threads.emplace_back([&] {
      Workspace own(&shared);
      const std::unique_ptr<Net> net = Net::Create(def, own);
      for (int run = 0; run < 20; ++run) {
        net->Run();
        if (Values(own.GetTensor("w_grad")) == Values(reference.Get("w_grad"))) ++equal;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, 80);
}

TEST(Memory, M5OperatorsThatNameTheSameStateAreKeptApart) {
  RecurrentCase first = LstmCase(true);
  FeedLstm(first, 5, 2, 8);
  NetDef def = first.Build();
  NetDef both;
  both.set_name("both");
  *both.add_op() = def.op(0);
  *both.add_op() = def.op(0);  // states h and c again, from another input
  both.mutable_op(1)->set_input(0, "other_x");
  for (std::string& output : *both.mutable_op(1)->mutable_output()) output = "other_" + output;
  for (Argument& argument : *both.mutable_op(1)->mutable_arg()) {
    if (argument.name() == "alias_dst") {
      for (std::string& name : *argument.mutable_strings()) name = "other_" + name;
    }
    if (argument.name() == "link_external") argument.set_strings(0, "other_x");
  }
  *both.add_op() = def.op(1);  // the gradient of the first
  first.Feed("other_x", Random({7, 2, 32}, 77, DType::kFloat));
  RunNetOnce(both, first.workspace());
  RecurrentCase alone = LstmCase(true);
  FeedLstm(alone, 5, 2, 8);
  alone.Run();
  for (const char* blob : {"h_all", "x_grad", "w_grad"}) ExpectSame(first.Get(blob), alone.Get(blob), blob);
}

TEST(Memory, M6TheRecordOutlivesWhatMadeIt) {
  RecurrentCase net = LstmCase(true);
  FeedLstm(net, 5, 2, 8);
  const NetDef def = net.Build();
  NetDef forward = def, backward = def;
  forward.mutable_op()->DeleteSubrange(1, 1);
  backward.mutable_op()->DeleteSubrange(0, 1);
  RunNetOnce(forward, net.workspace());  // the operator is gone after this
  RunNetOnce(backward, net.workspace());
  RecurrentCase alone = LstmCase(true);
  FeedLstm(alone, 5, 2, 8);
  alone.Run();
  ExpectSame(net.Get("w_grad"), alone.Get("w_grad"), "w_grad");
}

TEST(Memory, M6ARecordThatIsHeldIsNotOverwritten) {
  RecurrentCase net = LstmCase(true);
  FeedLstm(net, 5, 2, 8);
  NetDef forward = net.Build(), backward = net.Build();
  forward.mutable_op()->DeleteSubrange(1, 1);
  backward.mutable_op()->DeleteSubrange(0, 1);
  const std::unique_ptr<Net> forward_net = Net::Create(forward, net.workspace());
  forward_net->Run();
  const auto held = net.workspace().GetBlob("record").GetObject<RecurrentRecord>();
  const Tensor h_all = net.Get("h_all"), c_last = net.Get("c_last"), x = net.Get("x");
  net.Feed("x", Random({5, 2, 32}, 99, DType::kFloat));
  forward_net->Run();
  // The gradient of the first run, from its record.
  net.workspace().GetBlob("record").SetObject<RecurrentRecord>(held);
  net.Feed("x", x).Feed("h_all", h_all).Feed("c_last", c_last);
  RunNetOnce(backward, net.workspace());
  RecurrentCase alone = LstmCase(true);
  FeedLstm(alone, 5, 2, 8);
  alone.Run();
  ExpectSame(net.Get("w_grad"), alone.Get("w_grad"), "w_grad");
}

// A net that runs forward, and one that computes the gradient of its last run, in one workspace.
class ForwardAndBack : public testing::Test {
 protected:
  void SetUp() override {
    FeedLstm(net_, 100, 2, 64);
    NetDef forward = net_.Build(), backward = net_.Build();
    forward.mutable_op()->DeleteSubrange(1, 1);
    backward.mutable_op()->DeleteSubrange(0, 1);
    const RunOptions options = {.disabled_passes = {"fuse_regions"}};  // so that steps back have temporaries
    forward_ = Net::Create(forward, net_.workspace(), options);
    backward_ = Net::Create(backward, net_.workspace(), options);
    forward_->Run();
  }
  std::shared_ptr<const RecurrentRecord> Record() {
    return net_.workspace().GetBlob("record").GetObject<RecurrentRecord>();
  }

  RecurrentCase net_ = LstmCase(true);
  std::unique_ptr<Net> forward_, backward_;
};

TEST_F(ForwardAndBack, TheRunBackHasItsTemporariesWhereTheRunForwardHadThem) {
  const std::int64_t before = Record()->MemoryBytes();
  backward_->Run();
  EXPECT_GT(Record()->MemoryBytes(), before);
}

TEST_F(ForwardAndBack, AGradientBesideAnotherOfTheSameRunHasMemoryOfItsOwn) {
  const std::shared_ptr<const RecurrentRecord> record = Record();
  const std::int64_t before = record->MemoryBytes();
  ASSERT_FALSE(record->is_lent.test_and_set());
  backward_->Run();
  EXPECT_EQ(record->MemoryBytes(), before);
  EXPECT_TRUE(record->is_lent.test());
  const Tensor gradient = net_.Get("w_grad").Clone();
  record->is_lent.clear();
  backward_->Run();
  EXPECT_GT(record->MemoryBytes(), before);
  EXPECT_FALSE(record->is_lent.test());
  ExpectSame(net_.Get("w_grad"), gradient, "w_grad");
}

TEST_F(ForwardAndBack, ARunBackThatFailsGivesTheMemoryBack) {
  backward_->Run();
  const std::int64_t bytes = Record()->MemoryBytes();
  const Tensor gradient = net_.Get("h_all_grad");
  net_.Feed("h_all_grad", Random({3, 2, 64}, 1, DType::kFloat));
  ExpectError([&] { backward_->Run(); }, "…shape mismatch");
  net_.Feed("h_all_grad", gradient);
  EXPECT_FALSE(Record()->is_lent.test());
  forward_->Run();
  backward_->Run();
  EXPECT_EQ(Record()->MemoryBytes(), bytes);
}

TEST(Memory, M6RecordsThatWereHeldAreFreed) {
  RecurrentCase net = LstmCase(false);
  FeedLstm(net, 100, 2, 64);
  net.Run();
  const std::int64_t with_one = TensorMemory().current;
  std::vector<std::shared_ptr<const RecurrentRecord>> held;
  for (int run = 0; run < 10; ++run) {
    held.push_back(net.workspace().GetBlob("record").GetObject<RecurrentRecord>());
    net.Run();
  }
  const std::int64_t record = (TensorMemory().current - with_one) / 10;
  EXPECT_GE(record, 2 * 100 * 2 * 64 * 4);  // h and c
  held.clear();
  EXPECT_LE(TensorMemory().current, with_one + 3 * record) << "the operator keeps four";
}

TEST(Memory, RefusesAnInputThatChangedSinceTheForwardRun) {
  RecurrentCase net = LstmCase(true);
  FeedLstm(net, 5, 2, 8);
  NetDef forward = net.Build(), backward = net.Build();
  forward.mutable_op()->DeleteSubrange(1, 1);
  backward.mutable_op()->DeleteSubrange(0, 1);
  RunNetOnce(forward, net.workspace());
  net.Feed("x", Random({4, 2, 32}, 99, DType::kFloat));
  ExpectError([&] { RunNetOnce(backward, net.workspace()); },
              "…shape mismatch: \"x\" is float [4, 2, 32]; in the forward run it was float [5, 2, 32]");
}

TEST(Memory, M10TheFetcherCopiesWhatEachStepHad) {
  RecurrentCase net = LstmCase(false);
  NetDef def = net.Build();
  *def.add_op() = ParseOp("names = RecurrentNetworkBlobFetcher(record)");
  const std::unique_ptr<Net> made = Net::Create(def, net.workspace());
  for (const std::int64_t steps : {5, 1, 3}) {
    FeedLstm(net, steps, 2, 8);
    made->Run();
    const Tensor h_all = net.Get("h_all");
    for (std::int64_t t = 0; t < steps; ++t) {
      ExpectSame(net.Get(StrCat("rnn_h_next", t)), h_all.Slice(t, t + 1).Clone(), "h_next");
      EXPECT_EQ(net.Get(StrCat("rnn_gates", t)).shape(), Shape({1, 2, 32}));
    }
    EXPECT_EQ(net.Get("names").size(), steps * 7);  // x_t, h_prev, h_next, c_prev, c_next, gates, timestep
  }
}

// What the plan computes once for all steps is of each step, captured tensors are of none.
TEST(Memory, M10TheFetcherCopiesWhatIsComputedOnce) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Step("v = Tanh(w)");
  net.Step("s = Add(h_prev, v)").Step("h_next = Add(s, x_t)").Output("all", "h", 1);
  net.Feed("x", Column({1, 2})).Feed("h0", One(0)).Feed("w", One(0.5));
  NetDef def = net.Build();
  *def.add_op() = ParseOp("names = RecurrentNetworkBlobFetcher(record)");
  RunNetOnce(def, net.workspace());
  for (const char* fetched : {"rnn_v0", "rnn_v1"}) {
    EXPECT_NEAR(Values(net.Get(fetched)).at(0), std::tanh(0.5), 1e-15) << fetched;
  }
  EXPECT_EQ(net.workspace().FindBlob("rnn_w0"), nullptr);
}

TEST(Memory, M10WhatWasFetchedKeepsItsValues) {
  RecurrentCase net = LstmCase(false);
  FeedLstm(net, 3, 2, 8);
  NetDef def = net.Build();
  *def.add_op() = ParseOp("names = RecurrentNetworkBlobFetcher(record)");
  RunNetOnce(def, net.workspace());
  for (const auto& [fetched, source] : {std::pair{"rnn_x_t0", "x"}, {"rnn_h_prev0", "h"}}) {
    const std::vector<double> before = Values(net.Get(fetched));
    net.Get(source).data<float>()[0] += 1;
    EXPECT_EQ(Values(net.Get(fetched)), before) << fetched;
  }
}

TEST(Memory, M10TheFetcherNeedsItsOperatorInTheSameNet) {
  RecurrentCase net = LstmCase(false);
  FeedLstm(net, 3, 2, 8);
  net.Run();
  NetDef def;
  *def.add_op() = ParseOp("names = RecurrentNetworkBlobFetcher(record)");
  ExpectError([&] { RunNetOnce(def, net.workspace()); }, "…did not keep the step net's blobs");
}

TEST(Memory, TheLimitIsAnErrorThatNamesTheOperator) {
  RecurrentCase net = LstmCase(true);
  FeedLstm(net, 100, 2, 64);
  const std::int64_t limit = TensorMemory().limit;
  SetTensorMemoryLimit(TensorMemory().current + 10'000);
  ExpectError([&] { net.Run(); }, "…out of memory: a run of 100 steps needs 103424 bytes for states and outputs and ");
  SetTensorMemoryLimit(limit);
  net.Run();
}

}  // namespace
}  // namespace stepnet
