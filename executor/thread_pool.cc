#include "stepnet/executor/thread_pool.h"

#include <algorithm>
#include <chrono>

namespace stepnet {
namespace {

// Runs follow each other closely in a net; a thread that has just helped looks out this long before it sleeps.
constexpr std::chrono::microseconds kLookOut{20};

constexpr int kMostThreads = 1023;

}  // namespace

ThreadPool& ThreadPool::Process() {
  static ThreadPool pool;
  return pool;
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  offered_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Run(SharedWork& work, int helpers) {
  std::list<Offer>::iterator offer;
  {
    const std::lock_guard lock(mutex_);
    while (static_cast<int>(threads_.size()) < std::min(helpers, kMostThreads)) {
      threads_.emplace_back([this] { Help(); });
    }
    offer = offers_.insert(offers_.end(), {.work = &work, .wanted = helpers});
    wanted_ += helpers;
  }
  if (helpers == 1) {
    offered_.notify_one();
  } else {
    offered_.notify_all();
  }
  work.Join(0);
  std::unique_lock lock(mutex_);
  wanted_ -= offer->wanted;
  offer->wanted = 0;
  left_.wait(lock, [&] { return offer->inside == 0; });
  offers_.erase(offer);
}

void ThreadPool::Help() {
  std::unique_lock lock(mutex_);
  for (;;) {
    offered_.wait(lock, [this] { return stops_ || wanted_ > 0; });
    if (stops_) return;
    const auto offer = std::ranges::find_if(offers_, [](const Offer& o) { return o.wanted > 0; });
    --offer->wanted;
    --wanted_;
    ++offer->inside;
    const int lane = offer->next_lane++;
    lock.unlock();
    offer->work->Join(lane);
    lock.lock();
    if (--offer->inside == 0) left_.notify_all();
    lock.unlock();
    const auto end = std::chrono::steady_clock::now() + kLookOut;
    while (wanted_ <= 0 && std::chrono::steady_clock::now() < end) RelaxProcessor();
    lock.lock();
  }
}

}  // namespace stepnet
