// How many cores the system lets the process use.
#pragma once

#include <string>
#include <string_view>

namespace stepnet {

// The least of what the machine has, what the process may run on (`taskset`), and whole cores of the time that its
// control groups may take (Linux, version 1 and 2; `docker --cpus`), as the first call finds it. Files that cannot be
// read limit nothing. At least 1.
int SystemCores();

// Whole cores of the least limit of time of the control groups that `groups` names, the text of /proc/self/cgroup, and
// of those around them, at least 1; `mount` is where they are shown, /sys/fs/cgroup. kMaxCores for none.
inline constexpr int kMaxCores = 1 << 20;
int ControlGroupCores(std::string_view groups, const std::string& mount);

}  // namespace stepnet
