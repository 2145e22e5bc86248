// How much memory the system lets the process have: the default limit of tensor memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stepnet {

// The least of what the machine has, what the control groups of the process may take (Linux, version 1 and 2), and
// what its addresses may span (`ulimit -v`). Files that cannot be read limit nothing.
std::int64_t SystemMemory();

// The least limit of memory of the control groups that `groups` names, the text of /proc/self/cgroup, and of those
// around them; `mount` is where they are shown, /sys/fs/cgroup. 2^63 - 1 for none.
std::int64_t ControlGroupMemory(std::string_view groups, const std::string& mount);

// Lets the process take at most `bytes` beyond what it has now, whatever they are for (Linux; RLIMIT_DATA). What
// exceeds that is an allocation that fails. The limit of tensors (SetTensorMemoryLimit) says more and comes first.
void LimitProcessMemory(std::int64_t bytes);

// Whether the system may refuse memory that the process asks for: where addresses or data are limited (`ulimit -v`,
// `ulimit -d`, LimitProcessMemory), or all processes together (Linux, vm.overcommit_memory = 2). Elsewhere it ends
// processes that use what there is not.
bool MayRefuseMemory();

// Where addresses are limited (`ulimit -v`), keeps the C library from reserving a heap of 64 MB for each thread.
void SaveAddresses();

// Asks the system for large pages for memory that nobody has touched: what goes through megabytes waits for fewer
// translations of addresses. The system may refuse; then pages stay small.
void AskForLargePages(const void* memory, std::int64_t bytes);

// The opposite, also where large ones were asked for before.
void AskForSmallPages(const void* memory, std::int64_t bytes);

// Whether this is a virtual machine that gives the memory that lies free back to its host (Linux, free page reporting
// of virtio's balloon). It gives back whole large pages, so that each large one that is taken waits for the host: some
// milliseconds. Small ones mostly come from what was not given back. `balloons` is where the system shows the devices.
bool GivesFreeMemoryToHost(const std::string& balloons = "/sys/bus/virtio/drivers/virtio_balloon");

// Stands before what libraries do once and cannot leave half done, nor look whether they got the memory for: throws
// kOutOfMemory unless the system has so many bytes for `library` now.
void RequireMemory(std::int64_t bytes, std::string_view library);

}  // namespace stepnet
