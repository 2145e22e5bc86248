// Arguments: the named arguments of one operator or net, parsed once from the file format and checked against what the
// operator type declares. Kernels and shape rules never see protobuf.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stepnet {

class Argument;
class NetDef;

// The value of one argument: what was written in the file. Any of several fields may be set by careless writers; each
// getter takes the field that it needs.
struct ArgumentValue {
  std::optional<double> f = {};  // a float in files; declarations give defaults with all digits
  std::optional<std::int64_t> i = {};
  std::optional<std::string> s = {};
  std::vector<float> floats = {};
  std::vector<std::int64_t> ints = {};
  std::vector<std::string> strings = {};
  std::shared_ptr<const NetDef> net = {};

  // No field set: Python writes an empty list so.
  bool empty() const;
  std::string Description() const;  // "0.5", "[1, 2]", "\"abc\"", "a net", "nothing"
};

// A net is copied where it has no owner, which `proto` would be a part of.
ArgumentValue ParseArgument(const Argument& proto, const std::shared_ptr<const NetDef>& owner = nullptr);

using ArgumentMap = std::map<std::string, ArgumentValue, std::less<>>;

// kNumber is a float or an int, kAny whatever an operator makes of it by other arguments (a number, a string, a list).
enum class ArgumentType { kFloat, kInt, kBool, kString, kFloats, kInts, kStrings, kNet, kNumber, kAny };
const char* ArgumentTypeName(ArgumentType type);

// A rule for the value of an argument, used by the checks and shown in the docs.
struct Constraint {
  std::optional<double> min = {};
  std::optional<double> max = {};
  std::vector<std::string> one_of = {};
};
Constraint AtLeast(double low);
Constraint Between(double low, double high);
Constraint OneOf(std::vector<std::string> values);

// An argument as an operator type declares it.
struct ArgumentSpec {
  std::string name = {};
  ArgumentType type = ArgumentType::kInt;
  ArgumentValue default_value = {};
  bool required = false;
  std::string doc = {};
  Constraint constraint = {};
  bool names_blobs = false;  // its strings are blobs (RenameBlobs)
  // A declared name that starts with '*' stands for every argument with that ending ("*.rename").
  bool Matches(std::string_view argument) const;

  // What is wrong with `value`, as "alpha is -1, must be at least 0", or "".
  std::string Problem(const std::string& argument, const ArgumentValue& value) const;
};

}  // namespace stepnet
