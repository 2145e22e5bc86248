#include "stepnet/io/npy.h"

#include <cstring>
#include <random>

#include "stepnet/io/file.h"
#include "stepnet/tests/core/limited_memory.h"
#include "stepnet/tests/core/temp_dir.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

// A file of version `major`.0 with this dictionary and these elements.
std::string Npy(const std::string& header, const std::string& elements, int major = 1) {
  std::string bytes = "\x93NUMPY";
  bytes.push_back(static_cast<char>(major));
  bytes.push_back('\0');
  const auto length = static_cast<std::uint32_t>(header.size());
  bytes.append(reinterpret_cast<const char*>(&length), major == 1 ? 2 : 4);
  return bytes + header + elements;
}

template <typename T>
std::string Bytes(const std::vector<T>& values, bool swapped = false) {
  std::string bytes;
  for (const T value : values) {
    std::string element(reinterpret_cast<const char*>(&value), sizeof(T));
    if (swapped) std::reverse(element.begin(), element.end());
    bytes += element;
  }
  return bytes;
}

template <typename T>
std::vector<T> Values(const Tensor& tensor) {
  return {tensor.data<T>(), tensor.data<T>() + tensor.size()};
}

TEST(Npy, ReadsWhatNumPyWrites) {
  const TempDir dir;
  const std::string header =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }" + std::string(58, ' ') + "\n";
  const std::string bytes = Npy(header, std::string("\0\0\xc0?\0\0\0\xc0\0\0@@\0\0\x80@", 16));
  const Tensor tensor = ReadNpy(dir.Put("a.npy", bytes));
  EXPECT_EQ(tensor.Description(), "float [2, 2]");
  EXPECT_EQ(Values<float>(tensor), (std::vector<float>{1.5f, -2, 3, 4}));
  // And writes the same bytes, so that NumPy reads them.
  WriteNpy(tensor, dir.Path("b.npy"));
  EXPECT_EQ(dir.Get("b.npy"), bytes);
}

TEST(Npy, KeepsEveryType) {
  const TempDir dir;
  const auto check = [&](const Tensor& tensor) {
    WriteNpy(tensor, dir.Path("a.npy"));
    const Tensor read = ReadNpy(dir.Path("a.npy"));
    ASSERT_EQ(read.Description(), tensor.Description());
    EXPECT_EQ(std::memcmp(read.raw(), tensor.raw(), static_cast<size_t>(tensor.size_bytes())), 0);
    EXPECT_EQ(std::filesystem::file_size(dir.Path("a.npy")) % 64, static_cast<size_t>(tensor.size_bytes()) % 64);
  };
  check(Tensor::Of<float>({2, 1}, {1.5f, -0.0f}));
  check(Tensor::Of<double>({2}, {1e300, std::nan("")}));
  check(Tensor::Of<Float16>({3}, {Float16{1}, Float16{0x7c00}, Float16{0xffff}}));
  check(Tensor::Of<std::int8_t>({2}, {-128, 127}));
  check(Tensor::Of<std::int16_t>({2}, {-32768, 32767}));
  check(Tensor::Of<std::int32_t>({2}, {-5, 5}));
  check(Tensor::Of<std::int64_t>({1, 2}, {INT64_MIN, INT64_MAX}));
  check(Tensor::Of<std::uint8_t>({2}, {0, 255}));
  check(Tensor::Of<std::uint16_t>({2}, {0, 65535}));
  check(Tensor::Of<bool>({2}, {true, false}));
  check(Tensor::Of<float>({}, {3}));
  check(Tensor(DType::kDouble, {0, 7}));
  check(Tensor(DType::kDouble, {3, 0}));
}

TEST(Npy, WritesBFloat16AsFloat) {
  const TempDir dir;
  WriteNpy(Tensor::Of<BFloat16>({2}, {ToBFloat16(1.5f), ToBFloat16(-3)}), dir.Path("a.npy"));
  const Tensor read = ReadNpy(dir.Path("a.npy"));
  EXPECT_EQ(Values<float>(read), (std::vector<float>{1.5f, -3}));
}

TEST(Npy, ReadsBothByteOrdersAndVersions) {
  const TempDir dir;
  const std::vector<std::int16_t> values = {1, -2, 300, 4, 5, 6};
  for (const int major : {1, 2, 3}) {
    for (const bool swapped : {false, true}) {
      const std::string descr = swapped ? ">i2" : "<i2";
      const std::string path = dir.Put("a.npy", Npy("{\"shape\":(2L,3L),'fortran_order':False,'descr':'" + descr + "'}",
                                                    Bytes(values, swapped), major));
      EXPECT_EQ(ReadNpy(path).Description(), "int16 [2, 3]");
      EXPECT_EQ(Values<std::int16_t>(ReadNpy(path)), values);
    }
  }
  const std::vector<double> doubles = {0.1, -1e-300};
  EXPECT_EQ(Values<double>(ReadNpy(dir.Put(
                "a.npy", Npy("{'descr': '>f8', 'fortran_order': False, 'shape': (2,)}", Bytes(doubles, true))))),
            doubles);
}

TEST(Npy, ReadsFortranOrder) {
  const TempDir dir;
  // Element (i, j, k) is 100 i + 10 j + k; the first index runs fastest in the file.
  std::vector<std::int32_t> file, rows;
  for (int k = 0; k < 4; ++k) {
    for (int j = 0; j < 3; ++j) {
      for (int i = 0; i < 2; ++i) file.push_back(100 * i + 10 * j + k);
    }
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) rows.push_back(100 * i + 10 * j + k);
    }
  }
  const Tensor tensor =
      ReadNpy(dir.Put("a.npy", Npy("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3, 4), }", Bytes(file))));
  EXPECT_EQ(tensor.shape(), Shape({2, 3, 4}));
  EXPECT_EQ(Values<std::int32_t>(tensor), rows);
  EXPECT_EQ(ReadNpy(dir.Put("a.npy", Npy("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 0), }", ""))).shape(),
            Shape({2, 0}));
}

TEST(Npy, KeepsStrings) {
  const TempDir dir;
  const std::vector<std::string> utf8 = {"", "abc", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", std::string("a\0b", 3)};
  WriteNpy(Tensor::Of<std::string>({2, 2}, utf8), dir.Path("a.npy"));
  EXPECT_NE(dir.Get("a.npy").find("'<U3'"), std::string::npos);
  EXPECT_EQ(ReadNpy(dir.Path("a.npy")).Description(), "string [2, 2]");
  EXPECT_EQ(Values<std::string>(ReadNpy(dir.Path("a.npy"))), utf8);
  // Bytes that are no UTF-8: bare continuation, overlong, surrogate, cut off.
  for (const char* bad : {"\x80", "\xc0\xaf", "\xed\xa0\x80", "\xe2\x82"}) {
    const std::vector<std::string> values = {bad, "fine"};
    WriteNpy(Tensor::Of<std::string>({2}, values), dir.Path("a.npy"));
    EXPECT_NE(dir.Get("a.npy").find("'|S4'"), std::string::npos);
    EXPECT_EQ(Values<std::string>(ReadNpy(dir.Path("a.npy"))), values);
  }
  WriteNpy(Tensor(DType::kString, {0}), dir.Path("a.npy"));
  EXPECT_EQ(ReadNpy(dir.Path("a.npy")).Description(), "string [0]");
  // Big endian, as NumPy writes np.array(['a', 'bé'], dtype='>U2').
  const std::string swapped("\0\0\0a\0\0\0\0\0\0\0b\0\0\0\xe9", 16);
  EXPECT_EQ(Values<std::string>(
                ReadNpy(dir.Put("a.npy", Npy("{'descr': '>U2', 'fortran_order': False, 'shape': (2,), }", swapped)))),
            (std::vector<std::string>{"a", "b\xc3\xa9"}));
  ExpectError(
      [&] { WriteNpy(Tensor::Of<std::string>({1}, {std::string("a\0", 2)}), dir.Path("z.npy")); },
      "input/output error: cannot write " + dir.Path("z.npy") + ": element 0 ends in a zero byte, which .npy drops");
  EXPECT_FALSE(std::filesystem::exists(dir.Path("z.npy")));
}

TEST(Npy, NormalisesBools) {
  const TempDir dir;
  const Tensor tensor = ReadNpy(
      dir.Put("a.npy", Npy("{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", std::string("\0\1\x80", 3))));
  const auto* bytes = static_cast<const unsigned char*>(tensor.raw());
  EXPECT_EQ(std::vector<int>(bytes, bytes + 3), (std::vector<int>{0, 1, 1}));
}

TEST(Npy, RefusesWhatItCannotRead) {
  const TempDir dir;
  const std::string path = dir.Path("a.npy");
  const auto refuses = [&](const std::string& content, const std::string& message) {
    dir.Put("a.npy", content);
    ExpectError([&] { ReadNpy(path); }, "input/output error: " + path + message);
  };
  const auto with_shape = [](const std::string& shape) {
    return "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }";
  };
  refuses("", " ends early: the start of a .npy file at byte 0 needs 8 bytes, 0 are left");
  refuses("name: \"a net\"", " is no .npy file");
  refuses(Npy("", "", 4), " is of .npy version 4; versions 1 to 3 are supported");
  refuses(Npy(with_shape("(2,)"), "").substr(0, 20), " is cut off: its header has 57 bytes, 10 are left");
  refuses(Npy(with_shape("(2,)"), "1234567"),
          ": an array '<f4' [2] has 2 elements of 4 bytes, the file has 7 bytes of them");
  refuses(Npy(with_shape("(2,)"), "123456789"),
          ": an array '<f4' [2] has 2 elements of 4 bytes, the file has 9 bytes of them");
  refuses(Npy(with_shape("(1000000000000,)"), "1234"),
          ": an array '<f4' [1000000000000] has 1000000000000 elements of 4 bytes, the file has 4 bytes of them");
  refuses(Npy(with_shape("(4294967296, 4294967296)"), "1234"),
          ": the sizes of [4294967296, 4294967296] multiply to more than 2^63");
  refuses(Npy(with_shape("(4611686018427387904,)"), "1234"),
          ": an array '<f4' [4611686018427387904] has 4611686018427387904 elements of 4 bytes, the file has 4 bytes of "
          "them");
  refuses(Npy(with_shape("(99999999999999999999,)"), ""), " has a size of more than 2^63 in its header");
  refuses(Npy(with_shape("(1,1,1,1,1,1,1,1,1)"), "1234"), ": a tensor of 9 dimensions; at most 8 are supported");
  refuses(Npy(with_shape("(-1,)"), "1234"), " has a header that is no dictionary, at its character 51");
  refuses(Npy(with_shape("(2"), ""), " has a header that is no dictionary, at its character 54");
  refuses(Npy("{'descr': '<f4', 'shape': (2,)}", "12345678"),
          " lacks 'descr', 'fortran_order' or 'shape' in its header");
  refuses(Npy("{'descr': '<f4', 'descr': '<f4'}", ""), " has an unexpected key 'descr' in its header");
  refuses(Npy("{'descr': '<f4', 'other': 1}", ""), " has an unexpected key 'other' in its header");
  refuses(Npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", ""),
          " holds records; arrays of numbers or strings are needed");
  for (const std::string descr : {"<c8", "|O", "<f16", "<u4", "<M8[s]", "", "<", "U", "<U1234567890", "S-1", "<V2"}) {
    refuses(Npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (), }", "12345678"),
            " holds elements of type '" + descr + "'; f2 f4 f8 i1 i2 i4 i8 u1 u2 b1, U and S are supported");
  }
  refuses(Npy("{'descr': '<U1', 'fortran_order': False, 'shape': (), }", std::string("\0\0\x11\0", 4)),
          " holds 1114112, which is no character");
  refuses(Npy(std::string(70000, ' '), "", 2).substr(0, 70012) + std::string(1 << 20, ' '),
          " has a header that is no dictionary, at its character 70000");
}

TEST(Npy, AnyDamageIsAnErrorOrAnArray) {
  const TempDir dir;
  const std::string bytes =
      Npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n", std::string(24, '\x3f'));
  std::mt19937 rng(5);
  for (int i = 0; i < 1500; ++i) {
    std::string damaged = bytes;
    for (int k = 0; k <= i % 3; ++k) damaged[rng() % damaged.size()] = static_cast<char>(rng());
    if (i % 5 == 0) damaged.resize(rng() % damaged.size());
    try {
      ReadNpy(dir.Put("a.npy", damaged));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInputOutput) << error.what();
    }
  }
}

TEST(Npy, KeepsTheMemoryLimit) {
  const TempDir dir;
  const std::string path =
      dir.Put("a.npy", Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000,), }", std::string(4000, '\0')));
  EXPECT_EQ(ReadNpy(path).size(), 1000);
  const LimitedMemory limited(TensorMemory().current + 3999);
  ExpectError([&] { ReadNpy(path); }, "…out of memory: " + path + ": a tensor float [1000] needs 4000 bytes; ");
}

}  // namespace
}  // namespace stepnet
