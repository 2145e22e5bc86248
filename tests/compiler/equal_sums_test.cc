#include "stepnet/compiler/equal_sums.h"

#include <gtest/gtest.h>

#include "../executor/recurrent_case.h"
#include "stepnet/nets/net_check.h"

namespace stepnet {
namespace {

// What a blob is bound to: rows of one tensor outside, an offset apart, or of none.
struct Input {
  std::string blob;
  Shape shape = Shape({2, 3});
  std::int64_t offset = 0;
};

// The operators of the net that are left, a line each; the first one says their inputs from outside.
std::vector<std::string> After(const std::vector<std::string>& ops, const std::vector<Input>& bound,
                               const std::vector<std::string>& moved_out = {}) {
  NetDef net;
  for (const std::string& op : ops) *net.add_op() = ParseOp(op);
  StepPlanRequest request;
  request.net = &net;
  request.num_bases = 2;
  for (const Input& input : bound) {
    const TensorInfo info{.dtype = DType::kFloat, .shape = input.shape};
    request.bound.push_back({.slot = {.blob = input.blob,
                                      .storage_class = StorageClass::kLinked,
                                      .base = 0,
                                      .offset = input.offset,
                                      .row_bytes = info.size_bytes(),
                                      .bytes = info.size_bytes()},
                             .info = info});
  }
  for (const std::string& blob : moved_out) {
    const TensorInfo info{.dtype = DType::kFloat, .shape = Shape({2, 3})};
    request.moves.push_back({.kind = StepMove::Kind::kAddOut,
                             .blob = blob,
                             .outside = {.blob = "all", .storage_class = StorageClass::kShared, .base = 1, .bytes = 24},
                             .info = info});
  }
  const std::optional<NetDef> dropped = WithoutEqualSums(request);
  if (!dropped) return ops;
  EXPECT_EQ(dropped->op_size(), net.op_size());
  std::vector<std::string> lines;
  for (const OperatorDef& op : dropped->op()) lines.push_back(op.type().empty() ? "" : OperatorText(op));
  return lines;
}

using Lines = std::vector<std::string>;

TEST(EqualSums, AreGivenByWhatGivesTheirTerm) {
  EXPECT_EQ(After({"d = Tanh(a)", "e = SumReduceLike(d, a)", "f = Tanh(e)"}, {{"a"}}),
            (Lines{"e = Tanh(a)", "", "f = Tanh(e)"}));
  // Others see the sum.
  EXPECT_EQ(After({"d = Tanh(a)", "e = SumReduceLike(d, a)"}, {{"a"}, {"e", Shape({2, 3}), 1}}),
            (Lines{"e = Tanh(a)", ""}));
  EXPECT_EQ(After({"d = Tanh(a)", "e = SumReduceLike(d, a)"}, {{"a"}}, {"e"}), (Lines{"e = Tanh(a)", ""}));
  // The sum is overwritten later.
  EXPECT_EQ(After({"d = Tanh(a)", "e = SumReduceLike(d, a)", "e = Sum(e, a)"}, {{"a"}}),
            (Lines{"e = Tanh(a)", "", "e = Sum(e, a)"}));
}

TEST(EqualSums, AreReadWhereTheirTermIs) {
  EXPECT_EQ(After({"e = SumReduceLike(a, b)", "f = SumReduceLike(a, b)", "g = Sum(e, f)"}, {{"a"}, {"b"}}),
            (Lines{"", "", "g = Sum(a, a)"}));
  // What adds to the sum in place adds to the term, elsewhere.
  EXPECT_EQ(After({"e = SumReduceLike(a, b)", "e = Sum(e, b)", "f = Tanh(e)"}, {{"a"}, {"b"}}),
            (Lines{"", "e = Sum(a, b)", "f = Tanh(e)"}));
  EXPECT_EQ(After({"e = SumReduceLike(a, b)", "e = Sum(e, b)"}, {{"a"}, {"b"}, {"e", Shape({2, 3}), 1}}),
            (Lines{"", "e = Sum(a, b)"}));
}

TEST(EqualSums, StayWhereBothBlobsAreSeen) {
  const auto expect_unchanged = [](const Lines& ops, const std::vector<Input>& bound,
                                   const std::vector<std::string>& moved_out = {}) {
    EXPECT_EQ(After(ops, bound, moved_out), ops);
  };
  expect_unchanged({"e = SumReduceLike(a, b)"}, {{"a"}, {"b"}, {"e", Shape({2, 3}), 1}});
  expect_unchanged({"e = SumReduceLike(a, b)"}, {{"a"}, {"b"}}, {"e"});
  // The term is read once more, and the sum is seen.
  expect_unchanged({"d = Tanh(a)", "e = SumReduceLike(d, a)", "f = Tanh(d)"}, {{"a"}}, {"e"});
  // The memory of the sum is read after the term has been computed: by its name, or by another.
  expect_unchanged({"d = Tanh(e)", "f = Tanh(e)", "e = SumReduceLike(d, f)"}, {{"e"}});
  expect_unchanged({"d = Tanh(a)", "f = Tanh(b)", "e = SumReduceLike(d, f)"},
                   {{"a"}, {"b", Shape({2, 3}), 1}, {"e", Shape({2, 3}), 1}});
  // Another name shows the sum before it is overwritten.
  expect_unchanged({"e = SumReduceLike(a, b)", "f = Tanh(g)", "e = Sum(e, f)"},
                   {{"a"}, {"b"}, {"e", Shape({2, 3}), 1}, {"g", Shape({2, 3}), 1}});
  // The term is overwritten before the sum is read, by its name or by another.
  expect_unchanged({"e = SumReduceLike(d, a)", "d = Tanh(a)", "f = Tanh(e)"}, {{"a"}, {"d", Shape({2, 3}), 1}});
  expect_unchanged({"e = SumReduceLike(d, a)", "g = Tanh(a)", "f = Tanh(e)"},
                   {{"a"}, {"d", Shape({2, 3}), 1}, {"g", Shape({2, 3}), 1}});
}

TEST(EqualSums, StayWhereSomethingIsSummed) {
  const Lines ops = {"d = Tanh(a)", "e = SumReduceLike(d, b)"};
  EXPECT_EQ(After(ops, {{"a"}, {"b", Shape({3})}}), ops);
}

}  // namespace
}  // namespace stepnet
