#include "stepnet/io/safetensors.h"

#include <unistd.h>

#include <cstring>
#include <random>

#include "stepnet/io/file.h"
#include "stepnet/io/minidb.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/tests/core/limited_memory.h"
#include "stepnet/tests/core/temp_dir.h"
#include "stepnet/tests/io/damaged_files.h"
#include "stepnet/tests/io/parameter_files.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

std::string WithHeader(const std::string& header, const std::string& data = "") {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

// A file with one tensor "w" that the header describes so, and 8 bytes of data.
std::string OfW(const std::string& description) { return WithHeader("{\"w\":" + description + "}", "12345678"); }

const std::string kWellFormed = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";

std::vector<std::string> NamesOf(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

TEST(Safetensors, ReadsWhatTheReferenceImplementationWrites) {
  std::vector<std::string> names = NamesWritten();
  names.emplace_back("bfloat16");
  ExpectWritten(ReadTensors(ParameterFile("every_type.safetensors")), names);
}

TEST(Safetensors, WritesTheBytesOfTheReferenceImplementation) {
  const TempDir dir;
  NamedTensors tensors = ReadTensors(ParameterFile("every_type.safetensors"));
  std::ranges::reverse(tensors);
  WriteTensors(tensors, dir.Path("w.safetensors"));
  EXPECT_EQ(dir.Get("w.safetensors"), ReadFile(ParameterFile("every_type.safetensors")));
}

TEST(Safetensors, AreKnownByTheirContent) {
  const TempDir dir;
  const std::string path = dir.Put("a.pb", OfW(kWellFormed));
  EXPECT_TRUE(HoldsOnlyTensors(path));
  EXPECT_FALSE(LooksLikeMiniDb(path));
  EXPECT_EQ(DetectKind(path), MessageKind::kSafetensors);
  EXPECT_FALSE(HoldsOnlyTensors(dir.Put("a.safetensors", "protos  {}")));
  EXPECT_FALSE(HoldsOnlyTensors(dir.Put("short", "{}")));
  NetDef net;
  ExpectError([&] { ReadMessage(path, &net); },
              "input/output error: " + path + " does not hold a NetDef, it looks like a safetensors file");
}

TEST(Safetensors, DescribesAndReadsIntoPlaces) {
  const std::string path = ParameterFile("every_type.safetensors");
  const NamedTensors whole = ReadTensors(path);
  const NamedInfos infos = DescribeTensors(path);
  ASSERT_EQ(infos.size(), whole.size());
  for (size_t i = 0; i < infos.size(); ++i) {
    EXPECT_EQ(infos[i].first, whole[i].first);
    EXPECT_EQ(infos[i].second.Description(), whole[i].second.Description());
  }
  const Tensor place = Tensor::Zeros(DType::kInt64, {2, 3});
  ReadTensorsInto(path, {{"int64", place}});
  ExpectWritten(place);
  ExpectError(
      [&] {
        ReadTensorsInto(path, {{"int64", Tensor(DType::kInt64, {3, 2})}});
      },
      "input/output error: tensor \"int64\" is int64 [2, 3], int64 [3, 2] is needed\n  in file " + path);
}

TEST(Safetensors, RefusesDTypesThatAreMissingOnlyWhereTheyAreWanted) {
  const std::string path = ParameterFile("other_types.safetensors");
  const auto all_but = [&](const std::string& left_out) {
    return ReadTensors(path, [=](const std::string& name) { return name != left_out && name != "codes"; });
  };
  EXPECT_EQ(NamesOf(all_but("fp8")), std::vector<std::string>{"w"});
  ExpectError([&] { all_but(""); },
              "input/output error: tensor \"fp8\" is \"F8_E4M3\", which is not supported; I64, F64, F32, I32, BF16, "
              "F16, U16, I16, I8, U8, BOOL are\n  in file " +
                  path);
}

TEST(Safetensors, SkipsWhatNobodyKnowsWhereItIsNotWanted) {
  const TempDir dir;
  const std::string header = R"({"x":{"dtype":"Q3","shape":[7],"data_offsets":[0,3]},)"
                             R"("deep":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[3,4]},)"
                             R"("w":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})";
  const std::string path = dir.Put("a", WithHeader(header, "abc-de"));
  const auto read = [&](const std::string& wanted) {
    return ReadTensors(path, [=](const std::string& name) { return name == wanted; });
  };
  EXPECT_EQ(read("w")[0].second.data<std::uint8_t>()[1], 'e');
  ExpectError([&] { read("x"); }, "…tensor \"x\" is \"Q3\", which is not supported; ");
  ExpectError([&] { read("deep"); }, "…tensor \"deep\" has 9 dimensions; tensors have at most 8");
}

TEST(Safetensors, TakeMetadataAndSpaceAndNamesWithEscapes) {
  const TempDir dir;
  const std::string header = R"({ "a\"\u00fc/b" : {"shape":[],"data_offsets":[ 0, 1 ],"dtype":"BOOL"} , )"
                             R"("__metadata__":{"format":"pt","":"x"}}   )";
  const NamedTensors tensors = ReadTensors(dir.Put("a", WithHeader(header, "\x02")));
  ASSERT_EQ(NamesOf(tensors), std::vector<std::string>{"a\"ü/b"});
  EXPECT_EQ(*static_cast<const unsigned char*>(tensors[0].second.raw()), 1);  // as a bool is in memory
  EXPECT_TRUE(ReadTensors(dir.Put("none", WithHeader("{}"))).empty());
}

TEST(Safetensors, RefuseHeadersBehindSpaceOrAByteOrderMark) {
  const TempDir dir;
  for (const std::string start : {" ", "\n", "\t \r", "\xef\xbb\xbf"}) {
    const std::string path = dir.Put("a.safetensors", WithHeader(start + "{}"));
    EXPECT_EQ(DetectKind(path), MessageKind::kSafetensors);
    ExpectError([&] { ReadTensors(path); },
                "input/output error: the header does not begin with a brace\n  in file " + path);
  }
}

TEST(Safetensors, RefuseHeadersThatDoNotFollowTheFormat) {
  const TempDir dir;
  const auto expect = [&](const std::string& bytes, const std::string& message) {
    const std::string path = dir.Put("a.safetensors", bytes);
    ExpectError([&] { ReadTensors(path); }, "input/output error: " + message + "\n  in file " + path);
  };
  const auto expect_of_w = [&](const std::string& description, const std::string& message) {
    expect(OfW(description), "tensor \"w\" has " + message);
  };
  expect_of_w(R"({"shape":[2],"data_offsets":[0,8]})", "no \"dtype\"");
  expect_of_w(R"({"dtype":"F32","data_offsets":[0,8]})", "no \"shape\"");
  expect_of_w(R"({"dtype":"F32","shape":[2]})", "no \"data_offsets\"");
  expect_of_w(R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})", "\"dtype\" twice");
  expect_of_w(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1})", "\"x\", which the format does not know");
  expect_of_w(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})", "\"data_offsets\" that are not two numbers");
  expect_of_w(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})", "\"data_offsets\" that are not two numbers");
  expect_of_w(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})",
              "a negative number in its \"shape\", sizes are needed");
  expect_of_w(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})",
              "the number 2.0 in its \"shape\", sizes are needed");
  expect_of_w(R"({"dtype":"F32","shape":[[2]],"data_offsets":[0,8]})", "a list in its \"shape\", sizes are needed");
  expect_of_w(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})",
              "a number as its \"shape\", a list of numbers is needed");
  expect_of_w(R"({"dtype":7,"shape":[2],"data_offsets":[0,8]})", "a number as its \"dtype\", a string is needed");
  expect_of_w(R"({"dtype":"F32","shape":[2],"data_offsets":[0,9223372036854775808]})",
              "the number 9223372036854775808, which is beyond 2^63");
  expect_of_w(R"({"dtype":"F32","shape":[2],"data_offsets":[0,{}]})",
              "an object in its \"data_offsets\", positions are needed");
  expect(WithHeader(R"({"w":[]})"), "the header has a list as \"w\", an object is needed");
  expect(WithHeader(R"({"__metadata__":{"a":1}})"), "\"__metadata__\" holds a number, strings are needed");
  expect(WithHeader(R"({"__metadata__":{},"__metadata__":{}})"), "the header has \"__metadata__\" twice");
  expect(WithHeader("{\"w\":" + kWellFormed + ",\"w\":" + kWellFormed + "}", "12345678"), "tensor \"w\" comes twice");
  expect(WithHeader("{\"w\" 1}"), "the header is no JSON, at its character 6");
  expect(WithHeader("{} {}"), "the header is no JSON, at its character 4");
  expect(WithHeader("{\"\xff\":1}"), "the header is no JSON, at its character 3");
}

TEST(Safetensors, RefuseOffsetsThatDoNotCoverTheData) {
  const TempDir dir;
  const auto expect = [&](const std::string& a, const std::string& b, const std::string& message) {
    const std::string header = R"({"a":{"dtype":)" + a + R"(},"b":{"dtype":)" + b + "}}";
    const std::string path = dir.Put("a.safetensors", WithHeader(header, "12345678"));
    ExpectError([&] { ReadTensors(path); }, "input/output error: " + message + "\n  in file " + path);
  };
  const std::string first = R"("U8","shape":[4],"data_offsets":[0,4])";
  expect(first, R"("U8","shape":[5],"data_offsets":[3,8])",
         "tensor \"b\" has the data_offsets [3, 8] and overlaps what lies before, to 4");
  expect(first, R"("U8","shape":[3],"data_offsets":[5,8])",
         "tensor \"b\" has the data_offsets [5, 8], and nothing holds what lies before, from 4");
  expect(first, R"("U8","shape":[3],"data_offsets":[4,7])", "the file has 8 bytes of data, of which tensors hold 7");
  expect(first, R"("U8","shape":[5],"data_offsets":[4,9])",
         "tensor \"b\" has the data_offsets [4, 9]; the file is cut off: it has 8 bytes of data");
  expect(first, R"("U8","shape":[1],"data_offsets":[8,4])",
         "tensor \"b\" has the data_offsets [8, 4], of which the second is smaller");
  expect(first, R"("U16","shape":[3],"data_offsets":[4,8])",
         "tensor \"b\" is U16 [3], which takes 6 bytes; its data_offsets [4, 8] hold 4 bytes");
  expect(first, R"("F4","shape":[7],"data_offsets":[4,8])",
         "tensor \"b\" is F4 [7], which takes 28 bits; its data_offsets [4, 8] hold 4 bytes");
  expect(first, R"("F64","shape":[4294967296,4294967296],"data_offsets":[4,8])",
         "tensor \"b\" has sizes whose product is beyond 2^63 bits");
}

TEST(Safetensors, RefuseLengthsOfHeaders) {
  const TempDir dir;
  const auto with_length = [&](std::uint64_t length) {
    return dir.Put("a", std::string(reinterpret_cast<const char*>(&length), 8) + "{}");
  };
  ExpectError([&] { ReadTensors(with_length(3)); }, "…the file is cut off: the header has 3 bytes, 2 are left\n");
  ExpectError([&] { ReadTensors(with_length(100'000'001)); },
              "…the length of the header is 100000001 bytes, and the file has 2 behind it; 100000000 are allowed\n");
  EXPECT_THROW(ReadTensors(with_length(0)), Error);
  for (const std::uint64_t length : {UINT64_MAX, std::uint64_t{1} << 63, std::uint64_t{1} << 40}) {
    ExpectError([&] { ReadTensors(with_length(length)); }, StrCat("…the length of the header is ", length, " bytes, "));
  }
  const LimitedMemory limited(1 << 20);
  ExpectError([&] { ReadTensors(dir.Put("a", WithHeader("{}" + std::string(1 << 15, ' ')))); },
              "…out of memory: the header of 32770 bytes may take 1048640 bytes of memory; 1048576 are allowed");
}

TEST(Safetensors, TakeNoMoreMemoryThanIsAllowed) {
  const TempDir dir;
  const std::string path = dir.Put("a", OfW(kWellFormed));
  const LimitedMemory limited(TensorMemory().current + 7);
  EXPECT_THROW(ReadTensors(path), Error);
  const LimitedMemory wider(TensorMemory().current + (1 << 20));
  const std::string large = dir.Path("large");
  dir.Put("large", WithHeader(R"({"w":{"dtype":"U8","shape":[2000000],"data_offsets":[0,2000000]}})"));
  std::filesystem::resize_file(large, std::filesystem::file_size(large) + 2'000'000);
  ExpectError(
      [&] { ReadTensors(large); },
      "…out of memory: there is no memory for the tensor \"w\": a tensor uint8 [2000000] needs 2000000 bytes; ");
}

TEST(Safetensors, NoticeThatTheFileBecomesShorter) {
  ExpectNoticesCut("w.safetensors",
                   [](const std::string& path, const PlaceFinder& cut_off) { ReadSafetensors(path, {}, cut_off); });
}

TEST(Safetensors, AreWrittenWithWhatTheFormatHoldsAlone) {
  const TempDir dir;
  const Tensor w = Tensor::Of<float>({1}, {1});
  const std::string path = dir.Path("w.safetensors");
  const auto expect = [&](const NamedTensors& tensors, const std::string& message) {
    ExpectError([&] { WriteTensors(tensors, path); }, "input/output error: cannot write " + path + ": " + message);
  };
  expect({{"s", Tensor::Of<std::string>({1}, {"a"})}}, "tensor \"s\" is string [1], and safetensors have no strings");
  expect({{"__metadata__", w}}, "a tensor is called \"__metadata__\", which means something else there");
  expect({{"w", w}, {"w", w}}, "two tensors are called \"w\"");
  EXPECT_TRUE(dir.Names().empty());
}

TEST(Safetensors, AnyDamageIsAnErrorOrTensors) {
  const TempDir dir;
  const std::string whole = ReadFile(ParameterFile("every_type.safetensors"));
  for (size_t length = 0; length < whole.size(); length += 3) {
    EXPECT_THROW(ReadTensors(dir.Put("cut", whole.substr(0, length))), Error) << length;
  }
  EXPECT_THROW(ReadTensors(dir.Put("longer", whole + "x")), Error);
  const LimitedMemory limited(TensorMemory().current + (1 << 20));
  std::mt19937 random(3);
  EXPECT_GT(ReadsDespiteDamage(dir, whole, 800, random), 20);
}

}  // namespace
}  // namespace stepnet
