#include "stepnet/io/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace stepnet {
namespace {

// RFC 3720, B.4; the check value of the catalogue of CRC algorithms.
TEST(Crc32c, GivesWhatTheStandardLists) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  std::string rising;
  for (char c = 0; c < 32; ++c) rising += c;
  EXPECT_EQ(Crc32c(rising), 0x46dd794eU);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(Crc32c(""), 0U);
}

TEST(Crc32c, GoesOn) {
  const std::string text = "a text of some length, in two parts";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(Crc32c(text.substr(cut), Crc32c(text.substr(0, cut))), Crc32c(text));
  }
}

}  // namespace
}  // namespace stepnet
