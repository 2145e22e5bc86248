#include "stepnet/core/broadcast_rule.h"

namespace stepnet {

// The dimensions [begin, end) of b that count: without the sizes of 1 at either end.
std::pair<int, int> CountingDims(const Shape& b) {
  int begin = 0;
  while (begin < b.rank() && b[begin] == 1) ++begin;
  int end = b.rank();
  while (end > begin && b[end - 1] == 1) --end;
  return {begin, end};
}

namespace {

// Whether b can be repeated over a, its last dimension over the last one.
bool Fits(const Shape& a, const Shape& b) {
  if (b.size() == 1) return true;
  if (b.rank() > a.rank()) return false;
  const int axis = a.rank() - b.rank();
  const auto [begin, end] = CountingDims(b);
  for (int i = begin; i < end; ++i) {
    if (a[axis + i] != b[i]) return false;
  }
  return true;
}

// What to write where shapes differ and `type` was not told to repeat; "" where that would not help.
std::string BroadcastHint(const std::string& type, const Shape& a, const Shape& b) {
  if (Fits(a, b)) return StrCat("; ", type, "(first, second, broadcast=1) repeats the second over the first");
  if (Fits(b, a)) return "; broadcast=1 repeats the second over the first, so the smaller one must be second";
  return "";
}

}  // namespace

std::vector<ArgumentSpec> BroadcastArguments() {
  return {
      {.name = "broadcast",
       .type = ArgumentType::kBool,
       .default_value = {.i = 0},
       .doc = "1: b is repeated over a; 0: both have one shape"},
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

void CheckBroadcast(const ShapeQuery& query, const BroadcastRule& rule, int a_input, int b_input) {
  const Shape& a = query.In(a_input).shape;
  const Shape& b = query.In(b_input).shape;
  const std::string& type = query.op().type();
  const std::string& a_name = query.op().inputs()[a_input];
  const std::string& b_name = query.op().inputs()[b_input];
  const auto fail = [&](const std::string& what, const std::string& hint = "") {
    throw Error(ErrorCode::kShapeMismatch,
                StrCat(type, what, "; ", a_name, " is ", a, " and ", b_name, " is ", b, hint));
  };
  if (!rule.enabled) {
    const bool is_gradient = a_input != 0;  // whose forward operator says whether to repeat
    if (a != b) fail(" needs inputs of one shape unless broadcast=1", is_gradient ? "" : BroadcastHint(type, a, b));
    return;
  }
  if (b.size() == 1) return;
  if (b.rank() > a.rank()) fail(StrCat(" repeats ", b_name, " over ", a_name, ", which has fewer dimensions"));
  const int axis = rule.axis == -1 ? a.rank() - b.rank() : rule.axis;
  if (axis > a.rank() - b.rank()) {
    fail(StrCat(": axis is ", axis, ", from where ", a_name, " has fewer dimensions than ", b_name));
  }
  const auto [begin, end] = CountingDims(b);
  for (int i = begin; i < end; ++i) {
    if (a[axis + i] != b[i]) {
      fail(StrCat(" needs ", b_name, " to have the sizes of ", a_name, " from dimension ", axis, " on"));
    }
  }
}

}  // namespace stepnet
