#include "stepnet/io/tensor_io.h"

#include <cstring>
#include <random>

#include "stepnet/io/minidb.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/core/limited_memory.h"
#include "stepnet/tests/core/source_path.h"
#include "stepnet/tests/core/temp_dir.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

TensorProto FromText(const std::string& text) {
  TensorProto proto;
  ParseMessageText(text, "test", &proto);
  return proto;
}

Tensor TensorOf(const std::string& text) { return TensorFromProto(FromText(text)); }

template <typename T>
std::vector<T> Values(const Tensor& tensor) {
  return std::vector<T>(tensor.data<T>(), tensor.data<T>() + tensor.size());
}

void ExpectSame(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.Description(), b.Description());
  if (a.dtype() == DType::kString) {
    EXPECT_EQ(Values<std::string>(a), Values<std::string>(b));
  } else {
    EXPECT_EQ(std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.size_bytes())), 0);
  }
}

// One tensor of every dtype, with extreme values.
NamedTensors EveryType() {
  return {{"float", Tensor::Of<float>({2, 1}, {1.5f, std::nanf("")})},
          {"double", Tensor::Of<double>({2}, {1e300, -0.0})},
          {"float16", Tensor::Of<Float16>({4}, {Float16{0}, Float16{1}, Float16{0x7c00}, Float16{0xffff}})},
          {"bfloat16", Tensor::Of<BFloat16>({3}, {BFloat16{0}, BFloat16{0x3f80}, BFloat16{0xffff}})},
          {"int8", Tensor::Of<std::int8_t>({2}, {-128, 127})},
          {"int16", Tensor::Of<std::int16_t>({2}, {-32768, 32767})},
          {"int32", Tensor::Of<std::int32_t>({2}, {INT32_MIN, INT32_MAX})},
          {"int64", Tensor::Of<std::int64_t>({1, 2}, {INT64_MIN, INT64_MAX})},
          {"uint8", Tensor::Of<std::uint8_t>({2}, {0, 255})},
          {"uint16", Tensor::Of<std::uint16_t>({2}, {0, 65535})},
          {"bool", Tensor::Of<bool>({2}, {true, false})},
          {"string", Tensor::Of<std::string>({2}, {"", std::string("a\0\xff", 3)})},
          {"scalar", Tensor::Of<float>({}, {3})},
          {"empty", Tensor(DType::kDouble, {0, 7})}};
}

void ExpectSame(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(a[i].first);
    EXPECT_EQ(a[i].first, b[i].first);
    ExpectSame(a[i].second, b[i].second);
  }
}

TEST(TensorIo, KeepsEveryTypeInEveryFormat) {
  const TempDir dir;
  const NamedTensors tensors = EveryType();
  WriteTensors(tensors, dir.Path("t.pb"));
  ExpectSame(ReadTensors(dir.Path("t.pb")), tensors);
  WriteTensors(tensors, dir.Path("t.pbtxt"));
  ExpectSame(ReadTensors(dir.Path("t.pbtxt")), tensors);
  WriteMiniDb(tensors, dir.Path("t.minidb"));
  ExpectSame(ReadTensors(dir.Path("t.minidb")), tensors);
  WriteMiniDb(tensors, dir.Path("t.minidb"), /*elements_of_chunk=*/1);
  ExpectSame(ReadTensors(dir.Path("t.minidb")), tensors);
  for (const auto& [name, tensor] : tensors) {
    WriteMessage(TensorToBlob(name, tensor), dir.Path("blob.pb"));
    ExpectSame(ReadTensors(dir.Path("blob.pb")), {{name, tensor}});
    if (tensor.size() == 0) continue;  // as TensorProtos, such bytes are one as well
    WriteMessage(TensorToProto(name, tensor), dir.Path("tensor.pb"));
    ExpectSame(ReadTensors(dir.Path("tensor.pb")), {{name, tensor}});
  }
}

TEST(TensorIo, UsesCaffe2sFields) {
  EXPECT_EQ(TensorToProto("f", Tensor::Of<float>({2}, {1, 2})).ShortDebugString(),
            "dims: 2 data_type: FLOAT float_data: 1 float_data: 2 name: \"f\"");
  EXPECT_EQ(TensorToProto("d", Tensor::Of<double>({1}, {1})).double_data_size(), 1);
  EXPECT_EQ(TensorToProto("i", Tensor::Of<std::int64_t>({1}, {1})).int64_data_size(), 1);
  EXPECT_EQ(TensorToProto("s", Tensor::Of<std::string>({1}, {"x"})).string_data(0), "x");
  for (const auto& [name, tensor] : EveryType()) {
    const bool int32 = name == "int8" || name == "int16" || name == "int32" || name == "uint8" || name == "uint16" ||
                       name == "bool" || name == "float16";
    EXPECT_EQ(TensorToProto(name, tensor).int32_data_size(), int32 ? tensor.size() : 0) << name;
  }
  EXPECT_EQ(TensorToProto("h", Tensor::Of<Float16>({1}, {Float16{0xffff}})).int32_data(0), 65535);
  const TensorProto bfloat16 = TensorToProto("b", Tensor::Of<BFloat16>({1}, {BFloat16{0x3f80}}));
  EXPECT_EQ(static_cast<int>(bfloat16.data_type()), 1000);
  EXPECT_EQ(bfloat16.raw_data(), std::string("\x80\x3f"));
}

TEST(TensorIo, ReadsOtherWritersFields) {
  EXPECT_EQ(Values<Float16>(TensorOf("dims: 2 data_type: FLOAT16 byte_data: \"\\x00\\x3c\\x01\\x80\""))[1].bits,
            0x8001);
  EXPECT_EQ(Values<Float16>(TensorOf("dims: 1 data_type: FLOAT16 int32_data: -1"))[0].bits, 0xffff);
  EXPECT_EQ(Values<std::uint8_t>(TensorOf("dims: 2 data_type: BYTE byte_data: \"\\xff\\x01\"")),
            (std::vector<std::uint8_t>{255, 1}));
  EXPECT_EQ(Values<std::uint8_t>(TensorOf("dims: 1 data_type: BYTE int32_data: 7")), std::vector<std::uint8_t>{7});
  EXPECT_EQ(Values<std::int8_t>(TensorOf("dims: 1 data_type: INT8 byte_data: \"\\xff\"")),
            std::vector<std::int8_t>{-1});
  EXPECT_EQ(Values<bool>(TensorOf("dims: 2 data_type: BOOL byte_data: \"\\x00\\x02\"")),
            (std::vector<bool>{false, true}));
  EXPECT_EQ(Values<bool>(TensorOf("dims: 2 data_type: BOOL int32_data: [0, -5]")), (std::vector<bool>{false, true}));
  EXPECT_EQ(Values<float>(TensorOf("dims: 1 raw_data: \"\\x00\\x00\\xc0\\x3f\"")), std::vector<float>{1.5f});
  EXPECT_EQ(Values<std::int32_t>(TensorOf("dims: 1 data_type: INT32 raw_data: \"\\x01\\x02\\x00\\x00\"")),
            std::vector<std::int32_t>{513});
  EXPECT_EQ(Values<std::int64_t>(TensorOf("dims: 1 data_type: INT64 raw_data: \"\\x05\\0\\0\\0\\0\\0\\0\\0\"")),
            std::vector<std::int64_t>{5});
  const Tensor raw_bool = TensorOf("dims: 2 data_type: BOOL raw_data: \"\\x00\\x80\"");
  EXPECT_EQ(static_cast<const unsigned char*>(raw_bool.raw())[1], 1);  // a bool is 0 or 1 in memory
  const Tensor narrow = TensorOf("dims: 2 data_format: 1 raw_data: \"\\xc0\\x3f\\x40\\xc0\"");
  EXPECT_EQ(narrow.dtype(), DType::kFloat);
  EXPECT_EQ(Values<float>(narrow), (std::vector<float>{1.5f, -3}));
  // No dims: one element.
  EXPECT_EQ(TensorOf("float_data: 2").Description(), "float []");
}

TEST(TensorIo, WritesPrintableNamesAlone) {
  const TempDir dir;
  const Tensor w = Tensor::Of<float>({1}, {1});
  for (const char* file : {"w.safetensors", "w.npz", "w.minidb", "w.pb", "w.pbtxt"}) {
    const std::string path = dir.Path(file);
    const auto refuses = [&](const std::string& name, const std::string& shown) {
      ExpectError(
          [&] {
            WriteTensors({{name, w}}, path);
          },
          "input/output error: cannot write " + path + ": a tensor is called \"" + shown +
              "\"; names are printable and have 1 to 1000 bytes");
    };
    refuses("", "");
    refuses(std::string("a\0b", 3), "a\\x00b");
    refuses("a\nb", "a\\x0ab");
    refuses("\xff", "\\xff");
    refuses("\xed\xa0\x80", "\\xed\\xa0\\x80");
    refuses("\u202e", "\\xe2\\x80\\xae");
    refuses(std::string(1001, 'a'), std::string(80, 'a'));
    EXPECT_TRUE(dir.Names().empty());
  }
}

TEST(TensorIo, RefusesWhatDoesNotFitTogether) {
  const auto refuses = [](const std::string& text, const std::string& message) {
    ExpectError([&] { TensorOf("name: \"x\" " + text); }, "input/output error: tensor \"x\"" + message);
  };
  refuses("dims: 2 dims: 3 float_data: [1, 2, 3, 4, 5]",
          " is float [2, 3], of which 6 elements belong here; float_data has 5");
  refuses("dims: 1 int32_data: 1", " is float [1], of which 1 elements belong here; float_data has 0");
  refuses("dims: 1 data_type: INT32 float_data: 1", " is int32 [1], of which 1 elements belong here; int32_data has 0");
  refuses("", " is float [], of which 1 elements belong here; float_data has 0");
  refuses("dims: 1000000000000 data_type: STRING",
          " is string [1000000000000], of which 1000000000000 elements belong here; string_data has 0");
  refuses("dims: 1 float_data: 1 raw_data: \"\\0\\0\\0\\0\"",
          " has values in float_data and in raw_data; they belong in one field");
  refuses("dims: 1 data_type: INT8 int32_data: 1 byte_data: \"\\2\"",
          " has values in int32_data and in byte_data; they belong in one field");
  refuses("dims: 1 float_data: 1 int64_data: 1",
          " has values in float_data and in int64_data; they belong in one field");
  refuses("dims: -1", ": dimension 0 of [-1] is negative");
  refuses("dims: 4294967296 dims: 4294967296", ": the sizes of [4294967296, 4294967296] multiply to more than 2^63");
  refuses("dims: [1,1,1,1,1,1,1,1,1] float_data: 1", ": a tensor of 9 dimensions; at most 8 are supported");
  refuses("dims: 2 raw_data: \"1234567\"",
          " is float [2], of which 2 elements of 4 bytes belong here; raw_data has 7 bytes");
  refuses("dims: 4611686018427387904 raw_data: \"\"",
          " is float [4611686018427387904], of which 4611686018427387904 elements of 4 bytes belong here; raw_data has "
          "0 bytes");
  refuses("dims: 2 data_type: UINT8 byte_data: \"123\"",
          " is uint8 [2], of which 2 elements of 1 bytes belong here; byte_data has 3 bytes");
  refuses("dims: 2 data_type: BFLOAT16 int32_data: [1, 2]",
          " is bfloat16 [2], of which 2 elements of 2 bytes belong here; raw_data has 0 bytes");
  refuses("dims: 1 data_type: UINT8 int32_data: 256", " is uint8 [1] and holds 256");
  refuses("dims: 1 data_type: INT8 int32_data: -129", " is int8 [1] and holds -129");
  refuses("dims: 1 data_type: UINT16 int32_data: -1", " is uint16 [1] and holds -1");
  refuses("dims: 1 data_type: FLOAT16 int32_data: 65536", " is float16 [1] and holds the bits 65536");
  refuses("dims: 1 data_type: UNDEFINED", ": data type 0 (UNDEFINED) is not supported");
  refuses("dims: 1 data_type: REBATCHING_BUFFER", ": data type 15 (REBATCHING_BUFFER) is not supported");
  refuses("dims: 1 data_format: 2 float_data: 1", " is float with data_format 2, which is not known");
  refuses("dims: 1 data_type: INT32 data_format: 1 int32_data: 1", " is int32 with data_format 1, which is not known");
  refuses("dims: 2 segment { begin: 0 end: 1 } float_data: 1", " is float [2], only its elements [0, 1) are here");
  refuses("dims: 2 segment { begin: 1 end: 3 } float_data: [1, 2]", " is float [2], its chunk has the elements [1, 3)");
  refuses("dims: 2 segment { begin: -1 end: 1 } float_data: [1, 2]",
          " is float [2], its chunk has the elements [-1, 1)");
  refuses("dims: 2 segment { begin: 2 end: 1 }", " is float [2], its chunk has the elements [2, 1)");
}

TEST(TensorIo, RefusesUnknownDataTypes) {
  // In proto2 an unknown enum value leaves the field at its default, FLOAT.
  TensorProto proto;
  ASSERT_TRUE(proto.ParseFromString(std::string("\x08\x01\x10\x0b\x1a\x04\0\0\0\0", 10)));
  ASSERT_EQ(proto.float_data_size(), 1);
  ExpectError([&] { TensorFromProto(proto); }, "input/output error: tensor \"\": data type 11 is not supported");
  ExpectError([] { DTypeFromNumber(-1); }, "type mismatch: data type -1 is not supported");
  ExpectError([] { DTypeFromNumber(std::int64_t{1} << 32 | 1); },
              "type mismatch: data type 4294967297 is not supported");
}

TEST(TensorIo, NumbersOfTypesGoBothWays) {
  for (const auto& [name, tensor] : EveryType())
    EXPECT_EQ(DTypeFromNumber(NumberFromDType(tensor.dtype())), tensor.dtype());
  EXPECT_EQ(DTypeFromNumber(TensorProto::BYTE), DType::kUInt8);
}

TEST(TensorIo, PutsChunksTogetherInAnyOrder) {
  const TempDir dir;
  TensorProtos protos;
  const auto add = [&](const std::string& text) { *protos.add_protos() = FromText(text); };
  add("name: \"x\" dims: 5 segment { begin: 3 end: 5 } float_data: [4, 5]");
  add("name: \"y\" dims: 1 float_data: 9");
  add("name: \"x\" dims: 5 segment { begin: 0 end: 3 } float_data: [1, 2, 3]");
  WriteMessage(protos, dir.Path("t.pb"));
  const NamedTensors tensors = ReadTensors(dir.Path("t.pb"));
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].first, "x");
  EXPECT_EQ(Values<float>(tensors[0].second), (std::vector<float>{1, 2, 3, 4, 5}));

  const std::string place = "\n  in file " + dir.Path("t.pb");
  protos.mutable_protos()->DeleteSubrange(2, 1);
  WriteMessage(protos, dir.Path("t.pb"));
  ExpectError([&] { ReadTensors(dir.Path("t.pb")); },
              "input/output error: tensor \"x\" is float [5], and no chunk has its element 0" + place);
  add("name: \"x\" dims: 5 segment { begin: 0 end: 4 } float_data: [1, 2, 3, 4]");
  WriteMessage(protos, dir.Path("t.pb"));
  ExpectError([&] { ReadTensors(dir.Path("t.pb")); },
              "input/output error: tensor \"x\" comes twice: its elements [0, 4)" + place);
  *protos.mutable_protos(2) = FromText("name: \"x\" dims: 6 segment { begin: 0 end: 1 } float_data: 1");
  WriteMessage(protos, dir.Path("t.pb"));
  ExpectError([&] { ReadTensors(dir.Path("t.pb")); },
              "input/output error: tensor \"x\" is float [5] in one chunk and float [6] in another" + place);
  *protos.mutable_protos(2) = FromText("name: \"y\" dims: 1 float_data: 9");
  WriteMessage(protos, dir.Path("t.pb"));
  ExpectError([&] { ReadTensors(dir.Path("t.pb")); },
              "input/output error: tensor \"y\" comes twice: its elements [0, 1)" + place);
}

TEST(TensorIo, ChunksHaveCaffe2sKeys) {
  const TempDir dir;
  WriteMiniDb({{"w", Tensor::Of<float>({5}, {1, 2, 3, 4, 5})}, {"e", Tensor(DType::kFloat, {0})}}, dir.Path("db"), 2);
  MiniDbReader reader(dir.Path("db"));
  std::string key, value;
  std::vector<std::string> records;
  while (reader.Next(&key, &value)) {
    BlobProto blob;
    ASSERT_TRUE(blob.ParseFromString(value));
    records.push_back(key + " | " + blob.ShortDebugString());
  }
  const auto record = [](const char* key, const char* dims, const char* data, const char* name, const char* segment) {
    return std::string(key) + " | name: \"" + name + "\" type: \"Tensor\" tensor { dims: " + dims +
           " data_type: FLOAT " + data + "name: \"" + name + "\" segment { " + segment + " } }";
  };
  EXPECT_EQ(records, (std::vector<std::string>{
                         record("w#%0", "5", "float_data: 1 float_data: 2 ", "w", "begin: 0 end: 2"),
                         record("w#%1", "5", "float_data: 3 float_data: 4 ", "w", "begin: 2 end: 4"),
                         record("w#%2", "5", "float_data: 5 ", "w", "begin: 4 end: 5"),
                         record("e#%0", "0", "", "e", "begin: 0 end: 0"),
                     }));
  EXPECT_EQ(BlobOfKey("w#%12"), "w");
  EXPECT_EQ(BlobOfKey("w"), "w");
  ExpectError(
      [&] {
        WriteMiniDb({{"a#%b", Tensor::Zeros(DType::kFloat, {1})}}, dir.Path("db2"));
      },
      "input/output error: tensor \"a#%b\" cannot be kept in a minidb: \"#%\" separates names from the numbers "
      "of chunks");
  EXPECT_FALSE(std::filesystem::exists(dir.Path("db2")));
}

TEST(TensorIo, ReadsOnlyWhatIsWanted) {
  const TempDir dir;
  MiniDbWriter writer(dir.Path("db"));
  writer.Add("broken", "not a blob");
  writer.Add("x#%0", TensorToBlob("x", Tensor::Of<float>({1}, {1})).SerializeAsString());
  BlobProto text;
  text.set_type("std::string");
  text.set_content("words");
  writer.Add("text", text.SerializeAsString());
  BlobProto other;
  other.set_name("other");
  other.set_type("caffe2::db::DBReader");
  other.set_content("…");
  writer.Add("other", other.SerializeAsString());
  writer.Commit();
  const auto read = [&](const std::vector<std::string>& names) {
    return ReadTensors(dir.Path("db"), [&](const std::string& name) { return std::ranges::count(names, name) > 0; });
  };
  ExpectSame(read({"x", "text"}),
             {{"x", Tensor::Of<float>({1}, {1})}, {"text", Tensor::Of<std::string>({}, {"words"})}});
  ExpectSame(read({"none"}), {});
  const std::string place = "\n  in file " + dir.Path("db");
  ExpectError([&] { read({"other"}); },
              "input/output error: tensor \"other\": the blob holds a \"caffe2::db::DBReader\" and no tensor" + place);
  ExpectError([&] { read({"broken"}); },
              "input/output error: the value of \"broken\" does not hold a BlobProto: byte 0 starts no field of "
              "BlobProto" +
                  place);
}

TEST(TensorIo, DescribesWhatItReads) {
  const TempDir dir;
  WriteMiniDb(EveryType(), dir.Path("db"), /*elements_of_chunk=*/2);
  const NamedTensors read = ReadTensors(dir.Path("db"));
  const NamedInfos described = DescribeTensors(dir.Path("db"));
  ASSERT_EQ(described.size(), read.size());
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(described[i].first, read[i].first);
    EXPECT_EQ(described[i].second.Description(), read[i].second.Description());
  }
}

TEST(TensorIo, ReadsIntoTheMemoryThatIsThere) {
  const TempDir dir;
  const NamedTensors written = EveryType();
  WriteMiniDb(written, dir.Path("db"), /*elements_of_chunk=*/2);
  NamedTensors places;
  for (const auto& [name, tensor] : written) places.emplace_back(name, Tensor(tensor.dtype(), tensor.shape()));
  const NamedTensors same_memory = places;
  ReadTensorsInto(dir.Path("db"), places);
  for (size_t i = 0; i < written.size(); ++i) ExpectSame(same_memory[i].second, written[i].second);
  ReadTensorsInto(dir.Path("db"), {places[1]});  // others are left where they are
}

TEST(TensorIo, ReadsIntoWhatFitsAlone) {
  const TempDir dir;
  const std::string path = dir.Path("db");
  WriteMiniDb({{"w", Tensor::Of<float>({2}, {1, 2})}}, path);
  const auto read_into = [&](const char* name, DType dtype, const Shape& shape) {
    ReadTensorsInto(path, {{name, Tensor(dtype, shape)}});
  };
  ExpectError([&] { read_into("w", DType::kFloat, {3}); },
              "input/output error: tensor \"w\" is float [2], float [3] is needed\n  in file " + path);
  ExpectError([&] { read_into("w", DType::kDouble, {2}); },
              "input/output error: tensor \"w\" is float [2], double [2] is needed\n  in file " + path);
  ExpectError([&] { read_into("u", DType::kFloat, {2}); }, "input/output error: " + path + " holds no tensor \"u\"");
}

TEST(TensorIo, NamesTheFile) {
  const TempDir dir;
  ExpectError([&] { ReadTensors(dir.Path("none")); },
              "input/output error: cannot read " + dir.Path("none") + ": No such file or directory");
  NetDef net;
  net.set_name("n");
  net.add_op()->set_type("Relu");
  WriteMessage(net, dir.Path("net.pb"));
  ExpectError([&] { ReadTensors(dir.Path("net.pb")); },
              "input/output error: " + dir.Path("net.pb") + " does not hold a TensorProtos, it looks like a NetDef");
}

TEST(TensorIo, HostileSizesTakeNoMemory) {
  ResetPeakTensorMemory();
  const std::int64_t before = TensorMemory().peak;
  EXPECT_THROW(TensorOf("dims: 1000000000 float_data: 1"), Error);
  EXPECT_EQ(TensorMemory().peak, before);
}

TEST(TensorIo, KeepsTheMemoryLimit) {
  const TensorProto proto = FromText("name: \"x\" dims: 100 raw_data: \"" + std::string(400, 'x') + "\"");
  const LimitedMemory limited(TensorMemory().current + 399);
  ExpectError([&] { TensorFromProto(proto); }, "…out of memory: a tensor float [100] needs 400 bytes; ");
}

TEST(TensorIo, AnyDamageIsAnErrorOrTensors) {
  const TempDir dir;
  WriteTensors(EveryType(), dir.Path("t.pb"));
  WriteMiniDb(EveryType(), dir.Path("t.minidb"), 1);
  const std::vector<std::string> files = {dir.Get("t.pb"), dir.Get("t.minidb")};
  std::mt19937 rng(5);
  for (int i = 0; i < 1000; ++i) {
    std::string damaged = files[i % 2];
    for (int k = 0; k <= i % 3; ++k) damaged[rng() % damaged.size()] = static_cast<char>(rng());
    if (i % 5 == 0) damaged.resize(rng() % damaged.size());
    try {
      ReadTensors(dir.Put("damaged", damaged));
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
    }
  }
}

TEST(TensorIo, ReadsWhatCaffe2Wrote) {
  const NamedTensors tensors = ReadTensors(SourcePath("tests/golden/att_lstm_dot/inputs.pb"));
  ASSERT_FALSE(tensors.empty());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_FALSE(name.empty());
    EXPECT_GT(tensor.size(), 0) << name;
  }
}

}  // namespace
}  // namespace stepnet
