#include "stepnet/core/tensor.h"

#include <bit>
#include <cmath>
#include <limits>
#include <thread>

#include "limited_memory.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

const std::vector<DType> kTypes = {DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBFloat16,
                                   DType::kInt8,  DType::kInt16,  DType::kInt32,   DType::kInt64,
                                   DType::kUInt8, DType::kUInt16, DType::kBool,    DType::kString};

TEST(Tensor, HasTypeShapeAndElements) {
  const Tensor tensor = Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(tensor.Description(), "float [2, 3]");
  EXPECT_EQ(tensor.size(), 6);
  EXPECT_EQ(tensor.size_bytes(), 24);
  EXPECT_EQ(tensor.dim(-1), 3);
  EXPECT_EQ(tensor.data<float>()[5], 6);
  EXPECT_FALSE(Tensor().defined());
  EXPECT_EQ(Tensor().Description(), "nothing");
  EXPECT_FALSE(Tensor().Clone().defined());
}

TEST(Tensor, RefusesOtherTypes) {
  const Tensor tensor = Tensor::Of<float>({2}, {1, 2});
  ExpectError([&] { tensor.data<std::int32_t>(); }, "type mismatch: a tensor is float [2] where int32 is needed");
  ExpectError([&] { tensor.View().As<double>(); }, "type mismatch: a tensor is float [2] where double is needed");
}

TEST(Tensor, RefusesAnotherNumberOfElements) {
  ExpectError(
      [] {
        Tensor::Of<float>({2}, {1, 2, 3});
      },
      "shape mismatch: a tensor float [3] has 3 elements and cannot be seen as [2] with 2");
}

TEST(Tensor, ZerosAreZero) {
  for (const DType dtype : kTypes) {
    const Tensor tensor = Tensor::Zeros(dtype, {3});
    EXPECT_EQ(tensor.dtype(), dtype);
    if (dtype == DType::kString) {
      EXPECT_EQ(tensor.data<std::string>()[2], "");
    } else {
      const auto* bytes = static_cast<const unsigned char*>(tensor.raw());
      EXPECT_EQ(std::count(bytes, bytes + tensor.size_bytes(), 0), tensor.size_bytes()) << dtype;
    }
  }
}

TEST(Tensor, NoElementsHaveAnAddress) {
  for (const DType dtype : kTypes) {
    const Tensor tensor(dtype, {0, 4});
    EXPECT_TRUE(tensor.defined());
    EXPECT_NE(tensor.raw(), nullptr);
    EXPECT_EQ(tensor.size_bytes(), 0);
    EXPECT_EQ(tensor.Clone().shape(), Shape({0, 4}));
    EXPECT_EQ(tensor.Slice(0, 0).shape(), Shape({0, 4}));
  }
}

TEST(Tensor, IsAligned) {
  for (const std::int64_t size : {1, 3, 100}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(Tensor(DType::kUInt8, {size}).raw()) % 64, 0u);
  }
}

TEST(Tensor, SlicesShareMemory) {
  const Tensor tensor = Tensor::Of<std::int32_t>({3, 2}, {1, 2, 3, 4, 5, 6});
  const Tensor rows = tensor.Slice(1, 3);
  EXPECT_EQ(rows.shape(), Shape({2, 2}));
  EXPECT_TRUE(rows.SharesStorageWith(tensor));
  EXPECT_EQ(rows.data<std::int32_t>()[0], 3);
  rows.data<std::int32_t>()[3] = 60;
  EXPECT_EQ(tensor.data<std::int32_t>()[5], 60);
  EXPECT_EQ(rows.Slice(1, 2).data<std::int32_t>()[0], 5);
  EXPECT_EQ(tensor.Slice(3, 3).shape(), Shape({0, 2}));
  EXPECT_EQ(rows.CapacityBytes(), 16);
}

TEST(Tensor, SlicesStayInside) {
  const Tensor tensor(DType::kFloat, {3, 2});
  ExpectError([&] { tensor.Slice(-1, 2); }, "shape mismatch: rows [-1, 2) of a tensor float [3, 2]");
  ExpectError([&] { tensor.Slice(0, 4); }, "shape mismatch: rows [0, 4) of a tensor float [3, 2]");
  ExpectError([&] { tensor.Slice(2, 1); }, "shape mismatch: rows [2, 1) of a tensor float [3, 2]");
  ExpectError([] { Tensor(DType::kFloat, {}).Slice(0, 1); }, "shape mismatch: rows [0, 1) of a tensor float []");
  ExpectError([] { Tensor().Slice(0, 0); }, "shape mismatch: rows [0, 0) of a tensor nothing");
}

TEST(Tensor, ReshapesWithoutCopying) {
  const Tensor tensor(DType::kFloat, {3, 2});
  EXPECT_EQ(tensor.Reshaped({6}).raw(), tensor.raw());
  EXPECT_EQ(tensor.Reshaped({1, 6, 1}).shape(), Shape({1, 6, 1}));
  ExpectError([&] { tensor.Reshaped({5}); },
              "shape mismatch: a tensor float [3, 2] has 6 elements and cannot be seen as [5] with 5");
}

TEST(Tensor, ClonesAreIndependent) {
  for (const Tensor& tensor : {Tensor::Of<float>({2}, {1, 2}), Tensor::Of<float>({4}, {0, 1, 2, 3}).Slice(1, 3)}) {
    const Tensor copy = tensor.Clone();
    EXPECT_FALSE(copy.SharesStorageWith(tensor));
    copy.data<float>()[0] = 9;
    EXPECT_EQ(tensor.data<float>()[0], 1);
  }
  const Tensor words = Tensor::Of<std::string>({2}, {"one", std::string(100, 'x')});
  EXPECT_EQ(words.Clone().data<std::string>()[1], words.data<std::string>()[1]);
}

TEST(Tensor, KnowsWhetherItIsAlone) {
  Tensor tensor(DType::kFloat, {2});
  EXPECT_TRUE(tensor.OwnsStorageAlone());
  {
    const Tensor view = tensor.Slice(0, 1);
    EXPECT_FALSE(tensor.OwnsStorageAlone());
    EXPECT_FALSE(view.OwnsStorageAlone());
  }
  EXPECT_TRUE(tensor.OwnsStorageAlone());
  EXPECT_FALSE(Tensor().OwnsStorageAlone());
}

TEST(Tensor, ReinterpretsMemoryThatSuffices) {
  const Tensor tensor(DType::kFloat, {6});
  EXPECT_EQ(tensor.Reinterpreted(DType::kDouble, {3}).raw(), tensor.raw());
  EXPECT_EQ(tensor.Reinterpreted(DType::kUInt8, {2, 3}).Description(), "uint8 [2, 3]");
  EXPECT_EQ(tensor.At(8, DType::kFloat, {4}).raw(), tensor.data<float>() + 2);
  EXPECT_EQ(tensor.At(24, DType::kFloat, {0}).size(), 0);
  const auto refuses = [](const Tensor& from, std::int64_t offset, DType dtype, const Shape& shape,
                          const std::string& what) {
    ExpectError([&] { from.At(offset, dtype, shape); },
                "shape mismatch: a tensor " + what + " bytes of one that is " + from.Description());
  };
  refuses(tensor, 0, DType::kDouble, {4}, "double [4] does not fit, 0 bytes in, into the 24");
  refuses(tensor, 8, DType::kFloat, {5}, "float [5] does not fit, 8 bytes in, into the 24");
  refuses(tensor, 25, DType::kFloat, {0}, "float [0] does not fit, 25 bytes in, into the 24");
  refuses(tensor, INT64_MIN, DType::kFloat, {1}, "float [1] does not fit, -9223372036854775808 bytes in, into the 24");
  refuses(tensor.Slice(2, 6), 0, DType::kFloat, {5}, "float [5] does not fit, 0 bytes in, into the 16");
  refuses(tensor, 0, DType::kFloat, {std::int64_t{1} << 62},
          "float [4611686018427387904] does not fit, 0 bytes in, into the 24");
  refuses(tensor, 0, DType::kString, {0}, "string [0] does not fit, 0 bytes in, into the 24");
  const Tensor words = Tensor::Of<std::string>({2}, {"one", "two"});
  EXPECT_EQ(words.At(sizeof(std::string), DType::kString, {1}).data<std::string>()[0], "two");
  EXPECT_THROW(words.At(0, DType::kUInt8, {1}), Error);
  EXPECT_THROW(words.At(8, DType::kString, {1}), Error);
}

TEST(Tensor, WrapsMemoryOfSomebodyElseUntilNobodyShowsIt) {
  const std::vector<float> memory = {1, 2, 3, 4, 5, 6};
  const std::int64_t before = TensorMemory().current;
  int released = 0;
  {
    Tensor row;
    {
      const Tensor tensor = Tensor::Wrap(memory.data(), DType::kFloat, {2, 3}, [&] { ++released; });
      EXPECT_EQ(tensor.Description(), "float [2, 3]");
      EXPECT_EQ(tensor.raw(), memory.data());
      EXPECT_EQ(tensor.CapacityBytes(), 24);
      EXPECT_EQ(TensorMemory().current, before);
      EXPECT_TRUE(tensor.IsLent());
      EXPECT_FALSE(tensor.Clone().IsLent());
      row = tensor.Slice(1, 2);
    }
    EXPECT_EQ(released, 0);
    EXPECT_EQ(row.data<float>()[2], 6);
  }
  EXPECT_EQ(released, 1);
  EXPECT_NO_THROW(Tensor::Wrap(memory.data(), DType::kFloat, {6}));
}

TEST(Tensor, WrapsNoElementsAndNoStrings) {
  const Tensor nothing = Tensor::Wrap(nullptr, DType::kFloat, {0, 4});
  EXPECT_NE(nothing.raw(), nullptr);
  EXPECT_EQ(nothing.Description(), "float [0, 4]");
  const std::string text = "a";
  int released = 0;
  ExpectError([&] { Tensor::Wrap(&text, DType::kString, {1}, [&] { ++released; }); },
              "type mismatch: strings [1] of somebody else cannot be a tensor");
  EXPECT_EQ(released, 0);
}

TEST(Tensor, LentMemoryIsNotWritten) {
  const std::vector<float> memory = {-1, 2};
  Workspace workspace;
  Blob& x = workspace.CreateBlob("x");
  x.SetTensor(Tensor::Wrap(memory.data(), DType::kFloat, {2}));
  EXPECT_FALSE(x.GetTensor().OwnsStorageAlone());
  NetDef net;
  OperatorDef& op = *net.add_op();
  op.set_type("Relu");
  op.add_input("x");
  op.add_output("x");
  ExpectError([&] { RunNetOnce(net, workspace); },
              "…blob \"x\" holds memory that is lent to be read (Tensor::Wrap), which an operator cannot write in "
              "place; let it write another blob, or give the blob a copy");
  op.set_output(0, "y");
  RunNetOnce(net, workspace);
  EXPECT_EQ(workspace.GetTensor("y").data<float>()[0], 0);
  EXPECT_NE(x.MakeTensor(DType::kFloat, {2}).raw(), memory.data());
  EXPECT_EQ(memory[0], -1);
}

TEST(Tensor, CountsItsMemory) {
  const std::int64_t before = TensorMemory().current;
  ResetPeakTensorMemory();
  {
    const Tensor a(DType::kFloat, {1000});
    EXPECT_EQ(TensorMemory().current, before + 4000);
    const Tensor view = a.Slice(10, 20);  // is no memory of its own
    {
      const Tensor b(DType::kDouble, {1000});
      EXPECT_EQ(TensorMemory().current, before + 12000);
    }
    EXPECT_EQ(TensorMemory().current, before + 4000);
  }
  EXPECT_EQ(TensorMemory().current, before);
  EXPECT_EQ(TensorMemory().peak, before + 12000);
  ResetPeakTensorMemory();
  EXPECT_EQ(TensorMemory().peak, before);
}

TEST(Tensor, KeepsTheMemoryLimit) {
  const std::int64_t before = TensorMemory().current;
  const LimitedMemory limited(before + 100);
  const Tensor fits(DType::kUInt8, {100});
  ExpectError(
      [] { Tensor(DType::kUInt8, {1}); },
      StrCat("out of memory: a tensor uint8 [1] needs 1 bytes; ", before + 100, " of the allowed ", before + 100,
             " are in use (raise the limit with --max_memory of rnn_runner, stepnet.set_max_memory of Python or "
             "SetTensorMemoryLimit)"));
  EXPECT_EQ(TensorMemory().current, before + 100);
  const std::int64_t huge = std::int64_t{1} << 62;
  ExpectError([&] { Tensor(DType::kDouble, {huge}); },
              "out of memory: a tensor double [4611686018427387904] needs more than 2^63 bytes");
  EXPECT_EQ(TensorMemory().current, before + 100);
}

TEST(Tensor, DefaultLimitIsTheMachinesMemory) {
  EXPECT_GT(TensorMemory().limit, 0);
  EXPECT_THROW(Tensor(DType::kUInt8, {std::numeric_limits<std::int64_t>::max()}), Error);
}

TEST(Tensor, MemoryIsCountedByManyThreads) {
  const std::int64_t before = TensorMemory().current;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 1000; ++i) Tensor(DType::kUInt8, {i % 7});
      });
    }
  }
  EXPECT_EQ(TensorMemory().current, before);
}

TEST(Tensor, TypesHaveNamesAndSizes) {
  const std::vector<std::int64_t> bytes = {4, 8, 2, 2, 1, 2, 4, 8, 1, 2, 1, sizeof(std::string)};
  const std::vector<std::string> names = {"float", "double", "float16", "bfloat16", "int8", "int16",
                                          "int32", "int64",  "uint8",   "uint16",   "bool", "string"};
  for (size_t i = 0; i < kTypes.size(); ++i) {
    EXPECT_EQ(DTypeBytes(kTypes[i]), bytes[i]);
    EXPECT_EQ(DTypeName(kTypes[i]), names[i]);
  }
}

// The value of a finite number with `fraction` bits of fraction, by the definition in IEEE 754.
double ValueOf(int bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const double fraction = std::ldexp(bits & ((1 << fraction_bits) - 1), -fraction_bits);
  const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return (bits >> (exponent_bits + fraction_bits)) != 0 ? -magnitude : magnitude;
}

// Every value of a 16-bit type, and the floats around the middle between each and the next.
template <typename T>
void CheckConversions(int exponent_bits, int fraction_bits, T (*from_float)(float)) {
  const int infinity = ((1 << exponent_bits) - 1) << fraction_bits;
  for (int sign : {0, 0x8000}) {
    for (int magnitude = 0; magnitude < infinity; ++magnitude) {
      const T value{static_cast<std::uint16_t>(sign | magnitude)};
      const double exact = ValueOf(value.bits, exponent_bits, fraction_bits);
      ASSERT_EQ(ToFloat(value), exact) << value.bits;
      ASSERT_EQ(std::signbit(ToFloat(value)), sign != 0);
      ASSERT_EQ(from_float(ToFloat(value)).bits, value.bits);
      // The largest finite value is followed by one that a wider exponent would have.
      const double next = magnitude + 1 < infinity ? ValueOf(value.bits + 1, exponent_bits, fraction_bits)
                                                   : std::copysign(std::ldexp(1.0, 1 << (exponent_bits - 1)), exact);
      const auto middle = static_cast<float>((exact + next) / 2);
      if (std::isinf(middle) || static_cast<double>(middle) != (exact + next) / 2) continue;
      const int even = magnitude % 2 == 0 ? magnitude : magnitude + 1;
      ASSERT_EQ(from_float(middle).bits, sign | even) << "middle after " << value.bits;
      ASSERT_EQ(from_float(std::nextafter(middle, 0.0f)).bits, value.bits);
      const float outward =
          sign != 0 ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
      ASSERT_EQ(from_float(std::nextafter(middle, outward)).bits, sign | (magnitude + 1));
    }
    const float huge = sign != 0 ? -std::numeric_limits<float>::max() : std::numeric_limits<float>::max();
    ASSERT_EQ(from_float(huge).bits, sign | infinity);
    ASSERT_EQ(ToFloat(T{static_cast<std::uint16_t>(sign | infinity)}), huge * 2);
    ASSERT_EQ(from_float(huge * 2).bits, sign | infinity);
    for (int nan = infinity + 1; nan < 0x8000; ++nan) {
      const T value{static_cast<std::uint16_t>(sign | nan)};
      ASSERT_TRUE(std::isnan(ToFloat(value)));
      const int back = from_float(ToFloat(value)).bits;
      ASSERT_GT(back & 0x7fff, infinity) << nan;
    }
  }
  // A NaN whose payload is in the bits that are cut off stays one.
  const int back = from_float(std::bit_cast<float>(0x7f800001u)).bits;
  EXPECT_GT(back & 0x7fff, infinity);
}

TEST(Float16, ConvertsEveryValueBothWays) { CheckConversions<Float16>(5, 10, ToFloat16); }
TEST(BFloat16, ConvertsEveryValueBothWays) { CheckConversions<BFloat16>(8, 7, ToBFloat16); }

TEST(Float16, TinyValuesBecomeZero) {
  EXPECT_EQ(ToFloat16(1e-30f).bits, 0);
  EXPECT_EQ(ToFloat16(-1e-30f).bits, 0x8000);
  EXPECT_EQ(ToFloat16(0x1p-25f).bits, 0);  // the middle between 0 and the smallest: even
  EXPECT_EQ(ToFloat16(std::nextafter(0x1p-25f, 1.0f)).bits, 1);
}

TEST(Tensor, AConstantStorageHasANumberOfItsOwn) {
  const Tensor tensor = Tensor::Zeros(DType::kFloat, {2, 3}), other = Tensor::Zeros(DType::kFloat, {2, 3});
  EXPECT_EQ(tensor.ConstantId(), 0);
  EXPECT_TRUE(other.OwnsStorageAlone());
  tensor.Slice(1, 2).SetConstant();
  other.SetConstant();
  const std::uint64_t id = tensor.ConstantId();
  EXPECT_NE(id, 0);
  EXPECT_EQ(tensor.Reshaped({6}).ConstantId(), id);
  EXPECT_NE(other.ConstantId(), id);
  EXPECT_FALSE(other.OwnsStorageAlone());
  tensor.SetConstant();
  EXPECT_EQ(tensor.ConstantId(), id);
  EXPECT_EQ(tensor.Clone().ConstantId(), 0);
  Tensor().SetConstant();
  EXPECT_EQ(Tensor().ConstantId(), 0);
}

}  // namespace
}  // namespace stepnet
