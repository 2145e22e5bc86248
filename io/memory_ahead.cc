#include "stepnet/io/memory_ahead.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <utility>

#include "stepnet/core/signal_block.h"
#include "stepnet/core/target.h"

namespace stepnet {
namespace {

// False where the system cannot do it.
bool TakePages(std::uintptr_t begin, std::uintptr_t end) {
#ifdef MADV_POPULATE_WRITE
  return madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE) == 0;
#else
  static_cast<void>(begin);
  static_cast<void>(end);
  return false;
#endif
}

// Addresses: the ends of the pages in which a place lies.
struct Pages {
  std::uintptr_t begin, end;
};
Pages PagesOf(const Tensor& place) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(place.raw());
  return {.begin = first / page * page,
          .end = (first + static_cast<std::uintptr_t>(place.size_bytes()) + page - 1) / page * page};
}

}  // namespace

void TakeMemory(std::span<const Tensor> places, const std::stop_token& stop) {
  constexpr auto kBytesAtOnce = static_cast<std::uintptr_t>(kCpuTarget.bytes_to_take_at_once);
  for (const Tensor& place : places) {
    const auto [first, end] = PagesOf(place);
    for (std::uintptr_t begin = first; begin < end; begin += kBytesAtOnce) {
      if (stop.stop_requested() || !TakePages(begin, std::min(begin + kBytesAtOnce, end))) return;
    }
  }
}

MemoryAhead::MemoryAhead(std::vector<Tensor> places, bool in_large_pages) : places_(std::move(places)) {
  std::erase_if(places_, [](const Tensor& place) { return !place.defined(); });
  std::int64_t bytes = 0;
  for (const Tensor& place : places_) bytes += place.size_bytes();
  if (bytes < kCpuTarget.min_bytes_to_take_ahead) return;
  for (const Tensor& place : places_) {
    (in_large_pages ? AskForLargePages : AskForSmallPages)(place.raw(), place.size_bytes());
  }
  const SignalBlock block;
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { TakeMemory(places_, stop); });
  } catch (const std::system_error&) {
    // The reader takes the memory itself.
  }
}

}  // namespace stepnet
