#include "stepnet/tools/rnn_runner/man_page.h"

#include <string_view>

#include "stepnet/core/strings.h"
#include "stepnet/core/version.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/help_text.h"

namespace stepnet::runner {
namespace {

// A character as it shall be seen: roff takes some for commands, and typesets others as quotation marks and dashes.
std::string Escaped(char c) {
  switch (c) {
    case '\\': return "\\e";
    case '-': return "\\-";
    case '\'': return "\\(aq";
    case '`': return "\\(ga";
    case '^': return "\\(ha";
    case '~': return "\\(ti";
    default: return std::string(1, c);
  }
}

// Text of a line, "…" as three dots, which all terminals have. Between backquotes it is bold.
std::string Roff(std::string_view text) {
  constexpr std::string_view kDots = "…";
  std::string result = text.starts_with('.') ? "\\&" : "";
  bool is_bold = false;
  while (!text.empty()) {
    if (text.starts_with(kDots)) {
      result += "...";
      text.remove_prefix(kDots.size());
      continue;
    }
    if (text.front() == '`') {
      is_bold = !is_bold;
      result += is_bold ? "\\fB" : "\\fR";
    } else {
      result += Escaped(text.front());
    }
    text.remove_prefix(1);
  }
  return result;
}

std::string Bold(std::string_view text) { return StrCat("\\fB", Roff(text), "\\fR"); }

// A paragraph, filled; lines of the text that are indented begin lines.
std::string Paragraph(const std::string& lines) {
  std::string result;
  for (const std::string& line : SplitList(lines, '\n')) result += Roff(line) + "\n";
  return result;
}

std::string Examples(const std::string& lines) { return StrCat(".SH EXAMPLES\n.nf\n", Paragraph(lines), ".fi\n"); }

std::string Header(const std::string& name, const std::string& doc) {
  std::string title = name;
  for (char& c : title) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return StrCat(".\\\" Written by rnn_runner help --format=man; not to be edited.\n.TH ", Roff(title),
                " 1 \"\" \"StepNet " STEPNET_VERSION "\" \"StepNet\"\n.SH NAME\n", Roff(name), " \\- ", Roff(doc),
                "\n");
}

std::string Synopsis(const std::string& command, const std::string& operands) {
  return StrCat(".SH SYNOPSIS\n", Bold(command), " [\\fB\\-\\-\\fIflag\\fB=\\fIvalue\\fR ...]",
                operands.empty() ? "" : StrCat(" \\fI", Roff(operands), "\\fR"), "\n");
}

// "=\fIF\fR"
std::string Value(const FlagUse& flag) {
  if (IsBool(flag)) return "";
  const std::string value = StrCat("=\\fI", Roff(flag.value), "\\fR");
  return flag.alone.empty() ? value : StrCat("[", value, "]");
}

std::string Item(const std::string& head, const std::string& lines) {
  return StrCat(".TP\n", head, "\n", Paragraph(lines));
}

std::string Option(const FlagUse& flag) {
  const std::string remark = RemarkOnDefault(flag);
  return Item(StrCat(Bold("--" + flag.name), Value(flag), remark.empty() ? "" : " " + Roff(remark)), DocText(flag));
}

std::string ExitStatus() { return StrCat(".SH \"EXIT STATUS\"\n", Roff(kExitStatusDoc), ".\n"); }

// "\fBrnn_runner\-run\fR(1)"
std::string Reference(const std::string& page) { return StrCat("\\fB", Roff(page), "\\fR(1)"); }

}  // namespace

std::string ManPageName(const Command& command) { return "rnn_runner-" + command.name; }

std::string ManPage(const Command& command) {
  std::string page =
      StrCat(Header(ManPageName(command), command.doc), Synopsis("rnn_runner " + command.name, command.operands),
             ".SH DESCRIPTION\n", Paragraph(command.details), ".SH OPTIONS\n");
  for (const FlagUse& flag : command.flags) page += Option(flag);
  page += Item(Bold("--help"), kHelpFlagDoc);
  return StrCat(page, Examples(command.example), ExitStatus(), ".SH \"SEE ALSO\"\n", Reference("rnn_runner"), "\n");
}

std::string ManPage(const std::vector<const Command*>& commands) {
  std::string page =
      StrCat(Header("rnn_runner", kProgramDoc), ".SH SYNOPSIS\n", Bold("rnn_runner"),
             " \\fICOMMAND\\fR [\\fB\\-\\-\\fIflag\\fB=\\fIvalue\\fR ...] [\\fIoperand\\fR ...]\n", ".SH COMMANDS\n");
  std::vector<std::string> references;
  for (const Command* command : commands) {
    page += Item(Bold(command->name), command->doc);
    references.push_back(Reference(ManPageName(*command)));
  }
  return StrCat(page, ".SH OPTIONS\n", Item(Bold("--help"), "list the commands; behind a command, tell all about it"),
                Item(Bold("--version"), kVersionFlagDoc), ExitStatus(), ".SH \"SEE ALSO\"\n", Join(references, ",\n"),
                "\n");
}

}  // namespace stepnet::runner
