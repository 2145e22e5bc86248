#include "stepnet/core/system_memory.h"

#include <dirent.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>
#include <sstream>
#include <system_error>

#include "stepnet/core/control_groups.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

std::int64_t PhysicalMemory() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page <= 0) return kUnlimited;
  return static_cast<std::int64_t>(pages) * page;
}

template <typename Resource>
std::int64_t LimitOf(Resource resource) {
  rlimit limit = {};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur > static_cast<rlim_t>(kUnlimited)) return kUnlimited;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

std::int64_t Addresses() { return LimitOf(RLIMIT_AS); }

// The number in a file; "max", and whatever else is no number, limits nothing.
std::int64_t LimitIn(const std::string& path) {
  const std::string text = TextOfSystemFile(path);
  std::int64_t limit = kUnlimited;
  std::from_chars(text.data(), text.data() + text.size(), limit);
  return limit >= 0 ? limit : kUnlimited;
}

// `advice`, as madvise has it, for all pages in which the memory lies.
void AdvisePages(const void* memory, std::int64_t bytes, int advice) {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGE_SIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t begin = first / page * page;
  const std::uintptr_t end = (first + static_cast<std::uintptr_t>(bytes) + page - 1) / page * page;
  static_cast<void>(madvise(reinterpret_cast<void*>(begin), end - begin, advice));
}

}  // namespace

std::int64_t ControlGroupMemory(std::string_view groups, const std::string& mount) {
  std::int64_t limit = kUnlimited;
  ForEachControlGroup(groups, mount, "memory", [&](const std::string& folder, bool is_version_2) {
    limit = std::min(limit, LimitIn(folder + (is_version_2 ? "/memory.max" : "/memory.limit_in_bytes")));
  });
  return limit;
}

std::int64_t SystemMemory() {
  const std::int64_t groups = ControlGroupMemory(TextOfSystemFile("/proc/self/cgroup"), "/sys/fs/cgroup");
  return std::min({PhysicalMemory(), groups, Addresses()});
}

void LimitProcessMemory(std::int64_t bytes) {
  // Pages of the program, resident, shared, of code, of libraries, of data.
  std::istringstream pages(TextOfSystemFile("/proc/self/statm"));
  std::int64_t data = -1;
  for (int field = 0; field < 6; ++field) pages >> data;
  rlimit limit = {};
  std::int64_t max_bytes = 0;
  const bool is_known = pages && data >= 0 && getrlimit(RLIMIT_DATA, &limit) == 0;
  if (!is_known || __builtin_add_overflow(data * sysconf(_SC_PAGE_SIZE), bytes, &max_bytes)) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(max_bytes));
  setrlimit(RLIMIT_DATA, &limit);
}

bool MayRefuseMemory() {
  static const bool is_promised_by_all = TextOfSystemFile("/proc/sys/vm/overcommit_memory").starts_with('2');
  return is_promised_by_all || Addresses() != kUnlimited || LimitOf(RLIMIT_DATA) != kUnlimited;
}

void SaveAddresses() {
#ifdef __GLIBC__
  if (Addresses() != kUnlimited) mallopt(M_ARENA_MAX, 1);
#endif
}

void AskForLargePages(const void* memory, std::int64_t bytes) {
#ifdef MADV_HUGEPAGE
  AdvisePages(memory, bytes, MADV_HUGEPAGE);
#else
  static_cast<void>(memory);
  static_cast<void>(bytes);
#endif
}

void AskForSmallPages(const void* memory, std::int64_t bytes) {
#ifdef MADV_NOHUGEPAGE
  AdvisePages(memory, bytes, MADV_NOHUGEPAGE);
#else
  static_cast<void>(memory);
  static_cast<void>(bytes);
#endif
}

bool GivesFreeMemoryToHost(const std::string& balloons) {
  constexpr size_t kReporting = 5;  // VIRTIO_BALLOON_F_REPORTING; a device's features are a text of a 0 or 1 for each
  // Iterators of std::filesystem end the process where there is no memory for them.
  const std::unique_ptr<DIR, int (*)(DIR*)> devices(opendir(balloons.c_str()), &closedir);
  while (devices != nullptr) {
    const dirent* const device = readdir(devices.get());
    if (device == nullptr) break;
    const std::string features = TextOfSystemFile(StrCat(balloons, "/", device->d_name, "/features"));
    if (features.size() > kReporting && features[kReporting] == '1') return true;
  }
  return false;
}

void RequireMemory(std::int64_t bytes, std::string_view library) {
  void* const room = mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) {
    throw Error(ErrorCode::kOutOfMemory, StrCat("the system refused ", bytes, " bytes, which ", library, " may need"));
  }
  munmap(room, static_cast<size_t>(bytes));
}

}  // namespace stepnet
