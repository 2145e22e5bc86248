// Explanations as one page that needs nothing else.
#include <algorithm>

#include "stepnet/core/strings.h"
#include "stepnet/report/explanation.h"
#include "stepnet/report/text.h"

namespace stepnet {
namespace {

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<style>
body { font: 15px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff }
h1 { font-size: 1.4rem } h2 { font-size: 1.15rem; margin-top: 2rem } h3 { font-size: 1rem; margin-bottom: .3rem }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-top: 1px solid #ddd }
th { font-weight: 600; border-top: 0 } td.time { white-space: nowrap; text-align: right } code, pre { font: 13px/1.4 ui-monospace, monospace }
pre { background: #f6f6f6; padding: .7rem; overflow-x: auto } .why { color: #666 }
.run { table-layout: fixed } .run th:nth-child(1) { width: 2.5rem } .run th:nth-child(2) { width: 5rem } .run th:nth-child(4) { width: 9rem }
.bar { display: block; height: .5rem; background: #3572b0; margin-top: .3rem; min-width: 1px } details { margin: .6rem 0 }
</style>
)";

std::string Escaped(const std::string& text) {
  std::string result;
  for (const char c : Printable(text)) {
    switch (c) {
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '&': result += "&amp;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  }
  return result;
}

double MicrosecondsOf(const ExplainedInstruction& of) { return of.measured.value_or(of.estimate); }

// "25.1, 81 % of 251 GFLOP/s, estimate 20.3"; "about 20.3".
std::string Time(const ExplainedInstruction& of, bool is_measured) {
  const std::string estimate = Number(of.estimate, 3);
  if (!of.measured) {
    return StrCat("about ", estimate, is_measured ? "<div class=why>did not run when measured</div>" : "");
  }
  std::string html = Number(*of.measured, 3);
  if (of.limit && *of.measured > 0) {
    html += StrCat("<div class=why>", Number(100 * of.limit->microseconds / *of.measured, 2), " % of ", of.limit->what,
                   "</div>");
  }
  return StrCat(html, "<div class=why>estimate ", estimate, "</div>");
}

std::string Row(const ExplainedInstruction& of, double longest, bool is_measured) {
  std::string what;
  if (of.formulas.empty()) what = StrCat("<code>", Escaped(of.text), "</code>");
  for (const std::string& formula : of.formulas) what += StrCat("<code>", Escaped(formula), "</code><br>");
  for (const std::string& note : of.notes) what += StrCat("<div class=why>", Escaped(note), "</div>");
  return StrCat("<tr><td>", of.number, "<td>", KindName(of.kind), "<td>", what, "<td class=time>",
                Time(of, is_measured),
                "<span class=bar style=\"width:", Number(longest > 0 ? 100 * MicrosecondsOf(of) / longest : 0, 3),
                "%\"></span>\n");
}

std::string Section(const Explanation& of) {
  std::string html = StrCat("<h2>", Escaped(of.net), of.backward ? ", backward" : "", "</h2>\n<p>",
                            Count(of.num_operators, "operator"), " of the step run as ",
                            Count(NumInstructions(of), "instruction"), ".</p>\n");
  double longest = 0;
  for (const ExplainedStage& stage : of.stages) {
    for (const ExplainedInstruction& instruction : stage.instructions)
      longest = std::max(longest, MicrosecondsOf(instruction));
  }
  for (const ExplainedStage& stage : of.stages) {
    html += StrCat("<h3>", Escaped(stage.title), stage.threads > 1 ? StrCat(", on ", stage.threads, " threads") : "",
                   "</h3><div class=why>", Escaped(stage.why),
                   "</div>\n<table class=run><tr><th>#<th>what<th>computes<th>&micro;s a step\n");
    for (const ExplainedInstruction& instruction : stage.instructions)
      html += Row(instruction, longest, of.is_measured);
    html += "</table>\n";
  }
  html += "<h3>Memory</h3>\n<table><tr><th>kind<th>is<th>values<th>bytes\n";
  for (const ExplainedStorage& storage : of.storage) {
    html += StrCat(
        "<tr><td>", storage.kind, "<td>", storage.meaning, "<td><code>", Escaped(Join(storage.values, ", ")),
        "</code><td class=time>",
        storage.bytes > 0 ? Bytes(static_cast<double>(storage.bytes)) + (storage.has_rows ? " a row" : "") : "", "\n");
  }
  html += "</table>\n";
  if (!of.chain.empty())
    html += StrCat("<p>What sets the pace: <code>", Escaped(Join(of.chain, "; ")), "</code></p>\n");
  for (const auto& [title, text] :
       {std::pair("The step as it was written", of.imported_text), std::pair("The step as it runs", of.graph_text),
        std::pair("When what may run", of.schedule_text)}) {
    if (!text.empty())
      html += StrCat("<details><summary>", title, "</summary><pre>", Escaped(text), "</pre></details>\n");
  }
  return html;
}

}  // namespace

std::string ExplanationsHtml(const std::string& title, const std::vector<Explanation>& explanations) {
  std::string html = StrCat(kHead, "<title>", Escaped(title), "</title></head><body>\n<h1>", Escaped(title), "</h1>\n");
  for (const Explanation& explanation : explanations) html += Section(explanation);
  return html + "</body></html>\n";
}

}  // namespace stepnet
