#include "stepnet/core/broadcast_rule.h"

#include <algorithm>
#include <optional>

namespace stepnet {

std::pair<int, int> CountingDims(const Shape& b) {
  int begin = 0;
  while (begin < b.rank() && b[begin] == 1) ++begin;
  int end = b.rank();
  while (end > begin && b[end - 1] == 1) --end;
  return {begin, end};
}

bool IsRunOf(const Shape& b, const Shape& a, int axis) {
  if (b.size() == 1) return true;
  if (axis == -1) axis = a.rank() - b.rank();
  if (axis < 0 || axis > a.rank() - b.rank()) return false;
  const auto [begin, end] = CountingDims(b);
  for (int i = begin; i < end; ++i) {
    if (a[axis + i] != b[i]) return false;
  }
  return true;
}

bool IsRepeatedOver(const Shape& b, const Shape& a) {
  if (b.rank() > a.rank()) return false;
  for (int i = 1; i <= b.rank(); ++i) {
    if (b[-i] != 1 && b[-i] != a[-i]) return false;
  }
  return true;
}

namespace {

[[noreturn]] void Fail(const ShapeQuery& query, int a, int b, const std::string& what, const std::string& hint = "") {
  const std::vector<std::string>& names = query.op().inputs();
  throw Error(ErrorCode::kShapeMismatch, StrCat(query.op().type(), what, "; ", names[a], " is ", query.In(a).shape,
                                                " and ", names[b], " is ", query.In(b).shape, hint));
}

// In how many ways the dimensions of b from `from_b` on, but for those of 1, stand for as many of a from `from_a` on,
// in their order.
int WaysToLie(const Shape& b, int from_b, const Shape& a, int from_a) {
  while (from_b < b.rank() && b[from_b] == 1) ++from_b;
  if (from_b == b.rank()) return 1;
  int ways = 0;
  for (int i = from_a; i < a.rank(); ++i) {
    if (a[i] == b[from_b]) ways += WaysToLie(b, from_b + 1, a, i + 1);
  }
  return ways;
}

// What to write where shapes cannot be repeated over each other; "" where nothing helps.
std::string AxisHint(const std::string& type, const Shape& a, const Shape& b) {
  for (int axis = 0; axis < a.rank() - b.rank(); ++axis) {
    if (!IsRunOf(b, a, axis)) continue;
    if (WaysToLie(b, 0, a, 0) > 1) return "; ExpandDims gives the second a size of 1 where it shall be repeated";
    return StrCat("; ", type, "(first, second, broadcast=1, axis=", axis,
                  ") repeats the second over the first, whose dimensions from ", axis, " on it has");
  }
  return "";
}

// Along each dimension the size that is not 1; nothing where two differ.
std::optional<Shape> RepeatedOverEachOther(const Shape& a, const Shape& b) {
  std::vector<std::int64_t> sizes(std::max(a.rank(), b.rank()), 1);
  for (int i = 1; i <= static_cast<int>(sizes.size()); ++i) {
    const std::int64_t of_a = i <= a.rank() ? a[-i] : 1, of_b = i <= b.rank() ? b[-i] : 1;
    if (of_a != of_b && of_a != 1 && of_b != 1) return {};
    *(sizes.end() - i) = of_a == 1 ? of_b : of_a;
  }
  return Shape(sizes);
}

[[noreturn]] void FailAboutSizes(const ShapeQuery& query, int a, int b) {
  const bool has_axis = query.op().schema().FindArgument("axis") != nullptr;
  Fail(query, a, b, " needs sizes that are equal or 1, from the last dimension on",
       has_axis ? AxisHint(query.op().type(), query.In(a).shape, query.In(b).shape) : "");
}

// Throws kShapeMismatch where the output, of that shape, has the name of an input that is repeated.
void CheckNoneIsOverwritten(const ShapeQuery& query, const Shape& shape) {
  for (int i = 0; i < query.num_inputs(); ++i) {
    const std::string& name = query.op().inputs()[i];
    if (name != query.op().outputs()[0] || query.In(i).shape.size() == shape.size()) continue;
    throw Error(ErrorCode::kShapeMismatch, StrCat(query.op().type(), " cannot overwrite ", name, ", which is ",
                                                  query.In(i).shape, " and repeated to ", shape));
  }
}

void CheckRun(const ShapeQuery& query, int axis, int a_input, int b_input) {
  const Shape &a = query.In(a_input).shape, &b = query.In(b_input).shape;
  if (IsRunOf(b, a, axis)) return;
  const std::string &a_name = query.op().inputs()[a_input], &b_name = query.op().inputs()[b_input];
  const auto fail = [&](const std::string& what) { Fail(query, a_input, b_input, what); };
  if (b.rank() > a.rank()) fail(StrCat(" repeats ", b_name, " over ", a_name, ", which has fewer dimensions"));
  if (axis == -1) axis = a.rank() - b.rank();
  if (axis > a.rank() - b.rank()) {
    fail(StrCat(": axis is ", axis, ", from where ", a_name, " has fewer dimensions than ", b_name));
  }
  fail(StrCat(" needs ", b_name, " to have the sizes of ", a_name, " from dimension ", axis, " on"));
}

}  // namespace

std::vector<ArgumentSpec> BroadcastArguments() {
  return {
      {.name = "broadcast",
       .type = ArgumentType::kBool,
       .default_value = {.i = 0},
       .doc = "1: b is repeated over a, as Caffe2 does it; 0: by shape, as NumPy does"},
      {.name = "axis",
       .type = ArgumentType::kInt,
       .default_value = {.i = -1},
       .doc = "the dimension of a that the first of b stands for; -1: b's dimensions are the last of a",
       .constraint = Between(-1, Shape::kMaxRank)},
      {.name = "axis_str",
       .type = ArgumentType::kString,
       .default_value = {.s = ""},
       .doc = "in place of axis: a letter of order"},
      {.name = "order",
       .type = ArgumentType::kString,
       .default_value = {.s = "NCHW"},
       .doc = "names a's dimensions, a letter each, for axis_str"},
  };
}

BroadcastRule ReadBroadcastRule(const OperatorCall& op, bool always) {
  BroadcastRule rule{.enabled = always || op.Bool("broadcast"), .axis = static_cast<int>(op.Int("axis"))};
  const std::string& letter = op.String("axis_str");
  if (!rule.enabled && (rule.axis != -1 || !letter.empty())) {
    throw Error(ErrorCode::kInvalidArgument, StrCat(op.type(), ": axis and axis_str mean nothing without broadcast=1"));
  }
  if (letter.empty()) return rule;
  if (rule.axis != -1) {
    throw Error(ErrorCode::kInvalidArgument, StrCat(op.type(), " has both axis and axis_str; one of them is needed"));
  }
  const size_t found = op.String("order").find(letter);
  if (letter.size() != 1 || found == std::string::npos) {
    throw Error(ErrorCode::kInvalidArgument, StrCat(op.type(), ": axis_str is \"", letter,
                                                    "\", must be a letter of order \"", op.String("order"), "\""));
  }
  rule.axis = static_cast<int>(found);
  return rule;
}

Shape BroadcastShape(const ShapeQuery& query, const BroadcastRule& rule, int a, int b) {
  if (!rule.enabled) {
    const std::optional<Shape> shape = RepeatedOverEachOther(query.In(a).shape, query.In(b).shape);
    if (!shape) FailAboutSizes(query, a, b);
    CheckNoneIsOverwritten(query, *shape);
    return *shape;
  }
  CheckRun(query, rule.axis, a, b);
  return query.In(a).shape;
}

Shape RepeatedShape(const ShapeQuery& query) {
  Shape shape = query.In(0).shape;
  for (int i = 1; i < query.num_inputs(); ++i) {
    const std::optional<Shape> repeated = RepeatedOverEachOther(shape, query.In(i).shape);
    for (int k = 0; !repeated && k < i; ++k) {
      if (!RepeatedOverEachOther(query.In(k).shape, query.In(i).shape)) FailAboutSizes(query, k, i);
    }
    shape = *repeated;
  }
  CheckNoneIsOverwritten(query, shape);
  return shape;
}

void CheckRepeated(const ShapeQuery& query, const BroadcastRule& rule, int a, int b) {
  if (rule.axis == -1 && IsRepeatedOver(query.In(b).shape, query.In(a).shape)) return;
  CheckRun(query, rule.axis, a, b);
}

}  // namespace stepnet
