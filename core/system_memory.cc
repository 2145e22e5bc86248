#include "stepnet/core/system_memory.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

// Not by ReadFile, which compares with the limit that is looked for here.
std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::int64_t PhysicalMemory() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page <= 0) return kUnlimited;
  return static_cast<std::int64_t>(pages) * page;
}

std::int64_t Addresses() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur > static_cast<rlim_t>(kUnlimited)) return kUnlimited;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

// The number in a file; "max", and whatever else is no number, limits nothing.
std::int64_t LimitIn(const std::string& path) {
  const std::string text = TextOf(path);
  std::int64_t limit = kUnlimited;
  std::from_chars(text.data(), text.data() + text.size(), limit);
  return limit >= 0 ? limit : kUnlimited;
}

// The limit of `group`, as "/user/session", and of all groups around it. A container may show its own group as the root
// while the text names it as the machine sees it; then only the root is there.
std::int64_t LimitOfGroup(const std::string& mount, std::string_view group, const char* file) {
  std::int64_t limit = kUnlimited;
  for (;;) {
    while (group.ends_with('/')) group.remove_suffix(1);
    limit = std::min(limit, LimitIn(mount + std::string(group) + "/" + file));
    if (group.empty()) return limit;
    group = group.substr(0, group.find_last_of('/') + 1);
  }
}

bool NamesMemory(std::string_view controllers) {
  while (!controllers.empty()) {
    const size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == "memory") return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

}  // namespace

std::int64_t ControlGroupMemory(std::string_view groups, const std::string& mount) {
  std::int64_t limit = kUnlimited;
  while (!groups.empty()) {
    const size_t end = std::min(groups.find('\n'), groups.size());
    const std::string_view line = groups.substr(0, end);
    groups.remove_prefix(std::min(end + 1, groups.size()));
    // NUMBER:CONTROLLERS:GROUP; version 2 has number 0 and no controllers.
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view group = line.substr(second + 1);
    if (controllers.empty()) {
      limit = std::min(limit, LimitOfGroup(mount, group, "memory.max"));
      limit = std::min(limit, LimitOfGroup(mount + "/unified", group, "memory.max"));
    } else if (NamesMemory(controllers)) {
      limit = std::min(limit, LimitOfGroup(mount + "/memory", group, "memory.limit_in_bytes"));
    }
  }
  return limit;
}

std::int64_t SystemMemory() {
  const std::int64_t groups = ControlGroupMemory(TextOf("/proc/self/cgroup"), "/sys/fs/cgroup");
  return std::min({PhysicalMemory(), groups, Addresses()});
}

void LimitProcessMemory(std::int64_t bytes) {
  // Pages of the program, resident, shared, of code, of libraries, of data.
  std::istringstream pages(TextOf("/proc/self/statm"));
  std::int64_t data = -1;
  for (int field = 0; field < 6; ++field) pages >> data;
  rlimit limit = {};
  std::int64_t most = 0;
  const bool is_known = pages && data >= 0 && getrlimit(RLIMIT_DATA, &limit) == 0;
  if (!is_known || __builtin_add_overflow(data * sysconf(_SC_PAGE_SIZE), bytes, &most)) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(most));
  setrlimit(RLIMIT_DATA, &limit);
}

void SaveAddresses() {
#ifdef __GLIBC__
  if (Addresses() != kUnlimited) mallopt(M_ARENA_MAX, 1);
#endif
}

void RequireMemory(std::int64_t bytes, std::string_view library) {
  void* const room = mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) {
    throw Error(ErrorCode::kOutOfMemory, StrCat("the system refused ", bytes, " bytes, which ", library, " may need"));
  }
  munmap(room, static_cast<size_t>(bytes));
}

}  // namespace stepnet
