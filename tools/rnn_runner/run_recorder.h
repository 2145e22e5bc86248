// RunRecorder: an observer that keeps what it sees. Where there is no memory for it, it looks away, and who asks for
// the record is told.
#pragma once

#include "stepnet/core/first_failure.h"
#include "stepnet/core/playing_observer.h"

namespace stepnet::runner {

class RunRecorder : public PlayingObserver {
 public:
  bool LetsPlay() const override { return false; }
  void Start(const RunEvent& event) final {
    Record([&] { Started(event); });
  }
  void Stop(const RunEvent& event) final {
    Record([&] { Stopped(event); });
  }

 protected:
  virtual void Started(const RunEvent& event) = 0;
  virtual void Stopped(const RunEvent& event) = 0;
  // Throws what made it look away. Not while a net runs.
  void CheckComplete() const { failure_.Rethrow(); }

 private:
  template <typename Body>
  void Record(const Body& body) {
    if (failure_.failed()) return;
    try {
      body();
    } catch (...) {
      failure_.Note();
    }
  }

  mutable FirstFailure failure_;
};

}  // namespace stepnet::runner
