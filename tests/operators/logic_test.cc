#include "op_test.h"

namespace stepnet {
namespace {

using Bools = std::vector<bool>;

const std::vector<std::pair<std::string, Bools>> kCases = {
    {"And", {false, false, false, true}},
    {"Or", {false, true, true, true}},
    {"Xor", {false, true, true, false}},
};

TEST(Logic, FollowsItsTable) {
  const Tensor a = Tensor::Of<bool>({4}, {false, false, true, true});
  const Tensor b = Tensor::Of<bool>({4}, {false, true, false, true});
  for (const auto& [type, expected] : kCases) {
    OpTest(type).Input("a", a).Input("b", b).GivesExactly(Tensor::Of<bool>({4}, expected));
    OpTest(type).Input("a", a).Input("b", b).InPlace(0, 0).GivesExactly(Tensor::Of<bool>({4}, expected));
    OpTest(type)
        .Arg("broadcast", 1)
        .Input("a", a.Reshaped({2, 2}))
        .Input("b", Tensor::Of<bool>({2}, {false, true}))
        .GivesExactly(Tensor::Of<bool>({2, 2}, expected));
    OpTest(type)
        .Input("a", Tensor::Zeros(DType::kBool, {0}))
        .Input("b", Tensor::Zeros(DType::kBool, {0}))
        .GivesExactly(Tensor::Zeros(DType::kBool, {0}));
  }
  OpTest("Not").Input("x", a).GivesExactly(Tensor::Of<bool>({4}, {true, true, false, false}));
  OpTest("Not").Input("x", a).InPlace(0, 0).GivesExactly(Tensor::Of<bool>({4}, {true, true, false, false}));
}

TEST(Logic, RefusesNumbers) {
  ExpectError([] { OpTest("And").Input("a", {1}, {1}).Input("b", {1}, {1}).Run(); },
              "type mismatch: And works on bool; a is float [1]\n"
              "  at op 0 `output0 = And(a, b)` with a float [1], b float [1]\n"
              "  in net \"test\"");
  ExpectError([] { OpTest("Not").Input("x", {1}, {1}).Run(); }, "…type mismatch: Not works on bool; x is float [1]\n");
}

}  // namespace
}  // namespace stepnet
