// Tensors in safetensors files.
//
// Source: Hugging Face, "Safetensors", github.com/huggingface/safetensors, README, "Format". Eight bytes hold the
// length of the header, little endian; the header is JSON, {"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0,
// 24]}, …}, where "__metadata__" may hold strings by name; then come the elements, row by row, little endian, without
// gaps.
//
// Files are untrusted. The header is read as it comes, and nothing but the format's own grammar is accepted; offsets
// must cover the data, each byte once, and agree with dtypes and shapes, all before memory for tensors is taken.
#pragma once

#include <string>
#include <string_view>

#include "stepnet/io/named_tensors.h"

namespace stepnet {

// The longest header, that of the format's reference implementation.
inline constexpr std::int64_t kMaxSafetensorsHeader = 100'000'000;

// Whether a file that begins so is one: a length of less than 2^32, and what a header begins with.
inline constexpr std::int64_t kSafetensorsStartBytes = 12;
bool StartsSafetensors(std::string_view start);

// Whether a header begins so: with a brace, or with one behind a byte order mark or some space, which a reader refuses.
bool StartsSafetensorsHeader(std::string_view start);

// Reads F64, F32, F16, BF16, I64, I32, I16, I8, U16, U8 and BOOL, in the order of the data. Metadata is checked and not
// kept. Throws kInputOutput for whatever else the file is, and for a wanted tensor of another dtype or of more than
// Shape::kMaxRank dimensions, and kOutOfMemory for a header that may take more than tensors may.
FoundTensors ReadSafetensors(const std::string& path, const NameFilter& wanted, const PlaceFinder& find_place);

// Equal tensors give equal bytes, those of the reference implementation: tensors lie by dtype, so that each is aligned,
// and by name. Throws kInputOutput, also for strings, which the format lacks,
// and for names that are no UTF-8, are given twice, or are "__metadata__".
void WriteSafetensors(const NamedTensors& tensors, const std::string& path);

}  // namespace stepnet
