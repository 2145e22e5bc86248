#include "stepnet/tools/rnn_runner/memory_reserve.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace stepnet::runner {
namespace {

constexpr std::size_t kBytes = 1 << 20;
std::atomic<void*> reserve = nullptr;

}  // namespace

void KeepMemoryReserve() {
  reserve = std::malloc(kBytes);
  std::set_new_handler([] {
    std::free(reserve.exchange(nullptr));
    throw std::bad_alloc();
  });
}

}  // namespace stepnet::runner
