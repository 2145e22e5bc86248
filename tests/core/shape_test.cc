#include "stepnet/core/shape.h"

#include <algorithm>
#include <sstream>

#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

constexpr std::int64_t kBig = std::int64_t{1} << 62;

TEST(Shape, KnowsItsSizes) {
  const Shape shape({2, 3, 4});
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.size(), 24);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[-1], 4);
  EXPECT_EQ(shape.SizeTo(0), 1);
  EXPECT_EQ(shape.SizeTo(2), 6);
  EXPECT_EQ(shape.SizeFrom(1), 12);
  EXPECT_EQ(shape.SizeFrom(3), 1);
  EXPECT_EQ(shape.ToVector(), (std::vector<std::int64_t>{2, 3, 4}));
  EXPECT_EQ(shape.ToString(), "[2, 3, 4]");
  std::ostringstream out;
  out << shape << Shape();
  EXPECT_EQ(out.str(), "[2, 3, 4][]");
}

TEST(Shape, AScalarHasOneElementAndAnEmptyTensorNone) {
  EXPECT_EQ(Shape().rank(), 0);
  EXPECT_EQ(Shape().size(), 1);
  EXPECT_EQ(Shape({0}).size(), 0);
  EXPECT_EQ(Shape({3, 0, 5}).size(), 0);
  EXPECT_EQ(Shape({3, 0, 5}).SizeFrom(2), 5);
}

TEST(Shape, IsEqualWhereAllSizesAre) {
  std::vector<Shape> shapes = {Shape()};
  const std::vector<std::int64_t> sizes = {0, 1, 2, 127, 128, 255, 256, 1023, 1024, 4096, 32767, 32768, 1 << 20};
  for (const std::int64_t a : sizes) {
    for (const std::int64_t b : sizes) {
      shapes.insert(shapes.end(),
                    {{a}, {a, b}, {a, b, a}, {b, a, 1}, {a, 1, 1, b}, {1, a, 1, 1, b}, {0, a, b, 1, 1, 1}});
      shapes.insert(shapes.end(), {{a, 1, 1, 1, 1, 1, b}, {1, 1, 1, a, 1, 1, 1, b}, {b << 12, a}, {1, a << 25}});
    }
  }
  for (const Shape& a : shapes) {
    for (const Shape& b : shapes) ASSERT_EQ(a == b, std::ranges::equal(a.dims(), b.dims())) << a << " and " << b;
  }
}

TEST(Shape, Compares) {
  EXPECT_EQ(Shape({2, 3}), Shape(std::vector<std::int64_t>{2, 3}));
  EXPECT_NE(Shape({2, 3}), Shape({3, 2}));
  EXPECT_NE(Shape({6}), Shape({6, 1}));
  EXPECT_NE(Shape(), Shape({1}));
  EXPECT_NE(Shape({0, 2}), Shape({0, 3}));
}

TEST(Shape, MakesOthers) {
  const Shape shape({2, 3, 4});
  EXPECT_EQ(shape.With(1, 9), Shape({2, 9, 4}));
  EXPECT_EQ(shape.With(-1, 9), Shape({2, 3, 9}));
  EXPECT_EQ(shape.Inserted(0, 9), Shape({9, 2, 3, 4}));
  EXPECT_EQ(shape.Inserted(3, 9), Shape({2, 3, 4, 9}));
  EXPECT_EQ(shape.Without(1), Shape({2, 4}));
  EXPECT_EQ(shape.Without(-1), Shape({2, 3}));
  EXPECT_EQ(shape.Tail(), Shape({3, 4}));
  EXPECT_EQ(Shape({5}).Tail(), Shape());
}

TEST(Shape, RefusesDimensionsThatItDoesNotHave) {
  const Shape shape({3, 5});
  EXPECT_EQ(shape[-2], 3);
  for (const int i : {2, -3, 100'000'000}) {
    ExpectError([&] { static_cast<void>(shape[i]); },
                StrCat("shape mismatch: dimension ", i, " of [3, 5], which has 2 dimensions"));
  }
  ExpectError([] { static_cast<void>(Shape()[0]); }, "shape mismatch: dimension 0 of [], which has 0 dimensions");
}

TEST(Shape, RefusesNegativeSizes) {
  ExpectError([] { Shape({2, -1}); }, "shape mismatch: dimension 1 of [2, -1] is negative");
  ExpectError([] { Shape({2, 3}).With(0, -7); }, "shape mismatch: dimension 0 of [-7, 3] is negative");
}

TEST(Shape, RefusesMoreElementsThanInt64Counts) {
  ExpectError(
      [] {
        Shape({kBig, 2});
      },
      "shape mismatch: the sizes of [4611686018427387904, 2] multiply to more than 2^63");
  EXPECT_EQ(Shape({kBig}).size(), kBig);
  // Also where there are no elements, so that products of some sizes never overflow.
  ExpectError(
      [] {
        Shape({0, kBig, 2});
      },
      "shape mismatch: the sizes of [0, 4611686018427387904, 2] multiply to more than 2^63");
  ExpectError(
      [] {
        Shape({kBig, 2, 0});
      },
      "shape mismatch: the sizes of [4611686018427387904, 2, 0] multiply to more than 2^63");
}

TEST(Shape, RefusesMoreThanEightDimensions) {
  EXPECT_EQ(Shape({1, 1, 1, 1, 1, 1, 1, 1}).rank(), 8);
  ExpectError(
      [] {
        Shape({1, 1, 1, 1, 1, 1, 1, 1, 1});
      },
      "shape mismatch: a tensor of 9 dimensions; at most 8 are supported");
  ExpectError(
      [] {
        Shape({1, 1, 1, 1, 1, 1, 1, 1}).Inserted(0, 1);
      },
      "shape mismatch: a tensor of 9 dimensions; at most 8 are supported");
}

TEST(Shape, CountsAxesFromTheEnd) {
  const Shape shape({2, 3});
  EXPECT_EQ(shape.CanonicalAxis(1), 1);
  EXPECT_EQ(shape.CanonicalAxis(-2), 0);
  ExpectError([&] { shape.CanonicalAxis(2); },
              "invalid argument: axis is 2, but the tensor is [2, 3] and has 2 dimensions");
  ExpectError([&] { shape.CanonicalAxis(INT64_MIN, "dim"); },
              "invalid argument: dim is -9223372036854775808, but the tensor is [2, 3] and has 2 dimensions");
  EXPECT_THROW(Shape().CanonicalAxis(0), Error);
}

TEST(Shape, SizesThatAreNotThereAreNeitherReplacedNorRemoved) {
  const Shape shape({2, 3});
  ExpectError([&] { shape.Without(2); }, "…but the tensor is [2, 3] and has 2 dimensions");
  ExpectError([&] { shape.With(-3, 1); }, "…but the tensor is [2, 3] and has 2 dimensions");
  ExpectError([&] { shape.Inserted(3, 1); }, "…but the tensor is [2, 3] and has 2 dimensions");
  ExpectError([] { Shape().Tail(); }, "…but the tensor is [] and has 0 dimensions");
  EXPECT_EQ(shape.Inserted(2, 4), Shape({2, 3, 4}));
  EXPECT_EQ(shape.Inserted(-1, 4), Shape({2, 4, 3}));
}

}  // namespace
}  // namespace stepnet
