// Operators that repeat their inputs over each other as NumPy does it, against loops over indices.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "op_test.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/net.h"

namespace stepnet {
namespace {

using Sizes = std::vector<std::int64_t>;
using Values = std::vector<double>;

std::int64_t CountOf(const Sizes& sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return count;
}

// Calls fn(element of c, of a, of b) for each index of the shape that both are repeated to, and returns that shape.
Sizes ForTriples(const Sizes& a, const Sizes& b, const std::function<void(size_t, size_t, size_t)>& fn) {
  const size_t rank = std::max(a.size(), b.size());
  const auto size_at = [&](const Sizes& of, size_t d) { return d + of.size() < rank ? 1 : of[d + of.size() - rank]; };
  Sizes c(rank);
  for (size_t d = 0; d < rank; ++d) c[d] = size_at(a, d) == 1 ? size_at(b, d) : size_at(a, d);
  for (std::int64_t i = 0; i < CountOf(c); ++i) {
    Sizes index(rank);
    for (std::int64_t left = i, d = static_cast<std::int64_t>(rank) - 1; d >= 0; --d) {
      index[d] = left % c[d];
      left /= c[d];
    }
    const auto place = [&](const Sizes& of) {
      std::int64_t at = 0;
      for (size_t d = 0; d < rank; ++d) at = at * size_at(of, d) + (size_at(of, d) == 1 ? 0 : index[d]);
      return static_cast<size_t>(at);
    };
    fn(static_cast<size_t>(i), place(a), place(b));
  }
  return c;
}

struct Binary {
  double (*value)(double, double);
  double (*by_a)(double, double);  // null: no gradient
  double (*by_b)(double, double);
};

const std::map<std::string, Binary> kBinaries = {
    {"Add",
     {[](double a, double b) { return a + b; }, [](double, double) { return 1.0; },
      [](double, double) { return 1.0; }}},
    {"Sub",
     {[](double a, double b) { return a - b; }, [](double, double) { return 1.0; },
      [](double, double) { return -1.0; }}},
    {"Mul",
     {[](double a, double b) { return a * b; }, [](double, double b) { return b; },
      [](double a, double) { return a; }}},
    {"Div",
     {[](double a, double b) { return a / b; }, [](double, double b) { return 1 / b; },
      [](double a, double b) { return -a / (b * b); }}},
    {"Max",
     {[](double a, double b) { return std::max(a, b); }, [](double a, double b) { return a >= b ? 1.0 : 0.0; },
      [](double a, double b) { return b >= a ? 1.0 : 0.0; }}},
    {"Min",
     {[](double a, double b) { return std::min(a, b); }, [](double a, double b) { return a <= b ? 1.0 : 0.0; },
      [](double a, double b) { return b <= a ? 1.0 : 0.0; }}},
};

// Shapes of every two ranks up to 4, with sizes of 0 and 1 and missing dimensions at random.
void ForShapes(const std::function<void(const Sizes&, const Sizes&)>& fn) {
  std::mt19937 random(14);
  for (int rank_a = 0; rank_a <= 4; ++rank_a) {
    for (int rank_b = 0; rank_b <= 4; ++rank_b) {
      for (int k = 0; k < 6; ++k) {
        Sizes full(4);
        for (std::int64_t& size : full) size = random() % 16 == 0 ? 0 : 1 + static_cast<std::int64_t>(random() % 5);
        const auto draw = [&](int rank) {
          Sizes sizes(full.end() - rank, full.end());
          for (std::int64_t& size : sizes) {
            if (random() % 3 == 0) size = 1;
          }
          return sizes;
        };
        const Sizes a = draw(rank_a), b = draw(rank_b);
        SCOPED_TRACE(StrCat(Shape(a), " and ", Shape(b)));
        fn(a, b);
      }
    }
  }
}

Values Draw(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  Values values(static_cast<size_t>(count));
  for (double& value : values) value = std::uniform_real_distribution(0.5, 2.0)(random);
  return values;
}

Tensor DoublesOf(const Sizes& sizes, const Values& values) { return Tensor::Of<double>(Shape(sizes), values); }

void ExpectNear(const Tensor& actual, const Sizes& sizes, const Values& expected) {
  EXPECT_EQ(actual.shape(), Shape(sizes));
  ASSERT_EQ(actual.size(), static_cast<std::int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual.data<double>()[i], expected[i], 1e-12 * (1 + std::abs(expected[i]))) << i;
  }
}

TEST(BroadcastByShape, FollowsLoopsOverIndices) {
  for (const auto& [type, binary] : kBinaries) {
    SCOPED_TRACE(type);
    ForShapes([&, type = type, binary = binary](const Sizes& a, const Sizes& b) {
      const Values of_a = Draw(CountOf(a), 1), of_b = Draw(CountOf(b), 2);
      std::map<size_t, double> by_index;
      const Sizes c =
          ForTriples(a, b, [&](size_t i, size_t x, size_t y) { by_index[i] = binary.value(of_a[x], of_b[y]); });
      Values expected;
      for (const auto& [i, value] : by_index) expected.push_back(value);
      OpTest(type).Input("a", Shape(a), of_a).Input("b", Shape(b), of_b).Gives(Shape(c), expected);
    });
  }
}

// The gradients of the sum of c * w.
TEST(BroadcastByShape, GradientsAreSumsOverWhatAnElementHasMet) {
  for (const auto& [type, binary] : kBinaries) {
    SCOPED_TRACE(type);
    NetDef net;
    OperatorDef& op = *net.add_op();
    op.set_type(type);
    op.add_input("a");
    op.add_input("b");
    op.add_output("c");
    const NetWithGradients made = AddGradientsFrom(net, {{"c", "w"}}, {"a", "b"});
    Workspace workspace;
    for (const char* blob : {"a", "b", "w"}) workspace.CreateBlob(blob);
    const std::unique_ptr<Net> all = Net::Create(made.net, workspace);
    ForShapes([&, binary = binary](const Sizes& a, const Sizes& b) {
      const Values of_a = Draw(CountOf(a), 3), of_b = Draw(CountOf(b), 4);
      const Sizes c = ForTriples(a, b, [](size_t, size_t, size_t) {});
      const Values weights = Draw(CountOf(c), 5);
      Values by_a(of_a.size()), by_b(of_b.size());
      ForTriples(a, b, [&](size_t i, size_t x, size_t y) {
        by_a[x] += weights[i] * binary.by_a(of_a[x], of_b[y]);
        by_b[y] += weights[i] * binary.by_b(of_a[x], of_b[y]);
      });
      workspace.CreateBlob("a").SetTensor(DoublesOf(a, of_a));
      workspace.CreateBlob("b").SetTensor(DoublesOf(b, of_b));
      workspace.CreateBlob("w").SetTensor(DoublesOf(c, weights));
      all->Run();
      ExpectNear(workspace.CreateBlob(made.gradients.at("a").dense).GetTensor(), a, by_a);
      ExpectNear(workspace.CreateBlob(made.gradients.at("b").dense).GetTensor(), b, by_b);
    });
  }
}

TEST(BroadcastByShape, ComparesAndCombinesBools) {
  OpTest("LT")
      .Input("a", Tensor::Of<std::int32_t>({2, 1}, {1, 5}))
      .Input("b", Tensor::Of<std::int32_t>({3}, {0, 2, 7}))
      .GivesExactly(Tensor::Of<bool>({2, 3}, {false, true, true, false, false, true}));
  OpTest("Xor")
      .Input("a", Tensor::Of<bool>({2}, {true, false}))
      .Input("b", Tensor::Of<bool>({2, 1}, {true, false}))
      .GivesExactly(Tensor::Of<bool>({2, 2}, {false, true, true, false}));
}

// Sizes of 0 repeat as others do, and a sum of nothing is 0.
TEST(BroadcastByShape, AcceptsNoElements) {
  OpTest("Add").Input("a", {0, 3}, {}).Input("b", {1, 1, 3}, {1, 2, 3}).Gives({1, 0, 3}, {});
  OpTest("Mul").Input("a", {0, 1}, {}).Input("b", {1, 3}, {1, 2, 3}).GradientMatches();
  OpTest("Div").Input("a", {2, 1, 2}, {1, 2, 3, 4}).Input("b", {0, 1}, {}).GradientMatches();
}

TEST(BroadcastByShape, WorksInPlaceOfWhatIsNotRepeated) {
  OpTest("Add")
      .Input("a", {2, 2}, {1, 2, 3, 4})
      .Input("b", {2}, {10, 20})
      .InPlace(0, 0)
      .Gives({2, 2}, {11, 22, 13, 24});
  OpTest("Sub").Input("a", {2}, {10, 20}).Input("b", {2, 2}, {1, 2, 3, 4}).InPlace(1, 0).Gives({2, 2}, {9, 18, 7, 16});
  ExpectError(
      [] {
        OpTest("Add").Input("a", {2}, {1, 2}).Input("b", {2, 2}, {1, 2, 3, 4}).InPlace(0, 0).Run();
      },
      "…shape mismatch: Add cannot overwrite a, which is [2] and repeated to [2, 2]");
  ExpectError(
      [] {
        OpTest("Max").Input("a", {2}, {1, 2}).Input("b", {2, 2}, {1, 2, 3, 4}).InPlace(0, 0).Run();
      },
      "…shape mismatch: Max cannot overwrite a, which is [2] and repeated to [2, 2]");
}

TEST(BroadcastByShape, NamesBothShapes) {
  ExpectError(
      [] {
        OpTest("Mul").Random("a", {5, 3}, 1).Random("b", {5}, 2).Run();
      },
      "shape mismatch: Mul needs sizes that are equal or 1, from the last dimension on; a is [5, 3] and b is [5]; "
      "Mul(first, second, broadcast=1, axis=0) repeats the second over the first, whose dimensions from 0 on it has\n"
      "  at op 0 `output0 = Mul(a, b)` with a float [5, 3], b float [5]\n"
      "  in net \"test\"");
  // Where b may be meant as one or the other of two dimensions, nothing says which.
  ExpectError(
      [] {
        OpTest("Add").Random("a", {2, 4, 4}, 1).Random("b", {2, 4}, 2).Run();
      },
      "…shape mismatch: Add needs sizes that are equal or 1, from the last dimension on; a is [2, 4, 4] and b is [2, "
      "4]; "
      "ExpandDims gives the second a size of 1 where it shall be repeated\n");
  ExpectError(
      [] {
        OpTest("Max").Random("a", {3}, 1).Random("b", {2, 1}, 2).Random("c", {4}, 3).Run();
      },
      "…shape mismatch: Max needs sizes that are equal or 1, from the last dimension on; a is [3] and c is [4]\n");
}

// a gets two parts of a gradient: the sum must not be written where b's gradient lies.
TEST(BroadcastByShape, SumsOfGradientsLeaveOthersAlone) {
  NetDef net;
  const auto add = [&](const char* type, std::vector<std::string> inputs, const char* output) {
    OperatorDef& op = *net.add_op();
    op.set_type(type);
    op.mutable_input()->Assign(inputs.begin(), inputs.end());
    op.add_output(output);
  };
  add("Sqr", {"a"}, "s");
  add("Add", {"a", "b"}, "c");
  add("Add", {"c", "s"}, "d");
  const NetWithGradients made = AddGradients(net, {"d"}, {"a", "b"});
  Workspace workspace;
  workspace.CreateBlob("a").SetTensor(DoublesOf({2}, {1, 2}));
  workspace.CreateBlob("b").SetTensor(DoublesOf({2}, {3, 4}));
  const std::unique_ptr<Net> all = Net::Create(made.net, workspace);
  for (int run = 0; run < 2; ++run) {
    all->Run();
    ExpectNear(workspace.CreateBlob(made.gradients.at("a").dense).GetTensor(), {2}, {3, 5});
    ExpectNear(workspace.CreateBlob(made.gradients.at("b").dense).GetTensor(), {2}, {1, 1});
  }
}

}  // namespace
}  // namespace stepnet
