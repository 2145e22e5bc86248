#include "stepnet/tools/rnn_runner/help_text.h"

#include <gflags/gflags.h>

#include <algorithm>

#include "stepnet/core/number_text.h"
#include "stepnet/core/strings.h"
#include "stepnet/tools/rnn_runner/common_flags.h"

namespace stepnet::runner {
namespace {

gflags::CommandLineFlagInfo InfoOf(const FlagUse& flag) {
  return gflags::GetCommandLineFlagInfoOrDie(flag.name.c_str());
}

// Lines of `text`, each with `indent` before it.
std::string Indented(const std::string& text, const std::string& indent) {
  std::string result;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    result += indent + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return result;
}

std::string FlagHelp(const FlagUse& flag) {
  const std::string remark = RemarkOnDefault(flag);
  return StrCat("  --", flag.name, ValueText(flag), remark.empty() ? "" : "  " + remark, "\n",
                Indented(DocText(flag), "      "));
}

}  // namespace

std::string Usage(const Command& command) {
  return StrCat("rnn_runner ", command.name, " [--flag=value …]", command.operands.empty() ? "" : " ",
                command.operands);
}

std::string ValueText(const FlagUse& flag) {
  if (IsBool(flag)) return "";
  return flag.alone.empty() ? "=" + flag.value : "[=" + flag.value + "]";
}

std::string RemarkOnDefault(const FlagUse& flag) {
  if (flag.is_operand) return "(or the operand)";
  std::string value = InfoOf(flag).default_value;
  if (InfoOf(flag).type == "double") value = NumberText(std::stod(value));  // gflags prints 1e-5 with all digits
  return value.empty() ? "" : StrCat("(default ", value, ")");
}

std::string DocText(const FlagUse& flag) {
  constexpr size_t kLittle = 8;
  std::string doc = flag.doc.empty() ? InfoOf(flag).description : flag.doc;
  if (flag.choices == nullptr) return doc;
  const std::vector<std::string> choices = flag.choices();
  return choices.size() > kLittle ? doc : StrCat(doc, ": ", Join(choices, ", "));
}

std::vector<std::string> ChoicesOf(const FlagUse& flag) {
  constexpr double kMaxNumbers = 10;
  if (flag.choices != nullptr) return flag.choices();
  std::vector<std::string> choices;
  const bool is_of_names = flag.value.find('=') != std::string::npos;  // "BLOB=write|add": a choice for each
  if (!is_of_names && flag.value.find('|') != std::string::npos) {
    for (const std::string& choice : SplitList(flag.value, '|')) choices.push_back(choice.substr(0, choice.find('[')));
  } else if (flag.min && flag.max && *flag.max - *flag.min < kMaxNumbers) {
    for (double number = *flag.min; number <= *flag.max; ++number) choices.push_back(NumberText(number));
  }
  return choices;
}

std::string HelpText(const Command& command) {
  std::string text = StrCat("usage: ", Usage(command), "\n\n", command.doc, "\n");
  if (!command.details.empty()) text += "\n" + command.details + "\n";
  text += "\nflags:\n";
  for (const FlagUse& flag : command.flags) text += FlagHelp(flag);
  return StrCat(text, "\nexample:\n", Indented(command.example, "  "));
}

std::string HelpText(const std::vector<const Command*>& commands) {
  std::string text =
      StrCat("rnn_runner ", kProgramDoc, ".\n\nusage: rnn_runner COMMAND [--flag=value …] [operand …]\n\ncommands:\n");
  for (const Command* command : commands) {
    text += StrCat("  ", command->name, std::string(11 - command->name.size(), ' '), command->doc, "\n");
  }
  return StrCat(text, "\nrnn_runner COMMAND --help tells more about a command.\nExit status: ", kExitStatusDoc, ".\n");
}

}  // namespace stepnet::runner
