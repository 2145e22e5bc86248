// Explanations as text and as JSON.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "stepnet/core/printable.h"
#include "stepnet/core/strings.h"
#include "stepnet/report/explanation.h"
#include "stepnet/report/text.h"

namespace stepnet {
namespace {

using Kind = ExplainedInstruction::Kind;

// GFLOP/s of products, functions where these are what sets the limit, and otherwise GB/s; "" where nothing is known.
std::string RateText(const ExplainedInstruction& of, double microseconds) {
  if (microseconds <= 0) return "";
  if (of.kind == Kind::kProduct) return StrCat(Figure(of.flops / microseconds / 1e3), " GFLOP/s");
  if (of.limit && of.limit->of_functions) return StrCat(Figure(of.functions / microseconds / 1e3), " G functions/s");
  return of.bytes > 0 ? StrCat(Figure(of.bytes / microseconds / 1e3), " GB/s") : "";
}

std::string TimeText(const ExplainedInstruction& of, bool is_measured) {
  const std::string estimate = StrCat(Figure(of.estimate), " us");
  if (!of.runs) return "does not run";
  if (!of.measured) return StrCat(is_measured ? "did not run when measured; " : "", "about ", estimate, " a step");
  const double microseconds = *of.measured;
  std::string text = StrCat(Figure(microseconds), " us a step");
  if (const std::string rate = RateText(of, microseconds); !rate.empty()) text += ", " + rate;
  if (of.limit && microseconds > 0) {
    text += StrCat(", ", Figure(std::round(100 * of.limit->microseconds / microseconds)), " % of ", of.limit->what);
  }
  return StrCat(text, " (estimate ", estimate, ")");
}

std::string ListText(const std::vector<std::string>& places) {
  constexpr size_t kShown = 12;
  const std::vector<std::string> shown(places.begin(),
                                       places.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, places.size())));
  return StrCat(Join(shown, ", "), places.size() > kShown ? StrCat(" and ", places.size() - kShown, " more") : "");
}

}  // namespace

const char* KindName(Kind kind) {
  switch (kind) {
    case Kind::kProduct: return "product";
    case Kind::kFused: return "fused";
    case Kind::kOperator: return "operator";
    case Kind::kMove: return "move";
    case Kind::kPack: return "pack";
  }
  return "unknown";
}

int NumInstructions(const Explanation& explanation) {
  int count = 0;
  for (const ExplainedStage& stage : explanation.stages) {
    count += static_cast<int>(std::ranges::count_if(stage.instructions, &ExplainedInstruction::runs));
  }
  return count;
}

std::string TotalText(const Explanation& explanation) {
  std::map<Kind, double> of_kind;  // microseconds
  double total = 0, estimate = 0;
  for (const ExplainedStage& stage : explanation.stages) {
    for (const ExplainedInstruction& of : stage.instructions) {
      if (!of.runs || (explanation.is_measured && !of.measured)) continue;
      const double microseconds = of.measured.value_or(of.estimate);
      of_kind[of.kind] += microseconds;
      total += microseconds;
      estimate += of.estimate;
    }
  }
  if (total <= 0) return "";
  std::vector<std::pair<double, Kind>> longest;
  for (const auto& [kind, microseconds] : of_kind) longest.emplace_back(microseconds, kind);
  std::ranges::stable_sort(longest, std::ranges::greater(), &std::pair<double, Kind>::first);
  std::vector<std::string> shares;
  for (const auto& [microseconds, kind] : longest) {
    shares.push_back(StrCat(KindName(kind), " ", Figure(std::round(100 * microseconds / total)), " %"));
  }
  return StrCat(
      "all instructions take ", explanation.is_measured ? "" : "about ", Figure(total), " us a step on one core",
      explanation.is_measured ? StrCat(" (estimate ", Figure(estimate), " us)") : "", ": ", Join(shares, ", "));
}

std::vector<std::string> PlacesOf(const ExplainedStorage& storage) {
  std::vector<std::string> places;
  for (const std::vector<std::string>& names : storage.values) places.push_back(Join(names, " then "));
  return places;
}

std::string PaceText(const Explanation& explanation) {
  const std::string chain =
      StrCat(Join(explanation.chain, "; then "), explanation.chain_comes_back ? "; then again" : "");
  return explanation.whole_loop.empty() ? chain : StrCat(explanation.whole_loop, "; its longest chain is ", chain);
}

std::string HowStagesPass(const Explanation& explanation) {
  const std::int64_t steps = explanation.block_steps;
  if (steps == 0) return "";
  if (explanation.num_steps && *explanation.num_steps <= steps) {
    return "one block has all steps: what one stage passes to another has a row for each of them";
  }
  return StrCat("blocks of ", steps, " steps: what one stage passes to another has a row for each of them");
}

std::vector<std::string> HowMemoryIsSaved(const Explanation& explanation) {
  std::vector<std::string> texts;
  for (const bool is_of_less : {true, false}) {
    std::vector<std::string> values;
    std::int64_t bytes = 0;
    for (const RecomputedValue& value : explanation.recomputed) {
      if (value.follows_from_less != is_of_less) continue;
      std::vector<std::string> names;
      for (const std::string& blob : value.blobs) names.push_back(NameText(blob));
      values.push_back(StrCat(Join(names, ", "), " (", Bytes(static_cast<double>(value.bytes)), " and about ",
                              Figure(value.microseconds), " us a step)"));
      bytes += value.bytes;
    }
    if (values.empty()) continue;
    const char* const how =
        is_of_less && explanation.backward ? "computed again, as it follows from less than it is: "
        : is_of_less           ? "not kept, as it follows from less than it is, but computed again by the gradient: "
        : explanation.backward ? "computed again, as the run forward had no memory to keep it: "
                               : "not kept, as memory is short, but computed again by the gradient: ";
    const std::string saved = explanation.num_steps
                                  ? StrCat(", ", Bytes(static_cast<double>(bytes * *explanation.num_steps)), " in all")
                                  : "";
    texts.push_back(StrCat(how, ListText(values), saved));
  }
  return texts;
}

namespace {

std::string TextOf(const Explanation& of) {
  std::string text =
      StrCat("step net ", NameText(of.net), of.backward ? ", backward" : "",
             of.num_steps ? StrCat(", in a run of ", Count(*of.num_steps, "step")) : "", ": ",
             Count(of.num_operators, "operator"), " run as ", Count(NumInstructions(of), "instruction"), "\n");
  for (const ExplainedStage& stage : of.stages) {
    text += StrCat(stage.title, stage.why.empty() ? "" : ": " + stage.why,
                   stage.threads > 1 ? StrCat("; on ", stage.threads, " threads") : "",
                   stage.shorter_runs.empty() ? "" : StrCat(" (", stage.shorter_runs, ")"), "\n");
    for (const ExplainedInstruction& instruction : stage.instructions) {
      text += StrCat("  ", instruction.number, ": ", KindName(instruction.kind), "; ",
                     TimeText(instruction, of.is_measured), "\n");
      if (instruction.formulas.empty()) text += StrCat("      ", instruction.text, "\n");
      for (const std::string& formula : instruction.formulas) text += StrCat("      ", formula, "\n");
      for (const std::string& note : instruction.notes) text += StrCat("    ", note, "\n");
    }
  }
  if (const std::string total = TotalText(of); !total.empty()) text += total + "\n";
  if (of.stages_overlap) {
    text += StrCat(
        "stages overlap on threads: each works on another ", of.chunk_steps, " steps",
        of.min_steps_to_overlap > 0 ? StrCat(", in runs of ", of.min_steps_to_overlap, " steps or more") : "", "\n");
  }
  if (const std::string passed = HowStagesPass(of); !passed.empty()) text += passed + "\n";
  for (const std::string& saved : HowMemoryIsSaved(of)) text += saved + "\n";
  for (const ExplainedStorage& storage : of.storage) {
    text += StrCat(storage.kind, ", ", storage.meaning, ": ", ListText(PlacesOf(storage)),
                   storage.bytes > 0
                       ? StrCat("; ", Bytes(static_cast<double>(storage.bytes)), storage.has_rows ? " a row" : "")
                       : "",
                   "\n");
  }
  if (!of.chain.empty()) text += StrCat("what sets the pace: ", PaceText(of), "\n");
  return text;
}

// With six digits, which print as they are.
double Rounded(double value) { return std::strtod(Number(value, 6).c_str(), nullptr); }

nlohmann::ordered_json JsonOf(const Explanation& of) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (const ExplainedStage& stage : of.stages) {
    nlohmann::ordered_json instructions = nlohmann::ordered_json::array();
    for (const ExplainedInstruction& instruction : stage.instructions) {
      nlohmann::ordered_json item = {{"number", instruction.number},
                                     {"kind", KindName(instruction.kind)},
                                     {"text", instruction.text},
                                     {"formulas", instruction.formulas},
                                     {"flops_a_step", Rounded(instruction.flops)},
                                     {"bytes_a_step", Rounded(instruction.bytes)},
                                     {"functions_a_step", Rounded(instruction.functions)},
                                     {"estimated_us", Rounded(instruction.estimate)},
                                     {"runs", instruction.runs}};
      if (instruction.measured) item["measured_us"] = Rounded(*instruction.measured);
      if (instruction.limit) {
        item["limit_us"] = Rounded(instruction.limit->microseconds);
        item["limit"] = instruction.limit->what;
      }
      item["notes"] = instruction.notes;
      instructions.push_back(std::move(item));
    }
    stages.push_back({{"title", stage.title},
                      {"why", stage.why},
                      {"threads", stage.threads},
                      {"shorter_runs", stage.shorter_runs},
                      {"instructions", std::move(instructions)}});
  }
  nlohmann::ordered_json storage = nlohmann::ordered_json::array();
  for (const ExplainedStorage& kind : of.storage) {
    nlohmann::ordered_json values = nlohmann::ordered_json::array();
    for (const std::vector<std::string>& names : kind.values) {
      for (const std::string& name : names) values.push_back(name);
    }
    storage.push_back(
        {{"kind", kind.kind}, {"values", std::move(values)}, {kind.has_rows ? "bytes_a_row" : "bytes", kind.bytes}});
  }
  nlohmann::ordered_json recomputed = nlohmann::ordered_json::array();
  for (const RecomputedValue& value : of.recomputed) {
    recomputed.push_back(
        {{"blobs", value.blobs}, {"bytes_a_step", value.bytes}, {"estimated_us", Rounded(value.microseconds)}});
  }
  return {{"net", of.net},
          {"backward", of.backward},
          {"steps", of.num_steps ? nlohmann::ordered_json(*of.num_steps) : nlohmann::ordered_json()},
          {"measured", of.is_measured},
          {"operators", of.num_operators},
          {"stages", std::move(stages)},
          {"stages_overlap", of.stages_overlap},
          {"min_steps_to_overlap", of.min_steps_to_overlap},
          {"chunk_steps", of.chunk_steps},
          {"block_steps", of.block_steps},
          {"recomputed", std::move(recomputed)},
          {"storage", std::move(storage)},
          {"longest_chain", of.chain},
          {"whole_loop", of.whole_loop}};
}

}  // namespace

std::string ExplanationsText(const std::vector<Explanation>& explanations) {
  std::vector<std::string> texts;
  for (const Explanation& explanation : explanations) texts.push_back(Printable(TextOf(explanation)));
  return Join(texts, "\n");
}

std::string ExplanationsJson(const std::vector<Explanation>& explanations) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Explanation& explanation : explanations) json.push_back(JsonOf(explanation));
  return json.dump(2, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace stepnet
