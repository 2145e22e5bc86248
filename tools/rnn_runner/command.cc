#include "stepnet/tools/rnn_runner/command.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

#include "stepnet/core/number_text.h"
#include "stepnet/core/strings.h"

namespace stepnet::runner {
namespace {

const FlagUse* FindFlag(const Command& command, std::string_view name) {
  for (const FlagUse& flag : command.flags) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

// `--name` as it was written.
[[noreturn]] void ThrowUnknown(const Command& command, const std::string& name) {
  const std::string advice = command.unknown_flag != nullptr ? command.unknown_flag(name) : "";
  if (!advice.empty()) throw UsageError(StrCat("no flag --", name, "; ", advice));
  std::vector<std::string> names = {"help"};
  for (const FlagUse& flag : command.flags) names.push_back(flag.name);
  const std::string nearest = NearestName(name, names);
  throw UsageError(StrCat("no flag --", name, nearest.empty() ? "" : StrCat("; did you mean --", nearest, "?")));
}

// "name=value", "name" or "noname" taken apart. `has_value` tells "name=" from "name".
struct Written {
  std::string name;
  std::string value;
  bool has_value = false;
};

Written TakeApart(const std::string& argument) {
  const size_t start = argument.starts_with("--") ? 2 : 1;
  const size_t equals = argument.find('=', start);
  if (equals == std::string::npos) return {.name = argument.substr(start), .value = {}, .has_value = false};
  return {.name = argument.substr(start, equals - start), .value = argument.substr(equals + 1), .has_value = true};
}

bool IsFlag(const std::string& argument) { return argument.size() > 1 && argument[0] == '-'; }

[[noreturn]] void ThrowWrong(const FlagUse& flag, const std::string& value, const std::string& must) {
  throw UsageError(StrCat("--", flag.name, " is ", value, ", must be ", must));
}

// "at least 0", "between 0 and 1024", "above 0 and finite": what a number must be.
std::string RangeText(const FlagUse& flag, bool is_finite) {
  if (flag.max && std::isfinite(*flag.max))
    return StrCat("between ", NumberText(*flag.min), " and ", NumberText(*flag.max));
  return StrCat(flag.above_min ? "above " : "at least ", NumberText(*flag.min), is_finite ? " and finite" : "");
}

void CheckRange(const FlagUse& flag, const std::string& type, const std::string& value) {
  if (!flag.min) return;
  const double number = std::strtod(value.c_str(), nullptr);
  const bool is_within = (flag.above_min ? number > *flag.min : number >= *flag.min) &&
                         number <= flag.max.value_or(std::numeric_limits<double>::max());
  if (!is_within) ThrowWrong(flag, value, RangeText(flag, type == "double" && !flag.max));
}

// Throws for values that say nothing, which a script makes of a variable that is not set.
void CheckSaysSomething(const FlagUse& flag, const std::string& value) {
  if (flag.may_be_empty) return;
  if (value.empty())
    throw UsageError(StrCat("--", flag.name, " is empty; it needs a value: --", flag.name, "=", flag.value));
  const bool lacks_item = value.starts_with(',') || value.ends_with(',') || value.find(",,") != std::string::npos;
  if (flag.is_list && lacks_item)
    ThrowWrong(flag, StrCat("\"", value, "\""), StrCat(flag.value, " without empty items"));
}

void SetFlag(const FlagUse& flag, const std::string& value) {
  const gflags::CommandLineFlagInfo info = gflags::GetCommandLineFlagInfoOrDie(flag.name.c_str());
  if (info.type == "string") CheckSaysSomething(flag, value);
  if (gflags::SetCommandLineOption(flag.name.c_str(), value.c_str()).empty()) {
    const std::string kind = info.type == "bool"     ? "true or false"
                             : info.type == "double" ? "a number"
                             : info.type == "uint64" ? "a whole number from 0, of 64 bits"
                             : info.type == "int64"  ? "a whole number of 64 bits"
                                                     : "a whole number of 32 bits";
    ThrowWrong(flag, StrCat("\"", value, "\""), kind);
  }
  CheckRange(flag, info.type, value);
}

// A further value of a flag that was given before. Throws unless it is a list: one of two values would be lost.
void AddToList(const FlagUse& flag, const std::string& value, std::string* given) {
  if (flag.is_list) {
    *given += "," + value;
    return;
  }
  const std::string twice = StrCat("--", flag.name, " is given twice");
  throw UsageError(value == *given ? twice
                                   : StrCat(twice, ", as \"", *given, "\" and as \"", value, "\"; give one of them"));
}

// The first operand in place of the flag that says the same.
void TakeOperandAsFlag(const Command& command, const std::map<std::string, std::string>& values,
                       std::vector<std::string>* operands) {
  const auto flag = std::ranges::find_if(command.flags, &FlagUse::is_operand);
  if (flag == command.flags.end()) return;
  const auto given = values.find(flag->name);
  if (operands->empty() && given == values.end()) {
    throw UsageError(StrCat("needs ", command.operands, " (or --", flag->name, "=", flag->value, ")"));
  }
  if (operands->empty()) return;
  if (given != values.end()) {
    throw UsageError(StrCat("has --", flag->name, "=", given->second, " and \"", operands->front(),
                            "\" beside it; give one of them"));
  }
  SetFlag(*flag, operands->front());
  operands->erase(operands->begin());
}

void CheckOperands(const Command& command, const std::vector<std::string>& operands) {
  const int count = static_cast<int>(operands.size());
  if (count > command.max_operands) {
    throw UsageError(StrCat("does not know what to do with \"", operands[command.max_operands], "\""));
  }
  if (count < command.min_operands) throw UsageError(StrCat("needs operands: ", command.operands));
}

}  // namespace

bool IsBool(const FlagUse& flag) { return flag.value.empty(); }

bool IsGiven(const char* flag) { return !gflags::GetCommandLineFlagInfoOrDie(flag).is_default; }

bool AsksForHelp(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") return false;
    if (argument == "--help" || argument == "-help" || argument == "-h") return true;
  }
  return false;
}

std::vector<std::string> ParseArguments(const Command& command, const std::vector<std::string>& arguments) {
  std::vector<std::string> operands;
  std::map<std::string, std::string> values;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") {
      operands.insert(operands.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, arguments.end());
      break;
    }
    if (!IsFlag(arguments[i])) {
      operands.push_back(arguments[i]);
      continue;
    }
    Written written = TakeApart(arguments[i]);
    const FlagUse* flag = FindFlag(command, written.name);
    if (flag == nullptr && !written.has_value && written.name.starts_with("no")) {
      flag = FindFlag(command, std::string_view(written.name).substr(2));
      if (flag != nullptr && !IsBool(*flag)) flag = nullptr;
      written = {.name = written.name, .value = "false", .has_value = true};
    }
    if (flag == nullptr) ThrowUnknown(command, written.name);
    if (!written.has_value) {
      if (IsBool(*flag)) {
        written.value = "true";
      } else if (!flag->alone.empty()) {
        written.value = flag->alone;
      } else if (++i < arguments.size()) {
        written.value = arguments[i];
      } else {
        throw UsageError(StrCat("--", flag->name, " needs a value: --", flag->name, "=", flag->value));
      }
    }
    const auto [given, is_first] = values.try_emplace(flag->name, written.value);
    if (!is_first) AddToList(*flag, written.value, &given->second);
    SetFlag(*flag, given->second);
  }
  TakeOperandAsFlag(command, values, &operands);
  CheckOperands(command, operands);
  return operands;
}

}  // namespace stepnet::runner
