// Random step nets: every executor gives, bit for bit, what the same steps written out one after the other give, or
// within rounding where some of it runs once for all steps; and gradients are those of the steps written out.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "layers.h"
#include "random_step.h"
#include "recurrent_case.h"
#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/step_plan.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/tests/compiler/graph_facts.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/core/filled_memory.h"

namespace stepnet {
namespace {

using Feeds = std::map<std::string, Tensor>;

void Feed(const Feeds& feeds, Workspace& workspace) {
  for (const auto& [name, tensor] : feeds) workspace.SetTensor(name, tensor);
}

// Plans with what can be tested about stages: of nets that never leave one loop there is nothing to see.
struct CountsOfPlans {
  int with_stages = 0, with_chunks = 0, with_all_steps = 0;

  void Add(const StepPlan& plan) {
    const auto has = [&](const auto& condition) { return std::ranges::any_of(plan.stages, condition) ? 1 : 0; };
    with_stages += plan.stages.size() > 1 ? 1 : 0;
    with_chunks += has([](const Stage& stage) { return stage.steps_at_once > 1; });
    with_all_steps += has([](const Stage& stage) { return stage.steps_at_once == kAllSteps; });
  }
};

// Elements of a row. Products leave the loop where weights are several times as large.
std::int64_t SizeFor(int opt_level) { return opt_level < 2 ? 3 : 8; }

// Level 1 runs fewer passes than level 2: a part of the nets is enough.
int SeedsFor(int opt_level, int usual) { return opt_level == 1 ? usual / 3 : usual; }

// One of the passes, or none: another one for each case.
std::set<std::string> PassToLeaveOut(const std::string& what) {
  std::vector<std::string> names;
  for (const Pass& pass : Passes()) {
    if (!pass.required) names.emplace_back(pass.name);
  }
  const size_t i = std::hash<std::string>{}(what) % (names.size() + 1);
  return i < names.size() ? std::set<std::string>{names[i]} : std::set<std::string>{};
}

// Plans of every fourth case are cut as for a GPU, others keep products in loops, or have blocks of one chunk.
const Target* TargetFor(const std::string& what) {
  static constexpr Target kAtOnce = {.takes_all_over_time = true};
  static constexpr Target kInLoops = {.second_cache_bytes = 1 << 20, .min_rows_of_step = 1, .min_bytes_in_loop = 0};
  static constexpr Target kInShortBlocks = {.block_bytes = 1, .min_chunks_of_block = 1, .min_chunks_of_thread = 0};
  constexpr const Target* kTargets[] = {&kAtOnce, &kInLoops, &kInShortBlocks, &kCpuTarget};
  return kTargets[std::hash<std::string>{}(what) / 64 % std::size(kTargets)];
}

void ExpectRoundTrip(const StepGraph& graph) {
  const std::string text = GraphText(graph);
  const StepGraph again = ParseGraph(text);
  EXPECT_EQ(Difference(again, graph), "") << text;
  EXPECT_EQ(GraphText(again), text);
}

// Runs the net with every executor for each number of steps, the serial one on memory that holds something else than
// that of the others; the last workspace is the serial one.
void ExpectExecutorsAgree(const RandomStep& step, const NetDef& net, int opt_level,
                          const std::vector<std::int64_t>& numbers_of_steps, const std::string& what,
                          CountsOfPlans* counts, const std::function<void(std::int64_t, const Workspace&)>& look) {
  Workspace serial;
  Feed(step.Feeds(1), serial);
  RunOptions options{
      .executor = "serial", .target = TargetFor(what), .opt_level = opt_level, .disabled_passes = PassToLeaveOut(what)};
  options.on_pass = [](const std::string&, const StepGraph& graph) { ExpectRoundTrip(graph); };
  options.on_plan = [&](const StepPlan& plan) { counts->Add(plan); };
  const auto reference = Net::Create(net, serial, options);
  std::vector<std::unique_ptr<Workspace>> workspaces;
  std::vector<std::unique_ptr<Net>> nets;
  constexpr int kThreads[] = {2, 3, 5};
  for (const int threads : kThreads) {
    workspaces.push_back(std::make_unique<Workspace>());
    Feed(step.Feeds(1), *workspaces.back());
    nets.push_back(Net::Create(net, *workspaces.back(),
                               {.executor = "parallel",
                                .target = options.target,
                                .threads = threads,
                                .opt_level = opt_level,
                                .disabled_passes = options.disabled_passes}));
  }
  for (const std::int64_t steps : numbers_of_steps) {
    Feed(step.Feeds(steps), serial);
    {
      const FilledMemory filled(kFills[0]);
      reference->Run();
    }
    for (size_t k = 0; k < nets.size(); ++k) {
      Feed(step.Feeds(steps), *workspaces[k]);
      const FilledMemory filled(kFills[1]);
      nets[k]->Run();
      ExpectSameBlobs(serial, *workspaces[k], StrCat(what, ", ", steps, " steps, ", kThreads[k], " threads"));
    }
    look(steps, serial);
  }
}

// Numbers that grow at every step may end in infinity, where rounding decides when.
void ExpectNear(const Tensor& found, const Tensor& expected, const std::string& what) {
  const std::vector<double> a = Values(found), b = Values(expected);
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(b[i])) continue;
    ASSERT_NEAR(a[i], b[i], 1e-9 * (1 + std::abs(b[i]))) << "element " << i << ", " << what;
  }
}

class ParallelRandomSteps : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, ParallelRandomSteps, testing::Values(0, 1, 2),
                         [](const auto& info) { return StrCat("level", info.param); });

TEST_P(ParallelRandomSteps, EqualTheirStepsWrittenOut) {
  NEEDS_USUAL_PLANS();
  const unsigned usual_seeds = SeedsFor(GetParam(), 340);
  CountsOfPlans counts;
  for (unsigned seed = 0; seed < NumSeeds(usual_seeds); ++seed) {
    const RandomStep step(seed, SizeFor(GetParam()), StepOperators::kAny);
    const NetDef net = step.Recurrent();
    const std::string what = StrCat("seed ", seed, " of ", net.ShortDebugString());
    ExpectExecutorsAgree(
        step, net, GetParam(), {1, 9, 2}, what, &counts, [&](std::int64_t steps, const Workspace& found) {
          const RandomStep::WrittenOut plain = step.WriteOut(steps);
          Workspace expected;
          Feed(plain.feeds, expected);
          RunNetOnce(plain.net, expected);
          for (const auto& [output, blobs] : plain.outputs) {
            const Tensor& rows = found.GetTensor(output);
            for (std::int64_t t = 0; t < steps; ++t) {
              const Tensor& row = expected.GetTensor(blobs[t]);
              const Tensor same = rows.Slice(t, t + 1).Reshaped(row.shape());
              (GetParam() <= 1 ? ExpectSame : ExpectNear)(same, row, StrCat(output, ", step ", t, " of ", what));
            }
          }
        });
    if (testing::Test::HasFailure()) return;
  }
  if (GetParam() == 0) {
    EXPECT_EQ(counts.with_stages, 0);
  } else if (GetParam() == kMaxOptLevel) {
    EXPECT_GT(counts.with_stages, MinOfSeeds(100, usual_seeds));
    EXPECT_GT(counts.with_chunks, MinOfSeeds(100, usual_seeds));
  }
}

// The gradient of each of step.Feeds by the steps written out, zero where there is none.
Feeds WrittenOutGradients(const RandomStep& step, std::int64_t steps) {
  RandomStep::WrittenOut plain = step.WriteOut(steps);
  std::vector<std::string> losses, inputs;
  for (const auto& [output, blobs] : plain.outputs) {
    for (const std::string& blob : blobs) {  // several outputs may be one blob
      losses.push_back(StrCat("loss@", losses.size()));
      AddOp(&plain.net, "Copy", {blob}, {losses.back()});
    }
  }
  for (const auto& [name, rows] : plain.rows) inputs.insert(inputs.end(), rows.begin(), rows.end());
  const NetWithGradients made = AddGradients(plain.net, losses, inputs);
  Workspace workspace;
  Feed(plain.feeds, workspace);
  RunNetOnce(made.net, workspace);
  Feeds gradients;
  for (const auto& [name, tensor] : step.Feeds(steps)) {
    std::vector<double> values;
    for (const std::string& row : plain.rows.at(name)) {
      const auto found = made.gradients.find(row);
      const size_t size = static_cast<size_t>(plain.feeds.at(row).size());
      const std::vector<double> part =
          found == made.gradients.end() ? std::vector<double>(size) : Values(workspace.GetTensor(found->second.dense));
      values.insert(values.end(), part.begin(), part.end());
    }
    gradients[name] = Tensor::Of<double>(tensor.shape(), values);
  }
  return gradients;
}

TEST_P(ParallelRandomSteps, HaveTheGradientsOfTheirStepsWrittenOut) {
  const unsigned usual_seeds = SeedsFor(GetParam(), 300);
  int compared = 0;
  CountsOfPlans counts;
  for (unsigned seed = 0; seed < NumSeeds(usual_seeds); ++seed) {
    const RandomStep step(seed, SizeFor(GetParam()), StepOperators::kAny);
    const NetDef net = step.Training();
    const std::string what = StrCat("seed ", seed, " of ", net.ShortDebugString());
    ExpectExecutorsAgree(
        step, net, GetParam(), {1, 7, 2}, what, &counts, [&](std::int64_t steps, const Workspace& found) {
          for (const auto& [name, expected] : WrittenOutGradients(step, steps)) {
            const Blob* gradient = found.FindBlob(name + "_grad");
            ExpectNear(gradient != nullptr ? gradient->GetTensor() : Tensor::Zeros(DType::kDouble, expected.shape()),
                       expected, StrCat(name, ", ", steps, " steps, ", what));
            ++compared;
          }
        });
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(compared, MinOfSeeds(SeedsFor(GetParam(), 1000), usual_seeds));
  if (std::min(GetParam(), TestedOptLevel()) < kMaxOptLevel) return;
  EXPECT_GT(counts.with_chunks, MinOfSeeds(100, usual_seeds));
  EXPECT_GT(counts.with_all_steps, MinOfSeeds(60, usual_seeds));
}

// Numbers that a run gives for feeds of which each number is changed by a part of about `change`.
std::map<std::string, std::vector<double>> ValuesNear(const RandomStep& step, const NetDef& net, std::int64_t steps,
                                                      int opt_level, double change) {
  Workspace workspace;
  Feed(step.Feeds(steps), workspace);
  unsigned seed = 1000;
  for (const auto& [name, tensor] : step.Feeds(steps)) {
    const Tensor changed = tensor.Clone();
    const std::vector<double> directions = Values(Random(tensor.shape(), ++seed));
    for (size_t i = 0; i < directions.size(); ++i) changed.data<double>()[i] *= 1 + change * directions[i];
    workspace.SetTensor(name, changed);
  }
  RunNetOnce(net, workspace, {.executor = "serial", .opt_level = opt_level});
  std::map<std::string, std::vector<double>> values;
  for (const std::string& name : workspace.LocalBlobs()) {
    if (workspace.FindBlob(name)->HasTensor()) values[name] = Values(workspace.GetTensor(name));
  }
  return values;
}

// The largest difference, as a part of 1 and more; infinite where a number is not finite.
double Distance(const std::vector<double>& a, const std::vector<double>& b) {
  double max = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double distance = std::abs(a[i] - b[i]) / (1 + std::abs(b[i]));
    if (!(distance <= max)) max = std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
  }
  return max;
}

// What one loop gives, of blobs whose numbers say something. Many random nets square a value step by step, multiply it,
// or end in the small difference of large numbers: where an error in the last place of a feed grows into something that
// can be seen, rounding decides. That is found out at all levels, as each may do without a difference that the other
// takes.
constexpr double kMaxDistance = 1e-10;
std::map<std::string, std::vector<double>> SteadyValues(const RandomStep& step, const NetDef& net, std::int64_t steps) {
  constexpr double kChange = 1e-13;
  const Feeds feeds = step.Feeds(steps);
  std::map<std::string, std::vector<double>> steady = ValuesNear(step, net, steps, /*opt_level=*/0, 0);
  for (const int opt_level : {0, 1, 2}) {
    const auto values = ValuesNear(step, net, steps, opt_level, 0);
    const auto nearby = ValuesNear(step, net, steps, opt_level, kChange);
    std::erase_if(steady, [&](const auto& blob) {
      const std::string& name = blob.first;
      return feeds.contains(name) || !(Distance(nearby.at(name), values.at(name)) < kMaxDistance);
    });
  }
  return steady;
}

// A request for each gradient of the net's RecurrentNetworkGradient, which is told of them.
std::map<std::string, std::string> DrawRequests(unsigned seed, NetDef* net) {
  std::mt19937 rng(seed);
  const auto gradient = std::ranges::find(*net->mutable_op(), "RecurrentNetworkGradient", &OperatorDef::type);
  std::vector<std::string> requests;
  std::map<std::string, std::string> request_of;
  for (const std::string& output : gradient->output()) {
    constexpr const char* kRequests[] = {"write", "add", "none"};
    requests.emplace_back(kRequests[rng() % 3]);
    request_of[output] = requests.back();
  }
  AddStrings(&*gradient, "gradient_requests", requests);
  return request_of;
}

// Runs `net` twice, so that what it adds it adds twice, in a workspace that holds something for it to add to.
// `gradients` has run once without requests; of its blobs `steady` are compared where rounding differs.
void ExpectGradientsAsRequested(const NetDef& net, const Feeds& feeds, const RunOptions& options,
                                const std::map<std::string, std::string>& request_of, const Workspace& gradients,
                                const std::set<std::string>& steady, const std::string& what) {
  Workspace workspace;
  Feed(feeds, workspace);
  const auto start = [&](const std::string& output) { return Random(gradients.GetTensor(output).shape(), 77); };
  for (const auto& [output, request] : request_of) {
    if (request == "add") workspace.SetTensor(output, start(output));
  }
  const auto running = Net::Create(net, workspace, options);
  running->Run();
  running->Run();
  for (const auto& [output, request] : request_of) {
    if (request == "none") {
      const Blob* blob = workspace.FindBlob(output);
      ASSERT_TRUE(blob == nullptr || !blob->HasTensor()) << output << ", " << what;
      continue;
    }
    const Tensor& gradient = gradients.GetTensor(output);
    if (request == "write" && options.opt_level <= 1) {
      ExpectSame(workspace.GetTensor(output), gradient, StrCat(output, ", ", what));
      continue;
    }
    if (!steady.contains(output)) continue;
    std::vector<double> expected = Values(gradient);
    if (request == "add") {
      const std::vector<double> before = Values(start(output));
      for (size_t i = 0; i < before.size(); ++i) expected[i] = before[i] + 2 * expected[i];
    }
    ExpectNear(workspace.GetTensor(output), Tensor::Of<double>(gradient.shape(), expected),
               StrCat(request, " ", output, ", ", what));
  }
}

TEST_P(ParallelRandomSteps, WriteAddOrLeaveOutGradientsAsRequested) {
  std::map<std::string, int> drawn;
  int num_steady = 0;
  const unsigned usual_seeds = SeedsFor(GetParam(), 200);
  for (unsigned seed = 0; seed < NumSeeds(usual_seeds); ++seed) {
    const RandomStep step(seed, SizeFor(GetParam()), StepOperators::kAny);
    const NetDef net = step.Training();
    NetDef requesting = net;
    const std::map<std::string, std::string> request_of = DrawRequests(seed, &requesting);
    for (const auto& [output, request] : request_of) ++drawn[request];
    for (const std::int64_t steps : {1, 40}) {
      Workspace gradients;
      Feed(step.Feeds(steps), gradients);
      RunNetOnce(net, gradients, {.executor = "serial", .opt_level = GetParam()});
      std::set<std::string> steady;
      for (const auto& [name, values] : SteadyValues(step, net, steps)) {
        if (request_of.contains(name)) steady.insert(name);
      }
      num_steady += static_cast<int>(steady.size());
      for (const int threads : {1, 2, 3}) {
        ExpectGradientsAsRequested(
            requesting, step.Feeds(steps), {.threads = threads, .opt_level = GetParam()}, request_of, gradients, steady,
            StrCat(steps, " steps, ", threads, " threads, seed ", seed, " of ", requesting.ShortDebugString()));
      }
    }
    if (testing::Test::HasFailure()) return;
  }
  for (const char* request : {"write", "add", "none"})
    EXPECT_GT(drawn[request], MinOfSeeds(SeedsFor(GetParam(), 100), usual_seeds)) << request;
  EXPECT_GT(num_steady, MinOfSeeds(SeedsFor(GetParam(), 1000), usual_seeds));
}

TEST(ParallelRandomStages, OfSeveralChunksAndARestGiveWhatOneLoopGives) {
  NEEDS_USUAL_PLANS();
  // Two rows a step: chunks of 32 steps.
  constexpr std::int64_t kSteps = 70;
  constexpr unsigned kUsualSeeds = 300;
  int compared = 0;
  CountsOfPlans counts;
  for (unsigned seed = 0; seed < NumSeeds(kUsualSeeds); ++seed) {
    const RandomStep step(seed, SizeFor(1), StepOperators::kAny);
    const NetDef net = step.Training();
    const std::string what = StrCat("seed ", seed, " of ", net.ShortDebugString());
    const auto expected = SteadyValues(step, net, kSteps);
    CountsOfPlans of_net;
    ExpectExecutorsAgree(step, net, kMaxOptLevel, {kSteps}, what, &of_net, [&](std::int64_t, const Workspace& found) {
      for (const auto& [name, values] : expected) {
        ASSERT_LT(Distance(Values(found.GetTensor(name)), values), 10 * kMaxDistance) << name << ", " << what;
        compared += of_net.with_stages > 0 ? 1 : 0;
      }
    });
    counts.with_stages += of_net.with_stages;
    counts.with_chunks += of_net.with_chunks;
    counts.with_all_steps += of_net.with_all_steps;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(compared, MinOfSeeds(1000, kUsualSeeds));
  EXPECT_GT(counts.with_chunks, MinOfSeeds(100, kUsualSeeds));
  EXPECT_GT(counts.with_all_steps, MinOfSeeds(60, kUsualSeeds));
}

}  // namespace
}  // namespace stepnet
