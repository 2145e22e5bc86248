#include "op_test.h"

namespace stepnet {
namespace {

Tensor Int32s(const std::vector<std::int32_t>& values) {
  return Tensor::Of<std::int32_t>(Shape({static_cast<std::int64_t>(values.size())}), values);
}

TEST(AddPadding, PadsEachSequenceWithZeros) {
  const OpTest op = OpTest("AddPadding", 2).Input("x", {3, 1}, {1, 2, 3}).Input("lengths", Int32s({1, 0, 2}));
  op.Gives({9, 1}, {0, 1, 0, 0, 0, 0, 2, 3, 0});
  op.GivesExactly(Int32s({3, 2, 4}), 1);
}

TEST(AddPadding, TakesWhatItPadsWith) {
  const auto pad = [](int start, int end) {
    return OpTest("AddPadding")
        .Arg("padding_width", start)
        .Arg("end_padding_width", end)
        .Input("x", {2, 2}, {1, 2, 3, 4})
        .Input("lengths", Int32s({2}))
        .Input("start", {2}, {5, 6});
  };
  pad(1, 2).Gives({5, 2}, {5, 6, 1, 2, 3, 4, 5, 6, 5, 6});
  pad(1, 1).Input("end", {2}, {7, 8}).Gives({4, 2}, {5, 6, 1, 2, 3, 4, 7, 8});
}

TEST(AddPadding, TakesAllForOneSequenceWithoutLengths) {
  OpTest("AddPadding")
      .Input("x", Tensor::Of<std::string>({1}, {"a"}))
      .GivesExactly(Tensor::Of<std::string>({3}, {"", "a", ""}));
}

TEST(AddPadding, GradientMatchesDifferences) {
  OpTest("AddPadding", 2).Random("x", {3, 2}, 1).Input("lengths", Int32s({1, 2})).GradientMatches({0});
  OpTest("AddPadding", 2)
      .Arg("padding_width", 2)
      .Arg("end_padding_width", 1)
      .Random("x", {3, 2}, 1)
      .Input("lengths", Int32s({1, 2}))
      .Random("start", {2}, 2)
      .Random("end", {2}, 3)
      .GradientMatches({0});
  OpTest("AddPadding", 2)
      .Random("x", {3, 2}, 1)
      .Input("lengths", Int32s({1, 2}))
      .Random("start", {2}, 2)
      .GradientMatches({0});
}

TEST(AddPadding, AcceptsNoSequences) {
  OpTest("AddPadding").Input("x", {0, 2}, {}).Input("lengths", Int32s({})).Gives({0, 2}, {});
}

TEST(AddPadding, RefusesWhatDoesNotFit) {
  const auto pad = [](const Tensor& lengths) { OpTest("AddPadding").Random("x", {3, 2}, 1).Input("n", lengths).Run(); };
  ExpectError(
      [&] {
        pad(Int32s({1, 1}));
      },
      "invalid argument: the lengths in n add up to 2, the data have 3 rows\n"
      "  at op 0 `output0 = AddPadding(x, n)` with x float [3, 2], n int32 [2]\n"
      "  in net \"test\"");
  ExpectError([&] { pad(Int32s({4, -1})); }, "…element 1 of n is -1");
  ExpectError([&] { pad(Tensor::Of<std::int64_t>({1}, {3})); },
              "…AddPadding needs lengths int32 [number of sequences]; n is int64 [1]");
  ExpectError(
      [] {
        OpTest("AddPadding").Random("x", {3, 2}, 1).Input("n", Int32s({3})).Random("p", {3}, 2).Run();
      },
      "…AddPadding needs x [N, R…] and padding [R…]; x is float [3, 2] and p is float [3]");
  ExpectError([] { OpTest("AddPadding").Arg("padding_width", -1).Random("x", {3}, 1).Run(); },
              "…AddPadding: padding_width is -1, must be between 0 and");
  ExpectError([] { OpTest("AddPadding").Random("x", {2}, 1).Input("n", Int32s({2})).GradientMatches(); },
              "…the gradient of AddPadding needs the new lengths, a second output");
}

TEST(RemovePadding, UndoesAddPadding) {
  const OpTest op = OpTest("RemovePadding", 2)
                        .Arg("padding_width", 1)
                        .Arg("end_padding_width", 0)
                        .Input("x", {5, 1}, {9, 1, 9, 2, 3})
                        .Input("lengths", Int32s({2, 3}));
  op.Gives({3, 1}, {1, 2, 3});
  op.GivesExactly(Int32s({1, 2}), 1);
}

TEST(RemovePadding, GradientMatchesDifferences) {
  OpTest("RemovePadding", 2).Random("x", {7, 2}, 1).Input("lengths", Int32s({3, 4})).GradientMatches({0});
}

TEST(RemovePadding, RefusesSequencesShorterThanTheirPadding) {
  ExpectError(
      [] {
        OpTest("RemovePadding").Random("x", {5}, 1).Input("n", Int32s({1, 4})).Run();
      },
      "…sequence 0 has 1 rows, fewer than the 2 of its padding");
  ExpectError(
      [] {
        OpTest("RemovePadding").Random("x", {3}, 1).Input("n", Int32s({1, 2})).Run();
      },
      "…RemovePadding cannot give 2 sequences -2 rows more; x is float [3]");
  ExpectError(
      [] {
        OpTest("GatherPadding").Random("x", {5}, 1).Input("n", Int32s({1, 4})).Run();
      },
      "…sequence 0 has 1 rows, fewer than the 2 of its padding");
}

}  // namespace
}  // namespace stepnet
