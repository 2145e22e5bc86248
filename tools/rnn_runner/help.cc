// rnn_runner help: what the tables of commands say, for people, for man and for shells.
#include <gflags/gflags.h>

#include <filesystem>
#include <iostream>
#include <map>

#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/completion.h"
#include "stepnet/tools/rnn_runner/help_text.h"
#include "stepnet/tools/rnn_runner/made_folder.h"
#include "stepnet/tools/rnn_runner/man_page.h"

DECLARE_string(format);
DECLARE_string(output_dir);

namespace stepnet::runner {
namespace {

const std::vector<std::string> kFormats = {"text", "man", "bash", "zsh", "fish"};

std::vector<std::string> CommandNames() {
  std::vector<std::string> names;
  for (const Command* command : Commands()) names.push_back(command->name);
  return names;
}

// Completion knows all commands at once.
std::string Completion() {
  if (FLAGS_format == "bash") return BashCompletion(Commands());
  return FLAGS_format == "zsh" ? ZshCompletion(Commands()) : FishCompletion(Commands());
}

std::string Text(const std::vector<std::string>& operands) {
  if (FLAGS_format != "text" && FLAGS_format != "man") return Completion();
  const bool is_man = FLAGS_format == "man";
  if (operands.empty()) return is_man ? ManPage(Commands()) : HelpText(Commands());
  const Command& command = FindCommand(operands.front());
  return is_man ? ManPage(command) : HelpText(command);
}

// What is written to a folder, by the names under which man and shells look for it.
std::map<std::string, std::string> Files() {
  if (FLAGS_format == "bash") return {{"rnn_runner", Completion()}};
  if (FLAGS_format == "zsh") return {{"_rnn_runner", Completion()}};
  if (FLAGS_format == "fish") return {{"rnn_runner.fish", Completion()}};
  if (FLAGS_format == "text") throw UsageError("--output_dir is of pages for man and of completion; text is printed");
  std::map<std::string, std::string> pages = {{"rnn_runner.1", ManPage(Commands())}};
  for (const Command* command : Commands()) pages[ManPageName(*command) + ".1"] = ManPage(*command);
  return pages;
}

int Help(const std::vector<std::string>& operands) {
  CheckFormat(kFormats);
  const bool is_of_all = (FLAGS_format != "text" && FLAGS_format != "man") || !FLAGS_output_dir.empty();
  if (is_of_all && !operands.empty()) {
    throw UsageError(StrCat("what --format=", FLAGS_format, FLAGS_output_dir.empty() ? "" : " --output_dir",
                            " writes is of all commands, and not of \"", operands.front(), "\" alone"));
  }
  if (FLAGS_output_dir.empty()) {
    std::cout << Text(operands);
    return kOk;
  }
  const std::map<std::string, std::string> files = Files();
  const MadeFolder folder(FLAGS_output_dir);
  for (const auto& [name, text] : files) WriteFile(std::filesystem::path(FLAGS_output_dir) / name, text);
  return kOk;
}

}  // namespace

const Command kHelp = {
    .name = "help",
    .operands = "[COMMAND]",
    .doc = "tells all about a command; writes pages for man and completion for shells",
    .details =
        "Without COMMAND, what commands there are. Pages for man and completion are installed with the program; where\n"
        "it was only built, the example gives the shell that reads it completion, until that ends.",
    .example =
        "rnn_runner help run\n. <(rnn_runner help --format=bash)\n"
        "rnn_runner help --format=man --output_dir=man1",
    .flags = {FormatFlag(kFormats, "text for people, a page for man, or completion for that shell, of all commands"),
              {.name = "output_dir",
               .value = "D",
               .doc = "folder to write to, under the names by which man and shells look: with man a page for each\n"
                      "command; made when absent",
               .kind = ValueKind::kFolder}},
    .min_operands = 0,
    .max_operands = 1,
    .operand_kind = ValueKind::kText,
    .operand_choices = CommandNames,
    .run = Help,
};

}  // namespace stepnet::runner
