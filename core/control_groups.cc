#include "stepnet/core/control_groups.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

namespace stepnet {
namespace {

bool Names(std::string_view controllers, std::string_view controller) {
  while (!controllers.empty()) {
    const size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == controller) return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

// `group`, as "/user/session", and all groups around it.
template <typename Look>
void ForEachAround(const std::string& mount, std::string_view group, const Look& look) {
  for (;;) {
    while (group.ends_with('/')) group.remove_suffix(1);
    look(mount + std::string(group));
    if (group.empty()) return;
    group = group.substr(0, group.find_last_of('/') + 1);
  }
}

}  // namespace

void ForEachControlGroup(std::string_view groups, const std::string& mount, std::string_view controller,
                         const std::function<void(const std::string& folder, bool is_version_2)>& look) {
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
    const auto of_version_2 = [&](const std::string& folder) { look(folder, true); };
    if (controllers.empty()) {
      ForEachAround(mount, group, of_version_2);
      ForEachAround(mount + "/unified", group, of_version_2);
    } else if (Names(controllers, controller)) {
      ForEachAround(mount + "/" + std::string(controller), group,
                    [&](const std::string& folder) { look(folder, false); });
    }
  }
}

// By the system's own calls: a stream takes as long as the kernel, and processes read these files when they start.
std::string TextOfSystemFile(const std::string& path) {
  struct File {
    explicit File(const std::string& path) : descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
    ~File() {
      if (descriptor >= 0) close(descriptor);
    }
    const int descriptor;
  };
  const File file(path);
  std::string text;
  char bytes[512];
  ssize_t count = 0;
  while ((count = read(file.descriptor, bytes, sizeof(bytes))) > 0) text.append(bytes, static_cast<size_t>(count));
  return text;
}

}  // namespace stepnet
