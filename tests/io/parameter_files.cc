#include "stepnet/tests/io/parameter_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "stepnet/core/floating.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/tests/core/source_path.h"
#include "stepnet/tests/core/temp_dir.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

template <typename T>
std::vector<double> Numbers(const Tensor& tensor) {
  return {tensor.data<T>(), tensor.data<T>() + tensor.size()};
}

std::vector<double> NumbersOf(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kFloat: return Numbers<float>(tensor);
    case DType::kDouble: return Numbers<double>(tensor);
    case DType::kInt8: return Numbers<std::int8_t>(tensor);
    case DType::kInt16: return Numbers<std::int16_t>(tensor);
    case DType::kInt32: return Numbers<std::int32_t>(tensor);
    case DType::kInt64: return Numbers<std::int64_t>(tensor);
    case DType::kUInt8: return Numbers<std::uint8_t>(tensor);
    case DType::kUInt16: return Numbers<std::uint16_t>(tensor);
    case DType::kBool: return Numbers<bool>(tensor);
    default: return Numbers<float>(Widened(tensor));
  }
}

const std::map<std::string, DType> kDTypes = {
    {"float32", DType::kFloat}, {"float64", DType::kDouble}, {"float16", DType::kFloat16},  {"int8", DType::kInt8},
    {"int16", DType::kInt16},   {"int32", DType::kInt32},    {"int64", DType::kInt64},      {"uint8", DType::kUInt8},
    {"uint16", DType::kUInt16}, {"bool", DType::kBool},      {"bfloat16", DType::kBFloat16}};
const std::map<std::string, Shape> kShapes = {{"scalar", {}}, {"empty", {0, 4}}, {"lstm/w ü", {3}}};

}  // namespace

std::string ParameterFile(const std::string& name) { return SourcePath("tests/io/files/" + name); }

void ExpectWritten(const Tensor& tensor) {
  const std::vector<double> numbers = NumbersOf(tensor);
  const bool has_no_sign = tensor.dtype() == DType::kUInt8 || tensor.dtype() == DType::kUInt16;
  for (int i = 0; i < std::ssize(numbers); ++i) {
    const int written = i % 5 - 2;
    const int expected = tensor.dtype() == DType::kBool ? written % 2 == 0 : has_no_sign ? std::abs(written) : written;
    EXPECT_EQ(numbers[i], expected) << tensor.Description() << ", element " << i;
  }
}

void ExpectWritten(const NamedTensors& tensors, std::vector<std::string> names) {
  std::vector<std::string> found;
  for (const auto& [name, tensor] : tensors) {
    SCOPED_TRACE(name);
    found.push_back(name);
    const auto dtype = kDTypes.find(name);
    const auto shape = kShapes.find(name);
    EXPECT_EQ(tensor.dtype(), dtype == kDTypes.end() ? DType::kFloat : dtype->second);
    EXPECT_EQ(tensor.shape(), shape == kShapes.end() ? Shape({2, 3}) : shape->second);
    ExpectWritten(tensor);
  }
  std::ranges::sort(found);
  std::ranges::sort(names);
  EXPECT_EQ(found, names);
}

std::vector<std::string> NamesWritten() {
  return {"float32", "float64", "float16", "int8",   "int16", "int32",   "int64",
          "uint8",   "uint16",  "bool",    "scalar", "empty", "lstm/w ü"};
}

void ExpectNoticesCut(const std::string& name,
                      const std::function<void(const std::string& path, const PlaceFinder& cut_off)>& read) {
  const TempDir dir;
  constexpr std::int64_t kBytes = 1 << 22;
  WriteTensors({{"w", Tensor::Zeros(DType::kUInt8, {kBytes})}}, dir.Path(name));
  const auto cut_off = [&](const std::string&, DType dtype, const Shape& shape) {
    std::filesystem::resize_file(dir.Path(name), kBytes / 2);
    return Tensor(dtype, shape);
  };
  ExpectError([&] { read(dir.Path(name), cut_off); }, "…became shorter while it was read");
}

}  // namespace stepnet
