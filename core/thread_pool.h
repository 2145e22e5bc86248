// ThreadPool: the threads of the process that help with runs. There is one pool, whoever asks; an operator owns none.
#pragma once

#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "stepnet/core/cancellation.h"

namespace stepnet {

// Work that several threads may share.
class SharedWork {
 public:
  virtual ~SharedWork() = default;
  // Takes part in the work until nothing is left to do for this thread. Must not throw. `lane` tells the threads of a
  // run apart: 0 is the caller, helpers have one of 1 … as many as may help, of which no two inside have the same.
  //
  // The caller's Join returns when the work is done. A helper may still be inside then, or come: the system may have
  // taken its core away when it had nothing to do, and waiting for it would cost more than the run. From then on it
  // must touch nothing but the work itself, which lives as long as one is inside.
  virtual void Join(int lane) = 0;
};

// More threads than that are asked for by mistake.
inline constexpr int kMaxThreads = 1024;

// How many the machine has, as far as the system tells: at least 1. It is read from a file, which takes microseconds.
int NumCores();

class ThreadPool {
 public:
  static ThreadPool& Process();

  // Calls work->Join on the calling thread and on up to `helpers` threads of the pool, those that are free. Returns
  // when the caller's has. Threads are made when they are first wanted. Helpers may come late or not at all, so the
  // caller's Join must be able to do everything.
  void Run(const std::shared_ptr<SharedWork>& work, int helpers);
  // From within the Join of a work that Run was called for: asks for `count` more helpers. So those that have nothing
  // to do may leave, to be of use elsewhere, and be called back. No more than Run allows are inside at once; an
  // invitation of more, also while one of those is about to leave, is void.
  void Invite(const SharedWork& work, int count);

 private:
  struct Offer {
    std::shared_ptr<SharedWork> work;
    const Cancellation* cancellation = nullptr;  // what the caller works under, and so do those who help
    int wanted = 0;
    std::vector<int> free_lanes;
  };

  ThreadPool() = default;
  // Ends the threads. From then on callers do their work alone.
  void Stop();
  void MakeThreads(int count);
  void Wake(int count);
  void Help();

  std::mutex mutex_;
  std::condition_variable offered_;
  std::list<std::shared_ptr<Offer>> offers_;
  std::atomic<int> wanted_ = 0;  // of all offers, for those who look without the lock
  bool stops_ = false;
  std::vector<std::thread> threads_;
};

// Tells the processor that this is a loop that waits.
inline void RelaxProcessor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace stepnet
