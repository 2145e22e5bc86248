// Control groups of Linux: in which files the limits of a process stand.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace stepnet {

// Calls `look` with each folder that may hold limits of `controller` ("memory", "cpu"), and whether it is of version 2:
// those of the groups that `groups` names, the text of /proc/self/cgroup, and of all groups around them. `mount` is
// where groups are shown. A container may show its own group as the root while the text names it as the machine sees
// it; then only the root is there.
void ForEachControlGroup(std::string_view groups, const std::string& mount, std::string_view controller,
                         const std::function<void(const std::string& folder, bool is_version_2)>& look);

// What a file of the system holds; "" where it cannot be read. Not by ReadFile, which compares with the limit of
// memory.
std::string TextOfSystemFile(const std::string& path);

}  // namespace stepnet
