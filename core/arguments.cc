#include "stepnet/core/arguments.h"

#include <algorithm>
#include <cmath>

#include "stepnet/core/exact_number.h"
#include "stepnet/core/number_text.h"
#include "stepnet/core/strings.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

bool ArgumentValue::empty() const {
  return !f && !i && !s && floats.empty() && ints.empty() && strings.empty() && net == nullptr;
}

std::string ArgumentValue::Description() const {
  const auto quoted = [](const std::string& text) {
    return "\"" + (text.size() > 80 ? text.substr(0, 80) + "…" : text) + "\"";
  };
  if (net != nullptr) return "a net";
  if (f) return StrCat(*f);
  if (i) return StrCat(*i);
  if (s) return quoted(*s);
  if (!floats.empty()) return StrCat("[", Join(floats, ", "), "]");
  if (!ints.empty()) return StrCat("[", Join(ints, ", "), "]");
  if (!strings.empty()) {
    std::vector<std::string> items;
    for (const std::string& item : strings) items.push_back(quoted(item));
    return StrCat("[", Join(items, ", "), "]");
  }
  return "nothing";
}

ArgumentValue ParseArgument(const Argument& proto, const std::shared_ptr<const NetDef>& owner) {
  ArgumentValue value;
  if (proto.has_t()) value.f = DoubleOf(proto);
  if (proto.has_f()) value.f = proto.f();
  if (proto.has_i()) value.i = proto.i();
  if (proto.has_s()) value.s = proto.s();
  value.floats.assign(proto.floats().begin(), proto.floats().end());
  value.ints.assign(proto.ints().begin(), proto.ints().end());
  value.strings.assign(proto.strings().begin(), proto.strings().end());
  for (const double number : DoublesOf(proto)) value.strings.push_back(ShortestText(number));
  if (proto.has_n() && owner != nullptr) {
    value.net = std::shared_ptr<const NetDef>(owner, &proto.n());
  } else if (proto.has_n()) {
    value.net = std::make_shared<const NetDef>(proto.n());
  }
  return value;
}

const char* ArgumentTypeName(ArgumentType type) {
  switch (type) {
    case ArgumentType::kFloat: return "float";
    case ArgumentType::kInt: return "int";
    case ArgumentType::kBool: return "bool";
    case ArgumentType::kString: return "string";
    case ArgumentType::kFloats: return "floats";
    case ArgumentType::kInts: return "ints";
    case ArgumentType::kStrings: return "strings";
    case ArgumentType::kNet: return "net";
    case ArgumentType::kNumber: return "number";
    case ArgumentType::kAny: return "any";
  }
  return "unknown";
}

Constraint AtLeast(double low) { return {.min = low}; }
Constraint Between(double low, double high) { return {.min = low, .max = high}; }
Constraint OneOf(std::vector<std::string> values) { return {.one_of = std::move(values)}; }

bool ArgumentSpec::Matches(std::string_view argument) const {
  if (name.empty() || name[0] != '*') return argument == name;
  return argument.ends_with(std::string_view(name).substr(1));
}

namespace {

bool HasField(ArgumentType type, const ArgumentValue& value) {
  switch (type) {
    case ArgumentType::kFloat:
    case ArgumentType::kNumber: return value.f || value.i;
    case ArgumentType::kInt:
    case ArgumentType::kBool: return value.i.has_value();
    case ArgumentType::kString: return value.s.has_value();
    case ArgumentType::kFloats: return !value.floats.empty() || !value.ints.empty() || value.empty();
    case ArgumentType::kInts: return !value.ints.empty() || value.empty();
    case ArgumentType::kStrings: return !value.strings.empty() || value.empty();
    case ArgumentType::kNet: return value.net != nullptr || value.s.has_value();
    case ArgumentType::kAny: return value.net == nullptr;
  }
  return false;
}

// The field of an Argument that holds values of a type, where it is called otherwise: " (i)".
std::string FieldText(ArgumentType type) {
  switch (type) {
    case ArgumentType::kFloat: return " (f)";
    case ArgumentType::kInt:
    case ArgumentType::kBool: return " (i)";
    case ArgumentType::kString: return " (s)";
    case ArgumentType::kNet: return " (n)";
    case ArgumentType::kNumber: return " (f or i)";
    default: return "";
  }
}

std::string TypeText(ArgumentType type) { return StrCat("of type ", ArgumentTypeName(type), FieldText(type)); }

// How a file gives the value: numbers of several types look alike.
std::string GivenType(const ArgumentValue& value) {
  if (value.f) return ", " + TypeText(ArgumentType::kFloat);
  if (value.i) return ", " + TypeText(ArgumentType::kInt);
  if (!value.floats.empty()) return ", " + TypeText(ArgumentType::kFloats);
  return value.ints.empty() ? "" : ", " + TypeText(ArgumentType::kInts);
}

// `value` is of type Number, an integer with all its digits.
template <typename Number>
std::string NumberProblem(const std::string& argument, Number value, const Constraint& constraint) {
  const auto number = static_cast<double>(value);
  if (std::isnan(number)) return StrCat(argument, " is NaN");
  const auto& [low, high, one_of] = constraint;
  const bool is_below = low && number < *low;
  const bool is_above = high && number > *high;
  if (!is_below && !is_above) return "";
  const std::string is = StrCat(argument, " is ", value, ", must be ");
  if (low && high) return StrCat(is, "between ", NumberText(*low), " and ", NumberText(*high));
  return is + (low ? StrCat("at least ", NumberText(*low)) : StrCat("at most ", NumberText(*high)));
}

}  // namespace

std::string ArgumentSpec::Problem(const std::string& argument, const ArgumentValue& value) const {
  if (!HasField(type, value)) {
    return StrCat(argument, " is ", value.Description(), GivenType(value), ", must be ", TypeText(type));
  }
  if (type == ArgumentType::kBool && *value.i != 0 && *value.i != 1) {
    return StrCat(argument, " is ", *value.i, ", must be 0 or 1");
  }
  std::string problem;
  const bool is_number = type == ArgumentType::kFloat || type == ArgumentType::kNumber || type == ArgumentType::kInt;
  if (is_number) {
    problem = value.f ? NumberProblem(argument, *value.f, constraint) : NumberProblem(argument, *value.i, constraint);
  }
  if (type == ArgumentType::kInts) {
    for (const std::int64_t item : value.ints) {
      if (problem.empty()) problem = NumberProblem(argument, item, constraint);
    }
  }
  const std::vector<std::string>& one_of = constraint.one_of;
  if (type == ArgumentType::kString && !one_of.empty() && std::ranges::find(one_of, *value.s) == one_of.end()) {
    problem = StrCat(argument, " is ", value.Description(), ", must be one of ", Join(one_of, ", "));
  }
  return problem;
}

}  // namespace stepnet
