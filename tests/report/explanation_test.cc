#include "stepnet/report/explanation.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "stepnet/core/workspace.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

constexpr int kBatch = 3, kInput = 5, kHidden = 7;

// h' = tanh(x w^T + b + h u^T), whose sequence has this name.
std::vector<Explanation> ExplainElman(const std::string& sequence) {
  RecurrentCase elman;
  elman.Sequence(sequence, "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("b").Captured("u");
  for (const char* product : {"x_part = FC(x_t, w, b)", "h_part = FC(h_prev, u, none)"}) {
    OperatorDef op = ParseOp(product);
    AddInt(&op, "axis", 2);
    elman.Step(op);
  }
  elman.Captured("none").Step("sum = Add(x_part, h_part)").Step("h_next = Tanh(sum)").Output("h_all", "h", 1);
  Workspace workspace;
  workspace.SetTensor(sequence, Random({4, kBatch, kInput}, 1));
  workspace.SetTensor("h0", Random({kBatch, kHidden}, 2));
  workspace.SetTensor("w", Random({kHidden, kInput}, 3));
  workspace.SetTensor("b", Random({kHidden}, 4));
  workspace.SetTensor("u", Random({kHidden, kHidden}, 5));
  workspace.SetTensor("none", Random({kHidden}, 6));
  MadePlans made;
  RunOptions options{.threads = 1};
  made.Watch(&options);
  Net::Create(elman.Build(), workspace, options)->Run();
  std::vector<Explanation> explanations;
  for (const MadePlan& plan : made.plans()) explanations.push_back(Explain(plan, nullptr));
  return explanations;
}

std::vector<ExplainedInstruction> InstructionsOf(const Explanation& explanation) {
  std::vector<ExplainedInstruction> all;
  for (const ExplainedStage& stage : explanation.stages) {
    all.insert(all.end(), stage.instructions.begin(), stage.instructions.end());
  }
  return all;
}

TEST(Explanations, CountTheWorkOfProducts) {
  const std::vector<Explanation> explanations = ExplainElman("x");
  ASSERT_EQ(explanations.size(), 1U);
  double flops = 0;
  for (const ExplainedInstruction& of : InstructionsOf(explanations[0])) {
    if (of.kind == ExplainedInstruction::Kind::kProduct) flops += of.flops;
  }
  // A multiplication and an addition for each weight and row; biases are not counted.
  EXPECT_EQ(flops, 2 * kBatch * kHidden * (kInput + kHidden));
}

TEST(Explanations, SayTheSameAsTextAndAsJson) {
  const std::vector<Explanation> explanations = ExplainElman("x");
  const std::string text = ExplanationsText(explanations);
  const nlohmann::json json = nlohmann::json::parse(ExplanationsJson(explanations));
  ASSERT_EQ(json.size(), 1U);
  int instructions = 0;
  for (const auto& stage : json[0]["stages"]) {
    EXPECT_NE(text.find(stage["title"].get<std::string>()), std::string::npos) << stage;
    for (const auto& instruction : stage["instructions"]) {
      ++instructions;
      for (const auto& formula : instruction["formulas"]) {
        EXPECT_NE(text.find("      " + formula.get<std::string>() + "\n"), std::string::npos) << formula;
      }
      for (const auto& note : instruction["notes"]) {
        EXPECT_NE(text.find("    " + note.get<std::string>() + "\n"), std::string::npos) << note;
      }
    }
  }
  EXPECT_EQ(instructions, NumInstructions(explanations[0]));
  EXPECT_EQ(json[0]["operators"], 4);
}

TEST(Explanations, ArePagesThatNeedNothingElse) {
  const std::string page = ExplanationsHtml("<title> & more", ExplainElman("<x onload=\"a\">"));
  for (const char* outside : {"http:", "https:", " src=", " href=", "@import", "url("}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  EXPECT_EQ(page.find("<x onload"), std::string::npos);
  EXPECT_NE(page.find("&lt;title&gt; &amp; more"), std::string::npos);
  EXPECT_TRUE(page.ends_with("</html>\n"));
}

}  // namespace
}  // namespace stepnet
