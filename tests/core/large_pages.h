// Whether the system has been asked for large pages (Linux).
#pragma once

#include <sys/mman.h>
#include <unistd.h>

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

// Takes back what was asked for there, as for what lay there before.
inline void AskForSmallPages(const void* memory, std::int64_t bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t begin = first / page * page;
  madvise(reinterpret_cast<void*>(begin), first + static_cast<std::uintptr_t>(bytes) - begin, MADV_NOHUGEPAGE);
}

}  // namespace stepnet
