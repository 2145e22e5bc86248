// Memory for the time when there is no more.
#pragma once

namespace stepnet::runner {

// Keeps a megabyte, which the first allocation that fails gives back: it fails all the same, and what ends then, and
// says so, finds memory. Destructors need it, too: those of the JSON library take memory, and end the process without.
// Programs call it once.
void KeepMemoryReserve();

}  // namespace stepnet::runner
