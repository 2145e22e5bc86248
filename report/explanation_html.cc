// Explanations as one page that needs nothing else.
#include <algorithm>
#include <cmath>

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
.drawing { overflow-x: auto; margin: .6rem 0 } .graph path { fill: none; stroke: #888 } .graph text { font: 12px ui-monospace, monospace }
.graph rect { fill: #fff; stroke: #888 } .graph .product rect { fill: #cfe2f7 } .graph .region rect { fill: #d8efd3 } .graph .value rect { fill: #f1f1f1; stroke: none }
.bar { display: block; height: .5rem; background: #3572b0; margin-top: .3rem; min-width: 1px } details { margin: .6rem 0 }
</style>
)";

double MicrosecondsOf(const ExplainedInstruction& of) { return of.runs ? of.measured.value_or(of.estimate) : 0; }

// "25.1, 81 % of 251 GFLOP/s, estimate 20.3"; "about 20.3".
std::string Time(const ExplainedInstruction& of, bool is_measured) {
  const std::string estimate = Figure(of.estimate);
  if (!of.runs) return "does not run";
  if (!of.measured) {
    return StrCat("about ", estimate, is_measured ? "<div class=why>did not run when measured</div>" : "");
  }
  std::string html = Figure(*of.measured);
  if (of.limit && *of.measured > 0) {
    html += StrCat("<div class=why>", Figure(std::round(100 * of.limit->microseconds / *of.measured)), " % of ",
                   of.limit->what, "</div>");
  }
  return StrCat(html, "<div class=why>estimate ", estimate, "</div>");
}

std::string Row(const ExplainedInstruction& of, double longest, bool is_measured) {
  std::string what;
  if (of.formulas.empty()) what = StrCat("<code>", HtmlText(of.text), "</code>");
  for (const std::string& formula : of.formulas) what += StrCat("<code>", HtmlText(formula), "</code><br>");
  for (const std::string& note : of.notes) what += StrCat("<div class=why>", HtmlText(note), "</div>");
  return StrCat("<tr><td>", of.number, "<td>", KindName(of.kind), "<td>", what, "<td class=time>",
                Time(of, is_measured),
                "<span class=bar style=\"width:", Number(longest > 0 ? 100 * MicrosecondsOf(of) / longest : 0, 3),
                "%\"></span>\n");
}

// A text that opens by a click, below its drawing, where it has one.
std::string Details(const char* title, const std::string& drawing, const std::string& text) {
  if (text.empty()) return "";
  const std::string details = StrCat("<details><summary>", drawing.empty() ? title : "As text", "</summary><pre>",
                                     HtmlText(text), "</pre></details>\n");
  return drawing.empty() ? details : StrCat("<h3>", title, "</h3>\n<div class=drawing>", drawing, "</div>", details);
}

std::string Section(const Explanation& of) {
  std::string html = StrCat("<h2>", HtmlText(of.net), of.backward ? ", backward" : "", "</h2>\n<p>",
                            of.num_steps ? StrCat("In a run of ", Count(*of.num_steps, "step"), ", ") : "",
                            Count(of.num_operators, "operator"), " of the step run as ",
                            Count(NumInstructions(of), "instruction"), ".</p>\n");
  double longest = 0;
  for (const ExplainedStage& stage : of.stages) {
    for (const ExplainedInstruction& instruction : stage.instructions)
      longest = std::max(longest, MicrosecondsOf(instruction));
  }
  for (const ExplainedStage& stage : of.stages) {
    html += StrCat("<h3>", HtmlText(stage.title), stage.threads > 1 ? StrCat(", on ", stage.threads, " threads") : "",
                   stage.shorter_runs.empty() ? "" : StrCat(" (", stage.shorter_runs, ")"), "</h3><div class=why>",
                   HtmlText(stage.why), "</div>\n<table class=run><tr><th>#<th>what<th>computes<th>&micro;s a step\n");
    for (const ExplainedInstruction& instruction : stage.instructions)
      html += Row(instruction, longest, of.is_measured);
    html += "</table>\n";
  }
  if (const std::string total = TotalText(of); !total.empty()) html += StrCat("<p>", total, "</p>\n");
  html += "<h3>Memory</h3>\n<table><tr><th>kind<th>is<th>values<th>bytes\n";
  for (const ExplainedStorage& storage : of.storage) {
    html += StrCat(
        "<tr><td>", storage.kind, "<td>", storage.meaning, "<td><code>", HtmlText(Join(PlacesOf(storage), ", ")),
        "</code><td class=time>",
        storage.bytes > 0 ? Bytes(static_cast<double>(storage.bytes)) + (storage.has_rows ? " a row" : "") : "", "\n");
  }
  html += "</table>\n";
  for (const std::string& saved : HowMemoryIsSaved(of)) html += StrCat("<p>", HtmlText(saved), "</p>\n");
  if (!of.chain.empty()) html += StrCat("<p>What sets the pace: <code>", HtmlText(PaceText(of)), "</code></p>\n");
  html += Details("The step as it was written", of.imported_drawing, of.imported_text);
  html += Details("The step as it runs", of.graph_drawing, of.graph_text);
  html += Details("When what may run", "", of.schedule_text);
  return html;
}

}  // namespace

std::string ExplanationsHtml(const std::string& title, const std::vector<Explanation>& explanations) {
  std::string html =
      StrCat(kHead, "<title>", HtmlText(title), "</title></head><body>\n<h1>", HtmlText(title), "</h1>\n");
  for (const Explanation& explanation : explanations) html += Section(explanation);
  return html + "</body></html>\n";
}

}  // namespace stepnet
