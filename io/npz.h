// Tensors in NumPy's .npz files: zip archives in which an entry "w.npy" holds the array "w" (npy.h, zip_archive.h).
#pragma once

#include <string>

#include "stepnet/io/named_tensors.h"

namespace stepnet {

// Reads arrays in the order of the archive, whose entries are stored or deflated (numpy.savez, savez_compressed).
// Throws kInputOutput for what is no such archive, and what ReadNpy throws for a wanted array.
FoundTensors ReadNpz(const std::string& path, const NameFilter& wanted, const PlaceFinder& find_place);

// Stores tensors in the order given, in the dtypes of WriteNpy. Equal tensors give equal bytes. Throws kInputOutput.
void WriteNpz(const NamedTensors& tensors, const std::string& path);

}  // namespace stepnet
