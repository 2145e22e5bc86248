// CRC32C (Castagnoli, RFC 3720): the checksum of checkpoints and of TensorBoard's event files.
#pragma once

#include <cstdint>
#include <string_view>

namespace stepnet {

// The checksum of the bytes that `crc` is of, followed by `bytes`; `crc` is 0 where nothing precedes them.
std::uint32_t Crc32c(std::string_view bytes, std::uint32_t crc = 0);

}  // namespace stepnet
