#include "stepnet/io/npz.h"

#include <zlib.h>

#include <cstring>
#include <random>

#include "stepnet/io/file.h"
#include "stepnet/io/npy.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/io/zip_archive.h"
#include "stepnet/tests/core/limited_memory.h"
#include "stepnet/tests/core/temp_dir.h"
#include "stepnet/tests/io/damaged_files.h"
#include "stepnet/tests/io/parameter_files.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

template <typename T>
void Append(T number, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&number), sizeof(T));
}

std::string Deflated(const std::string& content) {
  z_stream stream = {};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// An entry of an archive, and what the archive says of it.
struct Entry {
  std::string name;
  std::string content;
  int method = 0;
  std::uint32_t bytes = 0;
  std::uint32_t checksum = 0;
  int flags = 0;
  std::string local_name = name;
  std::int64_t header_shift = 0;  // of the place that the directory says
};

Entry EntryOf(const std::string& name, const std::string& content, int method = 0) {
  Entry entry{.name = name, .content = method == 0 ? content : Deflated(content), .method = method};
  entry.bytes = static_cast<std::uint32_t>(content.size());
  entry.checksum =
      static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()));
  return entry;
}

std::string FieldsOf(const Entry& entry, const std::string& name) {
  std::string fields;
  Append(std::uint16_t{20}, &fields);
  Append(static_cast<std::uint16_t>(entry.flags), &fields);
  Append(static_cast<std::uint16_t>(entry.method), &fields);
  Append(std::uint32_t{0}, &fields);
  Append(entry.checksum, &fields);
  Append(static_cast<std::uint32_t>(entry.content.size()), &fields);
  Append(entry.bytes, &fields);
  Append(static_cast<std::uint16_t>(name.size()), &fields);
  Append(std::uint16_t{0}, &fields);
  return fields;
}

std::string Zip(const std::vector<Entry>& entries) {
  std::string file, directory;
  for (const Entry& entry : entries) {
    directory += std::string("PK\1\2\0\0", 6) + FieldsOf(entry, entry.name) + std::string(10, '\0');
    Append(static_cast<std::uint32_t>(static_cast<std::int64_t>(file.size()) + entry.header_shift), &directory);
    directory += entry.name;
    file += "PK\3\4" + FieldsOf(entry, entry.local_name) + entry.local_name + entry.content;
  }
  const auto at = static_cast<std::uint32_t>(file.size());
  file += directory + std::string("PK\5\6\0\0\0\0", 8);
  for (int k = 0; k < 2; ++k) Append(static_cast<std::uint16_t>(entries.size()), &file);
  Append(static_cast<std::uint32_t>(directory.size()), &file);
  Append(at, &file);
  return file + std::string(2, '\0');
}

// A .npy of zeros, whose header says `shape`.
std::string Zeros(const std::string& shape, size_t bytes) {
  std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (" + shape + ",), }";
  std::string npy = std::string("\x93NUMPY\1\0", 8);
  Append(static_cast<std::uint16_t>(header.size()), &npy);
  return npy + header + std::string(bytes, '\0');
}

TEST(Npz, ReadsWhatNumPyWrites) {
  ExpectWritten(ReadTensors(ParameterFile("stored.npz")), NamesWritten());
  const auto is_plain = [](const std::string& name) { return name != "fortran" && name != "big" && name != "text"; };
  ExpectWritten(ReadTensors(ParameterFile("deflated.npz"), is_plain), NamesWritten());
  const NamedTensors others =
      ReadTensors(ParameterFile("deflated.npz"), [&](const std::string& name) { return !is_plain(name); });
  ASSERT_EQ(others.size(), 3u);
  for (const auto& [name, tensor] : others) {
    if (name != "text") ExpectWritten(tensor);
  }
  EXPECT_EQ(others[2].second.data<std::string>()[1], "ü");
}

TEST(Npz, ReadsSizesOf64BitsAndSizesBehindTheData) {
  ExpectWritten(ReadTensors(ParameterFile("zip64.npz")), {"float32", "int64"});
  ExpectWritten(ReadTensors(ParameterFile("streamed.npz")), {"float32"});
}

TEST(Npz, KeepsWhatItIsGivenAndGivesEqualBytes) {
  const TempDir dir;
  NamedTensors tensors = ReadTensors(ParameterFile("every_type.safetensors"));
  tensors.emplace_back("text", Tensor::Of<std::string>({2}, {"a", "ü"}));
  WriteTensors(tensors, dir.Path("a.npz"));
  WriteTensors(tensors, dir.Path("b.npz"));
  EXPECT_EQ(dir.Get("a.npz"), dir.Get("b.npz"));
  NamedTensors read = ReadTensors(dir.Path("a.npz"));
  ASSERT_EQ(read.size(), tensors.size());
  EXPECT_EQ(read.back().second.data<std::string>()[1], "ü");
  read.pop_back();
  for (auto& [name, tensor] : read) {
    if (name == "bfloat16") {  // which NumPy does not have
      EXPECT_EQ(tensor.dtype(), DType::kFloat);
      name = "float32";
    }
    ExpectWritten(tensor);
  }
  EXPECT_EQ(read[0].first, tensors[0].first);
  ExpectError(
      [&] {
        WriteTensors({tensors[0], tensors[0]}, dir.Path("c.npz"));
      },
      "…c.npz: two tensors are called \"int64\"");
}

TEST(Npz, TakesMoreEntriesThan16BitsCount) {
  const TempDir dir;
  constexpr std::int64_t kCount = 65'536;
  NamedTensors tensors;
  const Tensor row = Tensor::Of<std::uint8_t>({1}, {7});
  for (std::int64_t i = 0; i < kCount; ++i) tensors.emplace_back(std::to_string(i), row);
  WriteTensors(tensors, dir.Path("many.npz"));
  EXPECT_EQ(std::ssize(DescribeTensors(dir.Path("many.npz"))), kCount);
}

TEST(Npz, DescribesAndReadsIntoPlaces) {
  const std::string path = ParameterFile("deflated.npz");
  EXPECT_EQ(DescribeTensors(path).size(), 16u);
  const Tensor place = Tensor::Zeros(DType::kFloat, {2, 3});
  ReadTensorsInto(path, {{"fortran", place}});
  ExpectWritten(place);
  EXPECT_EQ(DetectKind(path), MessageKind::kNpz);
  EXPECT_TRUE(HoldsOnlyTensors(path));
}

TEST(Npz, RefusesArchivesThatHoldSomethingElse) {
  const TempDir dir;
  const auto expect = [&](const std::vector<Entry>& entries, const std::string& message) {
    const std::string path = dir.Put("a.npz", Zip(entries));
    ExpectError([&] { ReadTensors(path); }, "input/output error: " + path + message);
    ExpectError([&] { DescribeTensors(path); }, "input/output error: " + path + message);
  };
  const std::string npy = Zeros("4", 4);
  expect({EntryOf("w.txt", npy)},
         " is a zip archive with the entry \"w.txt\", which is no .npy: arrays of a .npz file are");
  expect({EntryOf("archive/data.pkl", npy)},
         " is a zip archive with the entry \"archive/data.pkl\", which is no .npy: arrays of a .npz file are (is it a "
         "checkpoint of PyTorch? safetensors.torch.save_file writes its tensors in a form that needs no Python to be "
         "read)");
  expect({EntryOf("w.npy", npy), EntryOf("w.npy", npy)}, " holds \"w.npy\" twice");
  expect({EntryOf("w.npy", "no array")}, "/w.npy is no .npy file");
  expect({EntryOf("w.npy", Zeros("5", 4))},
         "/w.npy: an array '|u1' [5] has 5 elements of 1 bytes, the file has 4 bytes of them");
  Entry entry = EntryOf("w.npy", npy);
  entry.flags = 1;
  expect({entry}, "/w.npy: it is encrypted, which is not supported");
  entry = EntryOf("w.npy", npy);
  entry.method = 14;
  expect({entry}, "/w.npy: it is packed by method 14; 0 (stored) and 8 (deflated) are supported");
  entry = EntryOf("w.npy", npy);
  entry.local_name = "u.npy";
  expect({entry}, "/w.npy: its header in the zip archive is not what the directory says");
  entry = EntryOf("w.npy", npy, 8);
  entry.checksum ^= 1;
  expect({entry}, "/w.npy: it is damaged: its checksum differs");
  EXPECT_TRUE(ReadTensors(dir.Put("empty.npz", Zip({}))).empty());
}

TEST(Npz, InflatesNoMoreThanTheHeadersSay) {
  const TempDir dir;
  const auto expect = [&](const Entry& entry, const std::string& message) {
    const std::string path = dir.Put("a.npz", Zip({entry}));
    const LimitedMemory limited(TensorMemory().current + (1 << 20));
    ExpectError([&] { ReadTensors(path); }, "input/output error: " + path + message);
  };
  const std::string small = Zeros("4", 4);
  Entry bomb = EntryOf("w.npy", Zeros("4", 1 << 28), 8);
  bomb.bytes = static_cast<std::uint32_t>(small.size());
  expect(bomb, "/w.npy: it inflates to more than the " + std::to_string(small.size()) + " bytes that the archive says");
  Entry empty = EntryOf("w.npy", small, 8);
  empty.bytes += 1000;
  expect(empty, "/w.npy: an array '|u1' [4] has 4 elements of 1 bytes, the file has 1004 bytes of them");
  Entry larger = EntryOf("w.npy", Zeros("1004", 4), 8);
  larger.bytes += 1000;
  expect(larger,
         "/w.npy: it inflates to fewer than the " + std::to_string(larger.bytes) + " bytes that the archive says");
  larger.bytes = 1'000'000'000;
  expect(larger, ": the zip archive is damaged or cut off: the length of an entry is 1000000000, beyond " +
                     std::to_string(1032 * larger.content.size()));
  Entry cut = EntryOf("w.npy", Zeros("1004", 1004), 8);
  cut.content.resize(cut.content.size() - 2);
  expect(cut, "/w.npy: its packed bytes are damaged or cut off");
}

TEST(Npz, RefusesDirectoriesThatLieOutsideOfTheFile) {
  const TempDir dir;
  const auto expect = [&](const std::string& bytes, const std::string& message) {
    const std::string path = dir.Put("a.npz", bytes);
    ExpectError([&] { ReadTensors(path); },
                "input/output error: " + path + ": the zip archive is damaged or cut off: " + message);
  };
  const std::string whole = Zip({EntryOf("w.npy", Zeros("4", 4))});
  const size_t end = whole.size() - 22;
  std::string damaged = whole;
  damaged[end + 10] = 2;
  expect(damaged, "the number of its entries is 2, beyond 1");
  damaged = whole;
  damaged[end + 12] += 1;
  expect(damaged, "the length of its directory is 52, beyond 51");
  damaged = whole;
  damaged[end + 19] = 1;
  expect(damaged,
         "the place of its directory is " + std::to_string((1 << 24) + end - 51) + ", beyond " + std::to_string(end));
  // Sizes of 64 bits are said to be in a record for which there is no room.
  std::string in_64 = "PK\3\4" + std::string("PK\6\7") + std::string(12, '\0') + std::string("\1\0\0\0", 4) +
                      std::string("PK\5\6\0\0\0\0", 8) + std::string(12, '\xff') + std::string(2, '\0');
  expect(in_64, "the end of its directory is 0, beyond -52");
}

TEST(Npz, EntriesShareNoBytes) {
  const TempDir dir;
  const std::string npy = Zeros("4", 4);
  Entry second = EntryOf("u.npy", npy);
  second.header_shift = -3;
  const std::string path = dir.Put("a.npz", Zip({EntryOf("w.npy", npy), second}));
  ExpectError([&] { ReadTensors(path); },
              "input/output error: " + path + ": the entry \"w.npy\" of the zip archive overlaps what lies behind it");
}

TEST(Npz, NoticesThatTheFileBecomesShorter) {
  ExpectNoticesCut("w.npz", [](const std::string& path, const PlaceFinder& cut_off) { ReadNpz(path, {}, cut_off); });
}

TEST(Npz, TakesNoMoreMemoryThanIsAllowed) {
  const TempDir dir;
  const std::string path = dir.Put("a.npz", Zip({EntryOf("w.npy", Zeros("2000000", 2'000'000), 8)}));
  const LimitedMemory limited(TensorMemory().current + (1 << 20));
  ExpectError([&] { ReadTensors(path); },
              "…out of memory: " + path +
                  "/w.npy: there is no memory for the tensor \"w\": a tensor uint8 [2000000] needs 2000000 bytes; ");
}

TEST(Npz, CountsCharactersOfStrings) {
  const TempDir dir;
  const auto strings = [](const std::string& shape, size_t bytes) {
    std::string npy = Zeros(shape, bytes);
    return npy.replace(npy.find("|u1"), 3, "|S9");
  };
  const LimitedMemory limited(1 << 20);
  const std::string many = dir.Put("many.npz", Zip({EntryOf("s.npy", strings("200000", 1'800'000), 8)}));
  ExpectError([&] { ReadTensors(many); },
              "…out of memory: " + many + "/s.npy: strings [200000] of 9 bytes each take 1800000 bytes; 1048576 are ");
  std::string none = strings("0", 0);
  none.replace(none.find("|S9"), 3, "<U999999999");
  none[8] = static_cast<char>(none[8] + 8);  // the length of the header
  ReadTensors(dir.Put("none.npz", Zip({EntryOf("s.npy", none)})));
}

TEST(Npz, AnyDamageIsAnErrorOrTensors) {
  const TempDir dir;
  std::mt19937 random(3);
  for (const char* name : {"stored.npz", "deflated.npz", "zip64.npz", "streamed.npz"}) {
    const std::string whole = ReadFile(ParameterFile(name));
    for (size_t length = 4; length < whole.size(); length += 37) {
      EXPECT_THROW(ReadTensors(dir.Put("cut", whole.substr(0, length))), Error) << name << ", " << length;
    }
    const LimitedMemory limited(TensorMemory().current + (1 << 20));
    EXPECT_GT(ReadsDespiteDamage(dir, whole, 250, random), 2) << name;
  }
}

}  // namespace
}  // namespace stepnet
