// tests/models/thread_pool.pml is ThreadPool as a model that is checked; changes here are made there too.
#include "stepnet/core/thread_pool.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>

#include "stepnet/core/signal_block.h"
#include "stepnet/core/system_cores.h"
#include "stepnet/core/target.h"

namespace stepnet {
namespace {

// Runs follow each other closely in a net; a thread that has just helped looks out this long before it sleeps.
constexpr std::chrono::microseconds kLookOut{kCpuTarget.microseconds_to_look_out_for_runs};

// As many as may help a caller, and whose stacks take no more than a quarter of the addresses that the process may use.
int MaxHelpers() {
  constexpr int kMax = kMaxThreads - 1;
  rlimit addresses = {};
  pthread_attr_t attributes;
  size_t stack = 0;
  if (getrlimit(RLIMIT_AS, &addresses) != 0 || addresses.rlim_cur == RLIM_INFINITY) return kMax;
  if (pthread_getattr_default_np(&attributes) != 0) return kMax;
  pthread_attr_getstacksize(&attributes, &stack);
  pthread_attr_destroy(&attributes);
  return stack > 0 ? static_cast<int>(std::min<rlim_t>(kMax, addresses.rlim_cur / 4 / stack)) : kMax;
}

}  // namespace

int NumCores() { return SystemCores(); }

ThreadPool& ThreadPool::Process() {
  // Never destroyed: other threads may end the process, or go on, while one stops it.
  static ThreadPool* pool = nullptr;
  // The thread that forked a process is the child's first. Where it ends without the process, as a thread of Python
  // whose function returns, the process lives for as long as other threads do.
  struct StopAtEndOfThread {
    ~StopAtEndOfThread() { pool->Stop(); }
  };
  struct Owner {
    Owner() {
      pool = new ThreadPool;
      pthread_atfork(nullptr, nullptr, [] {
        pool = new ThreadPool;  // the other's threads are gone, and its state is the one that they were in
        thread_local const StopAtEndOfThread stop;
        static_cast<void>(stop);
      });
    }
    ~Owner() { pool->Stop(); }
  };
  static const Owner owner;
  return *pool;
}

namespace {
// Made when the library is loaded: what is to be done in a process that is forked holds where nothing ran before, too.
[[maybe_unused]] const ThreadPool& at_load = ThreadPool::Process();
}  // namespace

void ThreadPool::Stop() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    threads.swap(threads_);
  }
  offered_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

// REQUIRES mutex_. Fewer where the system gives no more: callers can do without.
void ThreadPool::MakeThreads(int count) {
  if (stops_) return;
  count = std::min(count, MaxHelpers());
  const SignalBlock block;
  try {
    while (static_cast<int>(threads_.size()) < count) {
      threads_.emplace_back([this] { Help(); });
    }
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
}

void ThreadPool::Wake(int count) {
  if (count == 1) {
    offered_.notify_one();
  } else {
    offered_.notify_all();
  }
}

void ThreadPool::Run(const std::shared_ptr<SharedWork>& work, int helpers) {
  const auto offer = std::make_shared<Offer>(
      Offer{.work = work, .cancellation = CurrentCancellation(), .wanted = helpers, .free_lanes = {}});
  for (int lane = helpers; lane > 0; --lane) offer->free_lanes.push_back(lane);
  {
    const std::lock_guard lock(mutex_);
    MakeThreads(helpers);
    offers_.push_back(offer);
    wanted_ += helpers;
  }
  Wake(helpers);
  work->Join(0);
  const std::lock_guard lock(mutex_);
  wanted_ -= offer->wanted;
  offer->wanted = 0;
  std::erase(offers_, offer);
}

void ThreadPool::Invite(const SharedWork& work, int count) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(offers_, [&](const auto& offer) { return offer->work.get() == &work; });
    if (found == offers_.end()) return;  // the caller has left
    Offer& offer = **found;
    count = std::min(count, static_cast<int>(offer.free_lanes.size()) - offer.wanted);
    if (count <= 0) return;
    offer.wanted += count;
    wanted_ += count;
  }
  Wake(count);
}

void ThreadPool::Help() {
  std::unique_lock lock(mutex_);
  for (;;) {
    offered_.wait(lock, [this] { return stops_ || wanted_ > 0; });
    if (stops_) return;
    std::shared_ptr<Offer> offer = *std::ranges::find_if(offers_, [](const auto& o) { return o->wanted > 0; });
    --offer->wanted;
    --wanted_;
    const int lane = offer->free_lanes.back();
    offer->free_lanes.pop_back();
    lock.unlock();
    {
      const CancellationScope cancelled(offer->cancellation);
      offer->work->Join(lane);
    }
    lock.lock();
    offer->free_lanes.push_back(lane);
    lock.unlock();
    offer.reset();  // the last one to hold it frees the work
    const auto end = std::chrono::steady_clock::now() + kLookOut;
    while (wanted_ <= 0 && std::chrono::steady_clock::now() < end) RelaxProcessor();
    lock.lock();
  }
}

}  // namespace stepnet
