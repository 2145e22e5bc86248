#include "stepnet/core/system_cores.h"

#include <sched.h>

#include <algorithm>
#include <sstream>
#include <thread>

#include "stepnet/core/control_groups.h"

namespace stepnet {
namespace {

// What a quota gives of the period in which it may be used, "QUOTA PERIOD" in microseconds; "max", -1 and what is no
// number limit nothing.
int WholeCores(const std::string& text) {
  std::istringstream numbers(text);
  double of_period = 0, length = 0;
  if (!(numbers >> of_period >> length) || of_period <= 0 || length <= 0) return kMaxCores;
  return static_cast<int>(std::clamp(of_period / length, 1.0, static_cast<double>(kMaxCores)));
}

// Counts those that the process may run on, of those that the machine has.
int CoresOfAffinity() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return std::max(1, CPU_COUNT(&cores));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

int ControlGroupCores(std::string_view groups, const std::string& mount) {
  int cores = kMaxCores;
  ForEachControlGroup(groups, mount, "cpu", [&](const std::string& folder, bool is_version_2) {
    std::string text = TextOfSystemFile(folder + (is_version_2 ? "/cpu.max" : "/cpu.cfs_quota_us"));
    const bool has_quota = !text.empty() && !text.starts_with('-');
    if (!is_version_2 && has_quota) text += TextOfSystemFile(folder + "/cpu.cfs_period_us");
    if (has_quota) cores = std::min(cores, WholeCores(text));
  });
  return cores;
}

int SystemCores() {
  const int cores = CoresOfAffinity();
  if (cores == 1) return 1;
  // Each plan asks several times, and to read these files takes a tenth of a millisecond.
  static const int group_cores = ControlGroupCores(TextOfSystemFile("/proc/self/cgroup"), "/sys/fs/cgroup");
  return std::min(cores, group_cores);
}

}  // namespace stepnet
