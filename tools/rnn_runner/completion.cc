#include "stepnet/tools/rnn_runner/completion.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "stepnet/core/strings.h"
#include "stepnet/tools/rnn_runner/help_text.h"

namespace stepnet::runner {
namespace {

// `text` with a backslash before each of `characters`.
std::string Escaped(std::string_view text, std::string_view characters) {
  std::string result;
  for (const char c : text) {
    if (characters.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

// One line of it.
std::string Line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

std::string Origin(const std::string& shell) {
  return StrCat("# Completion of rnn_runner for ", shell, ", written by `rnn_runner help --format=", shell,
                "`; not to be edited.\n");
}

bool IsFile(ValueKind kind) { return kind == ValueKind::kInputFile || kind == ValueKind::kOutputFile; }

std::vector<std::string> OperandChoices(const Command& command) {
  return command.operand_choices == nullptr ? std::vector<std::string>() : command.operand_choices();
}

// For bash: "words cpu cuda", "list pass1 pass2", "file", "folder" or "text".
std::string BashValues(const std::vector<std::string>& choices, bool is_list, ValueKind kind) {
  if (!choices.empty()) return StrCat(is_list ? "list " : "words ", Join(choices, " "));
  if (kind == ValueKind::kText) return "text";
  return IsFile(kind) ? "file" : "folder";
}

std::string BashFlags(const Command& command) {
  std::string flags;
  for (const FlagUse& flag : command.flags) {
    flags += StrCat("--", flag.name, IsBool(flag) || !flag.alone.empty() ? " " : "= ");
    if (!flag.alone.empty()) flags += StrCat("--", flag.name, "= ");
  }
  return flags + "--help";
}

// A case for each flag whose value is not any text, of all commands at once where it is the same in all.
std::string BashFlagCases(const std::vector<const Command*>& commands) {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> patterns;  // of a flag, by its values
  for (const Command* command : commands) {
    for (const FlagUse& flag : command->flags) {
      if (IsBool(flag)) continue;
      const std::string values = BashValues(ChoicesOf(flag), flag.is_list, flag.kind);
      if (values == "text") continue;
      patterns[flag.name][values].push_back(StrCat("'", command->name, " --", flag.name, "'"));
    }
  }
  std::string cases;
  for (const auto& [flag, by_values] : patterns) {
    for (const auto& [values, of_commands] : by_values) {
      const std::string pattern = by_values.size() == 1 ? StrCat("*' --", flag, "'") : Join(of_commands, " | ");
      cases += StrCat("    ", pattern, ") echo '", values, "' ;;\n");
    }
  }
  return cases;
}

// What bash does with the tables. It takes `--flag=value` apart at `=` where that is one of COMP_WORDBREAKS.
constexpr char kBashFunction[] = R"bash(
# Fills COMPREPLY with what can begin with $2, as $1 says it ("words a b", "list a b", "file", "folder", "text"), each
# with $3 before it.
_rnn_runner_reply() {
  local kind=${1%% *} words=${1#* } current=$2 kept=$3
  case $kind in
    words) mapfile -t COMPREPLY < <(compgen -P "$kept" -W "$words" -- "$current") ;;
    list)
      if [[ $current == *,* ]]; then
        kept+=${current%,*},
        current=${current##*,}
      fi
      mapfile -t COMPREPLY < <(compgen -P "$kept" -W "$words" -- "$current")
      ;;
    file)
      compopt -o filenames
      mapfile -t COMPREPLY < <(compgen -P "$kept" -f -- "$current")
      ;;
    folder)
      compopt -o filenames
      mapfile -t COMPREPLY < <(compgen -P "$kept" -d -- "$current")
      ;;
  esac
}

_rnn_runner() {
  COMPREPLY=()
  local command=${COMP_WORDS[1]} current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
  local word=$COMP_CWORD flag='' kept='' flags values
  if ((COMP_CWORD == 1)); then
    _rnn_runner_reply "words $_rnn_runner_commands --help --version" "$current"
    return
  fi
  flags=" $(_rnn_runner_flags "$command") "
  if [[ $current == = ]]; then
    current=''
    word=$((word + 1))
  fi
  while ((word > 2)) && [[ ${COMP_WORDS[word - 1]} == = ]]; do word=$((word - 2)); done
  if ((word < COMP_CWORD)); then
    flag=${COMP_WORDS[word]}
  elif [[ $current == --*=* ]]; then
    flag=${current%%=*}
    kept=$flag=
    current=${current#*=}
  elif [[ $flags == *" $before= "* && $flags != *" $before "* ]]; then
    flag=$before
  fi
  if [[ -n $flag ]]; then
    values=$(_rnn_runner_values "$command $flag")
    _rnn_runner_reply "${values:-text}" "$current" "$kept"
  elif [[ $current == -* ]]; then
    _rnn_runner_reply "words $flags" "$current"
    [[ ${COMPREPLY[0]:-} != *= ]] || compopt -o nospace
  else
    _rnn_runner_reply "$(_rnn_runner_operands "$command")" "$current"
  fi
}

complete -F _rnn_runner rnn_runner
)bash";

// Text within '…' of zsh, in which colons and brackets end parts of a specification.
std::string ZshText(const std::string& text) {
  std::string result;
  for (const char c : Escaped(Line(text), "\\:[]")) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result;
}

// ":message:action"
std::string ZshAction(const std::string& what, const std::vector<std::string>& choices, bool is_list, ValueKind kind) {
  std::string action = IsFile(kind) ? "_files" : kind == ValueKind::kFolder ? "_files -/" : " ";
  if (!choices.empty() && is_list) action = StrCat("_values -s , ", what, " ", Join(choices, " "));
  if (!choices.empty() && !is_list) action = StrCat("(", Join(choices, " "), ")");
  return StrCat(":", ZshText(what), ":", action);
}

std::string ZshFlag(const FlagUse& flag) {
  const std::string doc = StrCat("[", ZshText(DocText(flag)), "]");
  std::string spec = flag.is_list ? "*--" + flag.name : "--" + flag.name;
  if (IsBool(flag)) return spec + doc;
  const std::string action = ZshAction(flag.value, ChoicesOf(flag), flag.is_list, flag.kind);
  // Behind a flag that may stand alone the value is part of the same word, or missing.
  return flag.alone.empty() ? StrCat(spec, "=", doc, action) : StrCat(spec, "=-", doc, ":", action);
}

std::string ZshCase(const Command& command) {
  std::string text = StrCat("        ", command.name, ")\n          _arguments \\\n");
  for (const FlagUse& flag : command.flags) text += StrCat("            '", ZshFlag(flag), "' \\\n");
  text += StrCat("            '--help[", ZshText(kHelpFlagDoc), "]'");
  if (command.max_operands > 0 || std::ranges::any_of(command.flags, &FlagUse::is_operand)) {
    text += StrCat(" \\\n            '*",
                   ZshAction(command.operands, OperandChoices(command), /*is_list=*/false, command.operand_kind), "'");
  }
  return text + "\n          ;;\n";
}

// In '…' of fish.
std::string FishText(const std::string& text) { return StrCat("'", Escaped(Line(text), "\\'"), "'"); }

// The options of `complete` that say what the value of a flag is. The word behind one that may stand alone is no value.
std::string FishValues(const FlagUse& flag) {
  const std::string needed = flag.alone.empty() ? " -x" : "";
  const std::vector<std::string> choices = ChoicesOf(flag);
  if (!choices.empty()) {
    const std::string words = Join(choices, " ");
    return StrCat(needed, " -a ", FishText(flag.is_list ? StrCat("(__fish_append , ", words, ")") : words));
  }
  if (flag.kind == ValueKind::kFolder) return needed + " -a '(__fish_complete_directories)'";
  return IsFile(flag.kind) ? " -r -F" : needed;
}

std::string FishLines(const Command& command) {
  const std::string here = StrCat("complete -c rnn_runner -n '__fish_seen_subcommand_from ", command.name, "'");
  std::string text = StrCat("\ncomplete -c rnn_runner -n __fish_use_subcommand -a ", command.name, " -d ",
                            FishText(command.doc), "\n");
  for (const FlagUse& flag : command.flags) {
    text +=
        StrCat(here, " -l ", flag.name, IsBool(flag) ? "" : FishValues(flag), " -d ", FishText(DocText(flag)), "\n");
  }
  text += StrCat(here, " -l help -d ", FishText(kHelpFlagDoc), "\n");
  const std::vector<std::string> operands = OperandChoices(command);
  if (!operands.empty()) {
    text += StrCat(here, " -a ", FishText(Join(operands, " ")), "\n");
  } else if (command.operand_kind == ValueKind::kFolder) {
    text += StrCat(here, " -a '(__fish_complete_directories)'\n");
  } else {
    text += StrCat(here, " -F\n");
  }
  return text;
}

}  // namespace

std::string BashCompletion(const std::vector<const Command*>& commands) {
  std::vector<std::string> names;
  std::string flags;
  std::string operands;
  for (const Command* command : commands) {
    names.push_back(command->name);
    flags += StrCat("    ", command->name, ") echo '", BashFlags(*command), "' ;;\n");
    const std::string values = BashValues(OperandChoices(*command), /*is_list=*/false, command->operand_kind);
    operands += StrCat("    ", command->name, ") echo '", values, "' ;;\n");
  }
  return StrCat(
      Origin("bash"), "\n_rnn_runner_commands='", Join(names, " "), "'\n",
      "\n# The flags of command $1; those that need a value end with =.\n_rnn_runner_flags() {\n  case $1 in\n", flags,
      "  esac\n}\n",
      "\n# What the value of \"COMMAND --FLAG\" can be, where that is not any text.\n_rnn_runner_values() {\n  case $1 "
      "in\n",
      BashFlagCases(commands), "  esac\n}\n",
      "\n# What the operands of command $1 can be.\n_rnn_runner_operands() {\n  case $1 in\n", operands, "  esac\n}\n",
      kBashFunction);
}

std::string ZshCompletion(const std::vector<const Command*>& commands) {
  std::string list;
  std::string cases;
  for (const Command* command : commands) {
    list += StrCat("    '", command->name, ":", ZshText(command->doc), "'\n");
    cases += ZshCase(*command);
  }
  return StrCat("#compdef rnn_runner\n", Origin("zsh"),
                "\n_rnn_runner() {\n"
                "  local curcontext=$curcontext state\n  local -a commands=(\n",
                list,
                "  )\n"
                "  _arguments -C '(- *)--help[list the commands]' '(- *)--version[",
                ZshText(kVersionFlagDoc),
                "]' \\\n"
                "    '1:command:->command' '*::argument:->arguments'\n"
                "  case $state in\n"
                "    command) _describe -t commands command commands ;;\n"
                "    arguments)\n"
                "      case $words[1] in\n",
                cases,
                "      esac\n      ;;\n  esac\n}\n\n"
                // Read as an autoloaded function it is called; otherwise it is registered.
                "if [[ $funcstack[1] == _rnn_runner ]]; then\n  _rnn_runner \"$@\"\nelse\n"
                "  compdef _rnn_runner rnn_runner\nfi\n");
}

std::string FishCompletion(const std::vector<const Command*>& commands) {
  std::string text =
      StrCat(Origin("fish"), "\ncomplete -c rnn_runner -f\n",
             "complete -c rnn_runner -n __fish_use_subcommand -l help -d 'list the commands'\n",
             "complete -c rnn_runner -n __fish_use_subcommand -l version -d ", FishText(kVersionFlagDoc), "\n");
  for (const Command* command : commands) text += FishLines(*command);
  return text;
}

}  // namespace stepnet::runner
