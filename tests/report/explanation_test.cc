#include "stepnet/report/explanation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <utility>

#include "stepnet/core/workspace.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

constexpr int kBatch = 3, kInput = 5, kHidden = 7;

// The plans of a run of four steps, of x, h0, w, b, u and none.
std::vector<MadePlan> PlansOf(const RecurrentCase& net, const std::string& sequence, RunOptions options = {},
                              DType dtype = DType::kDouble) {
  Workspace workspace;
  workspace.SetTensor(sequence, Random({4, kBatch, kInput}, 1, dtype));
  workspace.SetTensor("h0", Random({kBatch, kHidden}, 2, dtype));
  workspace.SetTensor("w", Random({kHidden, kInput}, 3, dtype));
  workspace.SetTensor("b", Random({kHidden}, 4, dtype));
  workspace.SetTensor("u", Random({kHidden, kHidden}, 5, dtype));
  workspace.SetTensor("none", Random({kHidden}, 6, dtype));
  MadePlans made;
  options.threads = std::max(options.threads, 1);
  made.Watch(&options);
  Net::Create(net.Build(), workspace, options)->Run();
  return made.plans();
}

OperatorDef Product(const std::string& text) {
  OperatorDef op = ParseOp(text);
  AddInt(&op, "axis", 2);
  return op;
}

// h' = tanh(x w^T + b + h u^T), whose sequence has this name.
std::vector<MadePlan> ElmanPlans(const std::string& sequence, RunOptions options = {}, DType dtype = DType::kDouble) {
  RecurrentCase elman;
  elman.Sequence(sequence, "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("b").Captured("u");
  elman.Step(Product("x_part = FC(x_t, w, b)")).Step(Product("h_part = FC(h_prev, u, none)"));
  elman.Captured("none").Step("sum = Add(x_part, h_part)").Step("h_next = Tanh(sum)").Output("h_all", "h", 1);
  return PlansOf(elman, sequence, std::move(options), dtype);
}

std::vector<Explanation> ExplainElman(const std::string& sequence) {
  std::vector<Explanation> explanations;
  for (const MadePlan& plan : ElmanPlans(sequence)) explanations.push_back(Explain(plan, std::nullopt, nullptr));
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

// What a core can do that takes its bytes from the first cache where there are no more than so many.
MachineLimits LimitsWith(std::int64_t bytes) {
  return {.flops_per_microsecond = 1e3,
          .caches = {{{"first cache", bytes, 1e3}, {"second cache", bytes << 20, 1e2}, {"third cache", 0, 10}}}};
}

size_t CountOf(const std::string& what, const std::string& text) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++count;
  return count;
}

TEST(Explanations, SayWhatDidNotRun) {
  const MadePlan made = ElmanPlans("x").at(0);
  const size_t num_instructions = made.plan.instructions.size();
  ASSERT_GE(num_instructions, 3U);
  Measured measured{.microseconds = std::vector<std::optional<double>>(num_instructions),
                    .num_steps = 20,
                    .limits = LimitsWith(1 << 20)};
  measured.microseconds.back() = 7.25;
  const std::vector<Explanation> explanations = {Explain(made, std::nullopt, &measured)};
  const std::string text = ExplanationsText(explanations);
  EXPECT_EQ(CountOf("did not run when measured; about ", text), num_instructions - 1) << text;
  EXPECT_EQ(CountOf("7.25 us a step, ", text), 1U) << text;
  EXPECT_EQ(CountOf("all instructions take 7.25 us a step on one core (estimate 0.0584 us): operator 100 %\n", text),
            1U)
      << text;
  EXPECT_EQ(CountOf(" (estimate ", text), 2U) << text;
  EXPECT_EQ(CountOf(" % of ", text), 1U) << text;
  const std::string page = ExplanationsHtml("page", explanations);
  EXPECT_EQ(CountOf("did not run when measured", page), num_instructions - 1);
  EXPECT_EQ(CountOf("<td class=time>7.25<", page), 1U);
  EXPECT_EQ(CountOf("estimate ", page), 2U);
}

TEST(Explanations, TellWhatAllInstructionsTake) {
  Explanation of;
  EXPECT_EQ(TotalText(of), "") << "nothing runs";
  using Kind = ExplainedInstruction::Kind;
  of.stages.resize(2);
  of.stages[0].instructions = {{.kind = Kind::kPack, .estimate = 100, .runs = false},
                               {.kind = Kind::kFused, .estimate = 1}};
  of.stages[1].instructions = {{.kind = Kind::kProduct, .estimate = 2}, {.kind = Kind::kFused, .estimate = 5}};
  EXPECT_EQ(TotalText(of), "all instructions take about 8 us a step on one core: fused 75 %, product 25 %");
  of.is_measured = true;
  of.stages[0].instructions[1].measured = 2;
  of.stages[1].instructions[0].measured = 6;
  EXPECT_EQ(TotalText(of), "all instructions take 8 us a step on one core (estimate 3 us): product 75 %, fused 25 %");
}

// Short runs have another schedule than long ones, and lay out no weights.
TEST(Explanations, DescribeTheRunThatTheyAreToldOf) {
  NEEDS_ALL_PASSES();
  const MadePlan made = ElmanPlans("x", {.threads = 2}).at(0);
  const auto text_of = [&](std::optional<std::int64_t> num_steps) {
    return ExplanationsText({Explain(made, num_steps, nullptr)});
  };
  const std::string packed = "reads weights in a layout of their own",
                    cut = "cut by rows of the batch, apart in all steps: ";
  const std::string any = text_of({});
  EXPECT_EQ(CountOf(packed + ", in runs of 16 steps or more\n", any), 1U) << any;
  EXPECT_EQ(CountOf(cut + "2 parts, one a thread, in runs of 16 steps or more\n", any), 2U) << any;
  EXPECT_EQ(CountOf("; on 2 threads (runs of fewer than 16 steps: threads share tasks)\n", any), 1U) << any;
  const std::string few = text_of(5);
  EXPECT_EQ(CountOf("in a run of 5 steps: 4 operators run as 3 instructions\n", few), 1U) << few;
  EXPECT_EQ(CountOf("left out, for runs of 16 steps or more: ", few), 1U) << few;
  EXPECT_EQ(CountOf(": pack; does not run\n", few), 1U) << few;
  EXPECT_EQ(CountOf("for all 5 steps at once: ", few), 1U) << few;
  EXPECT_EQ(CountOf("reads weights as they lie: ", few), 1U) << few;
  for (const std::string& of_long_runs : {packed, cut, std::string("its terms are added up in another order")}) {
    EXPECT_EQ(CountOf(of_long_runs, few), 0U) << few;
  }
  EXPECT_EQ(CountOf("u packed", few), 1U) << few;  // what gives it, and no memory
  const std::string many = text_of(20);
  EXPECT_EQ(CountOf(packed + "\n", many), 1U) << many;
  EXPECT_EQ(CountOf(cut + "2 parts, one a thread\n", many), 2U) << many;
  EXPECT_EQ(CountOf(" steps or more", many) + CountOf("runs of fewer", many), 0U) << many;
  EXPECT_EQ(CountOf("u packed", many), 2U) << many;
}

TEST(Explanations, NameWhatTakesThePlaceOfAnother) {
  NEEDS_USUAL_PLANS();
  const std::vector<Explanation> explanations = ExplainElman("x");
  const std::string text = ExplanationsText(explanations);
  EXPECT_EQ(CountOf("    adds to x_part where that lies, which is sum from then on\n", text), 1U) << text;
  EXPECT_EQ(CountOf("for another stage: x_part then sum; ", text), 1U) << text;
  const nlohmann::json json = nlohmann::json::parse(ExplanationsJson(explanations));
  int found = 0;
  for (const auto& kind : json[0]["storage"]) found += kind["values"] == nlohmann::json({"x_part", "sum"}) ? 1 : 0;
  EXPECT_EQ(found, 1) << json[0]["storage"];
}

TEST(Explanations, CompareFunctionsWithTheirOwnLimit) {
  const MadePlan made = ElmanPlans("x", {}, DType::kFloat).at(0);
  MachineLimits limits = LimitsWith(1 << 20);
  for (const bool are_slow : {true, false}) {
    limits.functions = {{ExprOp::kExp, "exp", 1.0}, {ExprOp::kTanh, "tanh", are_slow ? 10.0 : 1e6}};
    const Measured measured{.microseconds = std::vector<std::optional<double>>(made.plan.instructions.size(), 4.2),
                            .num_steps = 4,
                            .limits = limits};
    const Explanation explanation = Explain(made, {}, &measured);
    const ExplainedInstruction tanh = InstructionsOf(explanation).back();
    EXPECT_EQ(tanh.functions, kBatch * kHidden);
    ASSERT_TRUE(tanh.limit);
    EXPECT_EQ(tanh.limit->of_functions, are_slow);
    const std::string text = ExplanationsText({explanation});
    EXPECT_EQ(CountOf("4.2 us a step, 0.005 G functions/s, 50 % of 0.01 G/s of tanh (", text), are_slow ? 1U : 0U)
        << text;
    if (are_slow) {
      EXPECT_DOUBLE_EQ(tanh.limit->microseconds, 2.1);
    }
  }
}

TEST(Explanations, PrintNumbersAsPeopleWriteThem) {
  const MadePlan made = ElmanPlans("x").at(0);
  const Measured measured{
      .microseconds = std::vector<std::optional<double>>(made.plan.instructions.size(), 3045.123456789),
      .num_steps = 30,
      .limits = LimitsWith(1 << 20)};
  const std::vector<Explanation> explanations = {Explain(made, {}, &measured)};
  EXPECT_EQ(CountOf("3045 us a step", ExplanationsText(explanations)), made.plan.instructions.size());
  const std::string json = ExplanationsJson(explanations);
  EXPECT_EQ(CountOf("\"measured_us\": 3045.12,", json), made.plan.instructions.size()) << json;
  EXPECT_FALSE(std::regex_search(json, std::regex("[0-9]*[.][0-9]{8}"))) << json;
}

// A plan says of what runs once what a step has of it in a long run.
TEST(Explanations, JudgeWhatRunsOnceByAllItsBytes) {
  NEEDS_ALL_PASSES();
  const MadePlan made = ElmanPlans("x").at(0);
  ASSERT_EQ(made.plan.instructions[0].type, "pack");
  ASSERT_EQ(made.plan.stages[0].end, 1);
  const double bytes = made.plan.instructions[0].cost.bytes * kTypicalSteps;
  for (const bool fits : {true, false}) {
    const Measured measured{.microseconds = std::vector<std::optional<double>>(made.plan.instructions.size(), 10.0),
                            .num_steps = 4,
                            .limits = LimitsWith(static_cast<std::int64_t>(fits ? bytes : bytes / 2))};
    const ExplainedInstruction pack = InstructionsOf(Explain(made, std::nullopt, &measured)).front();
    EXPECT_DOUBLE_EQ(pack.bytes, bytes / 4);
    ASSERT_TRUE(pack.limit);
    EXPECT_TRUE(pack.limit->what.ends_with(fits ? "first cache" : "second cache")) << pack.limit->what;
    EXPECT_DOUBLE_EQ(pack.limit->microseconds, bytes / 4 / (fits ? 1e3 : 1e2));
  }
}

// Nothing is as far away as the cache that would be too slow for it, and nothing is faster than the first one.
TEST(Explanations, GiveNoLimitThatIsBeaten) {
  NEEDS_ALL_PASSES();
  const MadePlan made = ElmanPlans("x").at(0);
  const double bytes = made.plan.instructions[0].cost.bytes * kTypicalSteps / 4;
  const auto limit_for = [&](double microseconds) {
    const Measured measured{
        .microseconds = std::vector<std::optional<double>>(made.plan.instructions.size(), microseconds),
        .num_steps = 4,
        .limits = LimitsWith(1)};
    return InstructionsOf(Explain(made, std::nullopt, &measured)).front().limit;
  };
  ASSERT_TRUE(limit_for(bytes / 99));
  EXPECT_EQ(limit_for(bytes / 99)->what, "0.1 GB/s from the second cache");
  ASSERT_TRUE(limit_for(bytes / 101));
  EXPECT_EQ(limit_for(bytes / 101)->what, "1 GB/s from the first cache");
  EXPECT_DOUBLE_EQ(limit_for(bytes / 101)->microseconds, bytes / 1e3);
  EXPECT_TRUE(limit_for(bytes / 1050)) << "as fast as what was measured of the machine, within what measuring is";
  EXPECT_FALSE(limit_for(bytes / 1150));
}

TEST(Explanations, CountFunctionsOfWhatRunsOnceOnce) {
  NEEDS_ALL_PASSES();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("b").Captured("none");
  net.Step(Product("x_part = FC(x_t, w, b)")).Step("gate = Sigmoid(none)");
  net.Step("scaled = Mul(h_prev, gate)").Step("h_next = Add(x_part, scaled)").Output("h_all", "h", 1);
  const MadePlan made = PlansOf(net, "x", {}, DType::kFloat).at(0);
  const Explanation explanation = Explain(made, 4, nullptr);
  double functions = 0;
  for (const ExplainedInstruction& instruction : InstructionsOf(explanation)) functions += instruction.functions;
  EXPECT_DOUBLE_EQ(functions, kHidden / 4.0) << ExplanationsText({explanation});
}

TEST(Explanations, SayThatABiasIsAddedElsewhere) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("u").Captured("b");
  net.Step(Product("x_part = FC(x_t, w)")).Step(Product("h_part = FC(h_prev, u)"));
  net.Step("sum = Add(x_part, h_part)").Step("biased = Add(sum, b)").Step("h_next = Tanh(biased)");
  net.Output("h_all", "h", 1);
  const std::string note = "it adds b, which was added to a later sum";
  std::set<std::string> disabled = {"form_stages", "pack_weights", "add_in_place"};
  for (const size_t count : {1U, 0U}) {
    const MadePlan made = PlansOf(net, "x", {.disabled_passes = disabled}).at(0);
    const std::string text = ExplanationsText({Explain(made, std::nullopt, nullptr)});
    EXPECT_EQ(CountOf("may round otherwise than with opt_level=1: " + note, text), count) << text;
    disabled.insert("fold_biases");
  }
}

TEST(Explanations, NameThePaceByWhatIsComputed) {
  for (const Explanation& of : ExplainElman("x")) {
    ASSERT_FALSE(of.chain.empty());
    std::set<std::string> formulas;
    for (const ExplainedInstruction& instruction : InstructionsOf(of)) {
      for (const std::string& formula : instruction.formulas) {
        formulas.insert(std::to_string(instruction.number) + ": " + formula);
      }
    }
    for (const std::string& link : of.chain) EXPECT_TRUE(formulas.contains(link)) << link;
  }
}

TEST(Explanations, SayThatThePaceIsThatOfAChainThatComesBackWhereItDoes) {
  for (const bool comes_back : {false, true}) {
    RecurrentCase net;
    net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("b").Captured("u");
    net.Captured("none").Step(Product("h_part = FC(h_prev, u, none)")).Step(Product("x_part = FC(x_t, w, b)"));
    net.Step(comes_back ? "h_next = Add(x_part, h_part)" : "h_next = Tanh(x_part)").Output("h_all", "h", 1);
    if (!comes_back) net.Step("y = Tanh(h_part)");
    const MadePlan made = PlansOf(net, "x", {.opt_level = 0}).at(0);
    const std::string text = ExplanationsText({Explain(made, std::nullopt, nullptr)});
    EXPECT_EQ(CountOf("what sets the pace", text), 1U) << text;
    EXPECT_EQ(CountOf("then again", text), comes_back ? 1U : 0U) << text;
  }
}

TEST(Explanations, NameThePaceOfMeasuredTimes) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("g", "h0", "g_prev", "g_next").State("h", "h0", "h_prev", "h_next");
  net.Captured("u").Captured("w").Captured("b").Captured("none").Step(Product("x_part = FC(x_t, w, b)"));
  net.Step("g_sum = Add(x_part, g_prev)").Step("g_next = Sin(g_sum)").Step(Product("g_part = FC(g_next, u, none)"));
  net.Step(Product("h_part = FC(h_prev, u, none)")).Step("h_sum = Add(g_part, h_part)").Step("h_next = Tanh(h_sum)");
  net.Output("h_all", "h", 1);
  const MadePlan made = PlansOf(net, "x").at(0);
  const auto links_of = [&](const std::string& blob, const Measured* measured) {
    const std::vector<std::string> chain = Explain(made, 4, measured).chain;
    return std::ranges::count_if(chain, [&](const std::string& link) { return link.find(blob) != std::string::npos; });
  };
  Measured measured{.microseconds = std::vector<std::optional<double>>(made.plan.instructions.size(), 1.0),
                    .num_steps = 4,
                    .limits = LimitsWith(1 << 20)};
  for (size_t i = 0; i < made.plan.instructions.size(); ++i) {
    if (made.plan.instructions[i].text.find("Sin") != std::string::npos) measured.microseconds[i] = 100;
  }
  EXPECT_GT(links_of("h_next", nullptr), 0);
  EXPECT_EQ(links_of("g_next", nullptr), 0);
  EXPECT_EQ(links_of("h_next", &measured), 0);
  EXPECT_GT(links_of("g_next", &measured), 0);
}

}  // namespace
}  // namespace stepnet
