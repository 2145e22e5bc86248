// Explanations as text and as JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "stepnet/core/printable.h"
#include "stepnet/core/strings.h"
#include "stepnet/report/explanation.h"
#include "stepnet/report/text.h"

namespace stepnet {
namespace {

using Kind = ExplainedInstruction::Kind;

// GFLOP/s of products, and otherwise GB/s; "" where nothing is known.
std::string RateText(const ExplainedInstruction& of, double microseconds) {
  if (microseconds <= 0) return "";
  if (of.kind == Kind::kProduct) return StrCat(Number(of.flops / microseconds / 1e3, 3), " GFLOP/s");
  return of.bytes > 0 ? StrCat(Number(of.bytes / microseconds / 1e3, 3), " GB/s") : "";
}

std::string TimeText(const ExplainedInstruction& of, bool is_measured) {
  const std::string estimate = StrCat(Number(of.estimate, 3), " us");
  if (!of.measured) return StrCat(is_measured ? "did not run when measured; " : "", "about ", estimate, " a step");
  const double microseconds = *of.measured;
  std::string text = StrCat(Number(microseconds, 3), " us a step");
  if (const std::string rate = RateText(of, microseconds); !rate.empty()) text += ", " + rate;
  if (of.limit && microseconds > 0) {
    text += StrCat(", ", Number(100 * of.limit->microseconds / microseconds, 2), " % of ", of.limit->what);
  }
  return StrCat(text, " (estimate ", estimate, ")");
}

std::string ListText(const std::vector<std::string>& names) {
  constexpr size_t kShown = 12;
  const std::vector<std::string> shown(names.begin(),
                                       names.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, names.size())));
  return StrCat(Join(shown, ", "), names.size() > kShown ? StrCat(" and ", names.size() - kShown, " more") : "");
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
  for (const ExplainedStage& stage : explanation.stages) count += static_cast<int>(stage.instructions.size());
  return count;
}

namespace {

std::string TextOf(const Explanation& of) {
  std::string text =
      StrCat("step net ", NameText(of.net), of.backward ? ", backward" : "", ": ", Count(of.num_operators, "operator"),
             " run as ", Count(NumInstructions(of), "instruction"), "\n");
  for (const ExplainedStage& stage : of.stages) {
    text += StrCat(stage.title, stage.why.empty() ? "" : ": " + stage.why,
                   stage.threads > 1 ? StrCat("; on ", stage.threads, " threads") : "", "\n");
    for (const ExplainedInstruction& instruction : stage.instructions) {
      text += StrCat("  ", instruction.number, ": ", KindName(instruction.kind), "; ",
                     TimeText(instruction, of.is_measured), "\n");
      if (instruction.formulas.empty()) text += StrCat("      ", instruction.text, "\n");
      for (const std::string& formula : instruction.formulas) text += StrCat("      ", formula, "\n");
      for (const std::string& note : instruction.notes) text += StrCat("    ", note, "\n");
    }
  }
  if (of.stages_overlap) {
    text += StrCat("stages overlap on threads: each works on another ", of.chunk_steps, " steps\n");
  }
  if (of.block_steps > 0) {
    text +=
        StrCat("blocks of ", of.block_steps, " steps: what one stage passes to another has a row for each of them\n");
  }
  for (const ExplainedStorage& storage : of.storage) {
    text += StrCat(storage.kind, ", ", storage.meaning, ": ", ListText(storage.values),
                   storage.bytes > 0
                       ? StrCat("; ", Bytes(static_cast<double>(storage.bytes)), storage.has_rows ? " a row" : "")
                       : "",
                   "\n");
  }
  if (!of.chain.empty()) text += StrCat("what sets the pace: ", Join(of.chain, "; then "), "; then again\n");
  return text;
}

nlohmann::ordered_json JsonOf(const Explanation& of) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (const ExplainedStage& stage : of.stages) {
    nlohmann::ordered_json instructions = nlohmann::ordered_json::array();
    for (const ExplainedInstruction& instruction : stage.instructions) {
      nlohmann::ordered_json item = {{"number", instruction.number},
                                     {"kind", KindName(instruction.kind)},
                                     {"text", instruction.text},
                                     {"formulas", instruction.formulas},
                                     {"flops_a_step", instruction.flops},
                                     {"bytes_a_step", instruction.bytes},
                                     {"estimated_us", instruction.estimate}};
      if (instruction.measured) item["measured_us"] = *instruction.measured;
      if (instruction.limit) {
        item["limit_us"] = instruction.limit->microseconds;
        item["limit"] = instruction.limit->what;
      }
      item["notes"] = instruction.notes;
      instructions.push_back(std::move(item));
    }
    stages.push_back({{"title", stage.title},
                      {"why", stage.why},
                      {"threads", stage.threads},
                      {"instructions", std::move(instructions)}});
  }
  nlohmann::ordered_json storage = nlohmann::ordered_json::array();
  for (const ExplainedStorage& kind : of.storage) {
    storage.push_back(
        {{"kind", kind.kind}, {"values", kind.values}, {kind.has_rows ? "bytes_a_row" : "bytes", kind.bytes}});
  }
  return {{"net", of.net},
          {"backward", of.backward},
          {"measured", of.is_measured},
          {"operators", of.num_operators},
          {"stages", std::move(stages)},
          {"stages_overlap", of.stages_overlap},
          {"chunk_steps", of.chunk_steps},
          {"block_steps", of.block_steps},
          {"storage", std::move(storage)},
          {"longest_chain", of.chain}};
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
