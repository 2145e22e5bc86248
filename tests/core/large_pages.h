// Whether the system has been asked for large pages (Linux).
#pragma once

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

namespace stepnet {

// Whether it has where `address` is.
inline bool MayHaveLargePages(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool is_there = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      const auto at = reinterpret_cast<unsigned long>(address);
      is_there = begin <= at && at < end;
    } else if (is_there && line.starts_with("VmFlags:")) {
      return line.find(" hg") != std::string::npos;
    }
  }
  return false;
}

}  // namespace stepnet
