#include "stepnet/io/crc32c.h"

#include <array>

namespace stepnet {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // bits reversed: the lowest bit goes first

// What a byte does to the checksum, for each of eight positions before the end: eight bytes are taken at once.
constexpr auto kTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables = {};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (int k = 1; k < 8; ++k) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}();

}  // namespace

std::uint32_t Crc32c(std::string_view bytes, std::uint32_t crc) {
  crc = ~crc;
  const auto byte = [&](size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])); };
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint32_t next = 0;
    for (size_t k = 0; k < 8; ++k) {
      const std::uint32_t old = k < 4 ? (crc >> (8 * k)) & 0xff : 0;
      next ^= kTables[7 - k][byte(i + k) ^ old];
    }
    crc = next;
  }
  for (; i < bytes.size(); ++i) crc = (crc >> 8) ^ kTables[0][(crc & 0xff) ^ byte(i)];
  return ~crc;
}

}  // namespace stepnet
