#include "pass_case.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr char kA[] = "  a: float [2, 3] at 0[24 * t]\n", kB[] = "  b: float [2, 3] at 1[24 * t]\n";
// Other names of rows: of the first input in the step after this one.
constexpr char kNext[] = " at 0[24 * (t + 1)]";

std::string Lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "  " + line + "\n";
  return text;
}

TEST(DropMoves, LetsWhatGivesTheValueGiveTheCopy) {
  const std::string tanh = " = Tanh(a) @0 {}";
  EXPECT_EQ(After("drop_moves", Step(kA + Lines({"d.1: float [2, 3]" + tanh, "e.1: float [2, 3] = d.1",
                                                 "f.1: float [2, 3] = Tanh(e.1) @2 {}"}))),
            Step(kA + Lines({"e.1: float [2, 3]" + tanh, "f.1: float [2, 3] = Tanh(e.1) @2 {}"})));
  // Others see the copy, or it goes out, or it is overwritten later.
  EXPECT_EQ(
      After("drop_moves", Step(kA + Lines({"d.1: float [2, 3]" + tanh, StrCat("e.1: float [2, 3]", kNext, " = d.1")}))),
      Step(kA + Lines({StrCat("e.1: float [2, 3]", kNext, tanh)})));
  EXPECT_EQ(After("drop_moves", Step(kA + Lines({"d.1: float [2, 3]" + tanh, "e.1: float [2, 3] = d.1",
                                                 "^all: float [2, 3] added at 1 = e.1"}))),
            Step(kA + Lines({"e.1: float [2, 3]" + tanh, "^all: float [2, 3] added at 1 = e.1"})));
  const std::string again = "e.2: float [2, 3] in e.1 = Sum(e.1, a) @2 {}";
  EXPECT_EQ(After("drop_moves", Step(kA + Lines({"d.1: float [2, 3]" + tanh, "e.1: float [2, 3] = d.1", again}))),
            Step(kA + Lines({"e.1: float [2, 3]" + tanh, again})));
  // A chain of copies.
  EXPECT_EQ(After("drop_moves", Step(kA + Lines({"d.1: float [2, 3]" + tanh, "e.1: float [2, 3] = d.1",
                                                 "f.1: float [2, 3] = e.1", "^all: float [2, 3] at 1 = f.1"}))),
            Step(kA + Lines({"^all: float [2, 3] at 1" + tanh})));
}

TEST(DropMoves, LetsThoseWhoReadTheCopyReadTheValue) {
  EXPECT_EQ(After("drop_moves", Step(kA + Lines({"e.1: float [2, 3] = a", "f.1: float [2, 3] = a",
                                                 "g.1: float [2, 3] = Sum(e.1, f.1) @2 {}"}))),
            Step(kA + Lines({"g.1: float [2, 3] = Sum(a, a) @2 {}"})));
  EXPECT_EQ(After("drop_moves", Step(kA + Lines({"e.1: float [2, 3] = a", "^all: float [2, 3] added at 1 = e.1"}))),
            Step(kA + Lines({"^all: float [2, 3] added at 1 = a"})));
  // What adds to the copy in place adds to the value, elsewhere; also where others see the sum.
  EXPECT_EQ(After("drop_moves", Step(std::string(kA) + kB +
                                     Lines({"e.1: float [2, 3] = a", "e.2: float [2, 3] in e.1 = Sum(e.1, b) @1 {}"}))),
            Step(std::string(kA) + kB + Lines({"e.2: float [2, 3] = Sum(a, b) @1 {}"})));
  EXPECT_EQ(After("drop_moves", Step(std::string(kA) + kB +
                                     Lines({StrCat("e.1: float [2, 3]", kNext, " = a"),
                                            StrCat("e.2: float [2, 3]", kNext, " = Sum(e.1, b) @1 {}")}))),
            Step(std::string(kA) + kB + Lines({StrCat("e.2: float [2, 3]", kNext, " = Sum(a, b) @1 {}")})));
}

TEST(DropMoves, KeepsCopiesWhereBothAreSeen) {
  const std::string a = kA, b = kB, d = "d.1: float [2, 3] = Tanh(a) @0 {}";
  const std::string e = StrCat("e.1: float [2, 3]", kNext), c = StrCat("  c: float [2, 3]", kNext, "\n");
  const auto expect_unchanged = [](const std::string& inputs, const std::vector<std::string>& lines) {
    EXPECT_EQ(After("drop_moves", Step(inputs + Lines(lines))), Step(inputs + Lines(lines)));
  };
  expect_unchanged(a, {e + " = a"});
  // What goes out is read in the step, too, or the memory there is, before it gets the value.
  expect_unchanged(a, {d, "^all: float [2, 3] at 1 = d.1", "f.1: float [2, 3] = Tanh(d.1) @1 {}"});
  expect_unchanged(a + b, {d, "f.1: float [2, 3] = Tanh(b) @1 {}", "^all: float [2, 3] at 1[24 * t] = d.1"});
  expect_unchanged(a, {"^all: float [2, 3] at 1 = a"});
  expect_unchanged(a, {"e.1: float [2, 3] kept = a"});
  // The value is read once more, and the copy is seen.
  expect_unchanged(a, {d, e + " = d.1", "f.1: float [2, 3] = Tanh(d.1) @2 {}"});
  // The memory of the copy is read when the value is there already: by its name, or by another, also by a move.
  expect_unchanged(StrCat(a, "  e: float [2, 3]", kNext, "\n"), {d, "f.1: float [2, 3] = Tanh(e) @1 {}", e + " = d.1"});
  expect_unchanged(a + c, {d, "f.1: float [2, 3] = Tanh(c) @1 {}", e + " = d.1"});
  expect_unchanged(StrCat(a, "  ^c: float [2, 3]", kNext, "\n"), {d, "f.1: float [2, 3] = ^c", e + " = d.1"});
  // Another name shows the copy before it is overwritten.
  expect_unchanged(a + c, {e + " = a", "f.1: float [2, 3] = Tanh(c) @1 {}",
                           StrCat("e.2: float [2, 3]", kNext, " = Sum(e.1, f.1) @2 {}")});
  // Something is added to the copy.
  expect_unchanged(a + b, {"e.1: float [2, 3] = a", "e.2: float [2, 3] added in e.1 = b"});
}

TEST(DropMoves, KeepsCopiesOfWhatIsOverwritten) {
  const std::string a = kA, d = StrCat("  d: float [2, 3]", kNext, "\n"), e = "e.1: float [2, 3] = d";
  const std::string read = "f.1: float [2, 3] = Tanh(e.1) @1 {}", next = StrCat(": float [2, 3]", kNext);
  const auto expect_unchanged = [&](const std::string& write) {
    const std::string lines = Lines({e, write, read});
    EXPECT_EQ(After("drop_moves", Step(a + d + lines)), Step(a + d + lines));
  };
  expect_unchanged("d.1" + next + " = Tanh(a) @0 {}");
  expect_unchanged("g.1" + next + " = Tanh(a) @0 {}");
  expect_unchanged("^all" + next + " = a");
}

}  // namespace
}  // namespace stepnet
