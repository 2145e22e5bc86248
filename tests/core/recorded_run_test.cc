// RecordedRun with a recorder that is ready when the test says so.
#include "stepnet/core/recorded_run.h"

#include <gtest/gtest.h>

#include "stepnet/core/error.h"
#include "stepnet/core/scoped_value.h"
#include "stepnet/tests/poison_device/poison_device.h"

namespace stepnet {
namespace {

class NothingNoted : public HostState {
 public:
  void Note() override { is_noted_ = true; }
  bool IsAsNoted() const override { return is_noted_; }
  void Restore() override {}

 private:
  bool is_noted_ = false;
};

struct Recordings {
  bool is_ready = false;
  bool fails = false;  // to make it ready
  int recorded = 0;
  int played = 0;
};

class LateRecorder : public Recorder {
 public:
  explicit LateRecorder(Recordings& recordings) : recordings_(recordings) {}
  void Watch(const std::function<void()>& work, std::string*) override { work(); }
  void Record(const std::function<void()>& work, std::string*) override {
    const ScopedValue<bool> scope(is_recording, true);
    work();
    ++recordings_.recorded;
  }
  int num_pieces() const override {
    if (recordings_.fails) throw Error(ErrorCode::kOutOfMemory, "no memory for the graph");
    return recordings_.is_ready ? 1 : 0;
  }
  void Play(int) override { ++recordings_.played; }

  static inline bool is_recording = false;

 private:
  Recordings& recordings_;
};

class RecordedRunTest : public ::testing::Test {
 protected:
  // How many times the work is done in `runs` runs.
  int Run(int runs) {
    const int before = done_;
    for (int k = 0; k < runs; ++k) {
      run_.Run(context_, [&] {
        done_ += LateRecorder::is_recording ? 0 : 1;
        may_be_recorded_within_ = context_.recording == nullptr;
      });
    }
    return done_ - before;
  }

  Recordings recordings_;
  RecordedRun run_{kPoisonDevice, std::make_unique<NothingNoted>(), std::make_unique<LateRecorder>(recordings_)};
  RunContext context_;
  int done_ = 0;
  bool may_be_recorded_within_ = false;
};

TEST_F(RecordedRunTest, IsPlayedAsSoonAsTheRecorderIsReady) {
  EXPECT_EQ(Run(2), 2);
  EXPECT_EQ(recordings_.recorded, 0);
  EXPECT_EQ(Run(3), 3);
  EXPECT_EQ(recordings_.recorded, 1) << "kept until it is ready";
  EXPECT_FALSE(may_be_recorded_within_);
  recordings_.is_ready = true;
  EXPECT_EQ(Run(4), 0);
  EXPECT_EQ(recordings_.played, 4);
  EXPECT_EQ(recordings_.recorded, 1);
}

TEST_F(RecordedRunTest, IsDoneWhereTheRecorderCannotBecomeReady) {
  recordings_.fails = true;
  EXPECT_EQ(Run(3), 3);
  EXPECT_EQ(run_.refusal(), "what was recorded cannot be played: no memory for the graph");
  EXPECT_EQ(Run(20), 20);
  EXPECT_EQ(recordings_.recorded, 3) << "and given up";
  EXPECT_TRUE(run_.has_given_up());
  EXPECT_EQ(recordings_.played, 0);
  EXPECT_EQ(run_.num_step_operators(), 0);
}

TEST_F(RecordedRunTest, WorkThatFailsWhileItIsMadeReadyLeavesNothingKnown) {
  EXPECT_EQ(Run(3), 3);
  EXPECT_THROW(run_.Run(context_, [] { throw Error(ErrorCode::kFailed, "once"); }), Error);
  recordings_.is_ready = true;
  EXPECT_EQ(Run(2), 2) << "as at first";
  EXPECT_EQ(Run(1), 0);
  EXPECT_EQ(recordings_.recorded, 2);
}

}  // namespace
}  // namespace stepnet
