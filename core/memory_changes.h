// Memory changes: how often a thread has taken memory of a device, or given some back.
#pragma once

#include <cstdint>

namespace stepnet {

// Counts those of this thread, on all devices. Who keeps addresses to use them again asks before and after work that
// may have taken their memory away.
std::int64_t NumMemoryChanges();
// DeviceRuntime::Allocate and Free call it.
void NoteMemoryChange();

}  // namespace stepnet
