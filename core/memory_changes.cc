#include "stepnet/core/memory_changes.h"

namespace stepnet {
namespace {

thread_local std::int64_t num_changes = 0;

}  // namespace

std::int64_t NumMemoryChanges() { return num_changes; }
void NoteMemoryChange() { ++num_changes; }

}  // namespace stepnet
