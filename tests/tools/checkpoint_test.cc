#include "stepnet/tools/rnn_runner/checkpoint.h"

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>

#include "stepnet/io/minidb.h"
#include "stepnet/tests/core/temp_dir.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet::runner {
namespace {

Checkpoint Example(std::int64_t iteration) {
  Checkpoint checkpoint;
  checkpoint.state.set_iteration(iteration);
  checkpoint.state.set_best_bits(2.5);
  checkpoint.tensors = {{"w", Tensor::Of<float>({2, 3}, {1, -2, 3, 0.1F, 5, 6})},
                        {"iteration", Tensor::Of<std::int64_t>({1}, {iteration})},
                        {"none", Tensor::Zeros(DType::kFloat, {0, 3})}};
  return checkpoint;
}

void ExpectExample(const SavedCheckpoint& checkpoint, std::int64_t iteration) {
  EXPECT_EQ(checkpoint.state.iteration(), iteration);
  EXPECT_EQ(checkpoint.state.best_bits(), 2.5);
  std::string descriptions;
  NamedTensors places;
  for (const auto& [name, info] : checkpoint.tensors) {
    descriptions += name + " " + info.Description() + "; ";
    places.emplace_back(name, Tensor::Zeros(info.dtype, info.shape));
  }
  ASSERT_EQ(descriptions, "w float [2, 3]; iteration int64 [1]; none float [0, 3]; ");
  ReadTensorsInto(checkpoint.path, places);
  EXPECT_EQ(places[0].second.data<float>()[3], 0.1F);
  EXPECT_EQ(places[1].second.data<std::int64_t>()[0], iteration);
}

TEST(Checkpoint, ComesBackAsItWas) {
  const TempDir dir;
  WriteCheckpoint(Example(7), dir.Path("c"));
  ExpectExample(ReadCheckpoint(dir.Path("c")), 7);
}

TEST(Checkpoint, IsAFileOfTensors) {
  const TempDir dir;
  WriteCheckpoint(Example(7), dir.Path("c"));
  EXPECT_EQ(ReadTensors(dir.Path("c")).front().second.size(), 6);
}

TEST(Checkpoint, IsRefusedWithAnyByteChanged) {
  const TempDir dir;
  WriteCheckpoint(Example(7), dir.Path("c"));
  const std::string whole = dir.Get("c");
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const int bit : {0, 5, 7}) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      dir.Put("c", damaged);
      EXPECT_THROW(ReadCheckpoint(dir.Path("c")), Error) << "byte " << i << ", bit " << bit;
    }
  }
}

TEST(Checkpoint, IsRefusedCutOffAnywhere) {
  const TempDir dir;
  WriteCheckpoint(Example(7), dir.Path("c"));
  const std::string whole = dir.Get("c");
  for (size_t size = 0; size < whole.size(); ++size) {
    dir.Put("c", whole.substr(0, size));
    EXPECT_THROW(ReadCheckpoint(dir.Path("c")), Error) << size << " bytes";
  }
}

TEST(Checkpoint, SaysWhatIsWrong) {
  const TempDir dir;
  const std::string path = dir.Path("c");
  dir.Put("c", "GIF89a, or whatever this is");
  ExpectError([&] { ReadCheckpoint(path); }, "input/output error: " + path + " is no checkpoint");
  WriteMiniDb({{"w", Tensor::Of<float>({1}, {1})}}, path);
  ExpectError([&] { ReadCheckpoint(path); },
              "input/output error: " + path + " is no checkpoint or is cut off: it does not end in a checksum");
  WriteCheckpoint(Example(7), path);
  std::string damaged = dir.Get("c");
  damaged[60] ^= 1;
  dir.Put("c", damaged);
  ExpectError([&] { ReadCheckpoint(path); },
              "input/output error: " + path + " is damaged: its checksum is not that of what it holds");
}

// A file whose checksum is right can still hold anything.
TEST(Checkpoint, IsRefusedWithAStateThatNoRunCanHave) {
  const TempDir dir;
  const std::string path = dir.Path("c");
  const auto expect_fault = [&](const std::function<void(TrainState*)>& change, const std::string& fault) {
    Checkpoint checkpoint = Example(7);
    change(&checkpoint.state);
    WriteCheckpoint(checkpoint, path);
    ExpectError([&] { ReadCheckpoint(path); }, "input/output error: " + path + " is no checkpoint of a run: " + fault);
  };
  expect_fault([](TrainState* state) { state->set_iteration(-1); }, "iteration is -1, must be between 0 and 2000");
  expect_fault([](TrainState* state) { state->set_iteration(2001); }, "iteration is 2001, must be between 0 and 2000");
  expect_fault([](TrainState* state) { state->set_csv_bytes(-1); }, "csv_bytes is -1, must be at least 0");
  expect_fault([](TrainState* state) { state->set_events_bytes(-5); }, "events_bytes is -5, must be at least 0");
  expect_fault([](TrainState* state) { state->set_loss_sum(INFINITY); }, "loss_sum is inf, must be finite");
  expect_fault([](TrainState* state) { state->set_loss_count(8); }, "loss_count is 8, must be between 0 and 7");
  expect_fault([](TrainState* state) { state->set_best_bits(std::nan("")); }, "best_bits is nan, must be finite");
  expect_fault([](TrainState* state) { state->set_best_iteration(8); }, "best_iteration is 8, must be between 0 and 7");
  expect_fault([](TrainState* state) { state->set_best_iteration(-2); },
               "best_iteration is -2, must be between 0 and 7");
}

TEST(CheckpointFolder, LooksAtFilesWithANumberAlone) {
  const TempDir dir;
  const CheckpointFolder folder(dir.path(), 1);
  for (const char* name :
       {"iteration-.minidb", "iteration-99999999999999999999.minidb", "iteration--1.minidb", "iteration-7x.minidb"}) {
    dir.Put(name, "somebody's");
  }
  EXPECT_FALSE(folder.ReadNewest().has_value());
  folder.Write(Example(7));
  folder.Write(Example(8));
  ExpectExample(*folder.ReadNewest(), 8);
  EXPECT_EQ(dir.Names().size(), 5U);
}

TEST(CheckpointFolder, KeepsTheNewest) {
  const TempDir dir;
  const CheckpointFolder folder(dir.Path("kept"), 2);
  EXPECT_FALSE(folder.ReadNewest().has_value());
  for (const std::int64_t iteration : {90, 100, 1000}) folder.Write(Example(iteration));
  ExpectExample(*folder.ReadNewest(), 1000);
  EXPECT_FALSE(std::filesystem::exists(dir.Path("kept/iteration-90.minidb")));
  EXPECT_TRUE(std::filesystem::exists(dir.Path("kept/iteration-100.minidb")));
  folder.RemoveAll();
  EXPECT_FALSE(folder.ReadNewest().has_value());
}

TEST(CheckpointFolder, TakesAnOlderOneForADamagedOne) {
  const TempDir dir;
  const CheckpointFolder folder(dir.path(), 3);
  folder.Write(Example(1));
  folder.Write(Example(2));
  dir.Put("iteration-2.minidb", dir.Get("iteration-2.minidb").substr(0, 100));
  testing::internal::CaptureStderr();
  ExpectExample(*folder.ReadNewest(), 1);
  const std::string remark = testing::internal::GetCapturedStderr();
  EXPECT_NE(remark.find("iteration-2.minidb"), std::string::npos);
  EXPECT_NE(remark.find("; going on from an older one\n"), std::string::npos);
}

TEST(CheckpointFolder, DoesNotStartAnewBehindSomebodysBack) {
  const TempDir dir;
  const CheckpointFolder folder(dir.path(), 3);
  dir.Put("iteration-2.minidb", "");
  ExpectError([&] { folder.ReadNewest(); }, "input/output error: no checkpoint in " + dir.path() +
                                                " can be read (--fresh starts anew):\n  " +
                                                dir.Path("iteration-2.minidb") + " is no checkpoint");
}

TEST(CheckpointFolder, RemovesWhatKilledWritersLeft) {
  const TempDir dir;
  const std::vector<std::string> of_others = {"iteration-02.minidb.1234.0.tmp", "iteration-notes.tmp", "somebody.tmp"};
  dir.Put("iteration-2.minidb.1234.0.tmp", "half");
  for (const std::string& name : of_others) dir.Put(name, "else's");
  const CheckpointFolder folder(dir.path(), 1);
  EXPECT_EQ(dir.Names(), of_others);
}

// The disk ends after `bytes` of a file until the scope does.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const struct rlimit small = {.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, signal_);
  }

 private:
  struct rlimit before_ = {};
  void (*signal_)(int);
};

TEST(CheckpointFolder, LosesNothingOnAFullDisk) {
  const TempDir dir;
  const CheckpointFolder folder(dir.path(), 1);
  folder.Write(Example(1));
  const auto size = static_cast<rlim_t>(dir.Get("iteration-1.minidb").size());
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{1}, size / 2, size - 1}) {
    const SmallDisk disk(bytes);
    ExpectError([&] { folder.Write(Example(2)); },
                "input/output error: cannot write " + dir.Path("iteration-2.minidb") + ": File too large");
    EXPECT_EQ(dir.Names(), std::vector<std::string>{"iteration-1.minidb"});
  }
  ExpectExample(*folder.ReadNewest(), 1);
}

}  // namespace
}  // namespace stepnet::runner
