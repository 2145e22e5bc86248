// Files of tensors in which bytes are others than somebody wrote.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "stepnet/core/error.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/tests/core/temp_dir.h"

namespace stepnet {

// Reads the file `whole` so many times, each time with one to three random bytes in random places. Fails the test where
// that ends in an error of the library's own. Returns how often tensors were read.
inline int ReadsDespiteDamage(const TempDir& dir, const std::string& whole, int times, std::mt19937& random) {
  int read = 0;
  for (int i = 0; i < times; ++i) {
    std::string damaged = whole;
    for (int k = 0; k <= i % 3; ++k) damaged[random() % damaged.size()] = static_cast<char>(random());
    try {
      ReadTensors(dir.Put("damaged", damaged));
      ++read;
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
    }
  }
  return read;
}

}  // namespace stepnet
