// Random step nets: every executor gives, bit for bit, what the same steps written out one after the other give, or
// within rounding where some of it runs once for all steps; and gradients are those of the steps written out.
#include <cmath>

#include "layers.h"
#include "random_step.h"
#include "recurrent_case.h"
#include "stepnet/core/backward.h"
#include "stepnet/core/op_builder.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

using Feeds = std::map<std::string, Tensor>;

void Feed(const Feeds& feeds, Workspace& workspace) {
  for (const auto& [name, tensor] : feeds) workspace.SetTensor(name, tensor);
}

// Runs the net with every executor for each number of steps; the last workspace is the serial one.
void ExpectExecutorsAgree(const RandomStep& step, const NetDef& net, int opt_level,
                          const std::vector<std::int64_t>& numbers_of_steps, const std::string& what,
                          const std::function<void(std::int64_t, const Workspace&)>& look) {
  Workspace serial;
  Feed(step.Feeds(1), serial);
  const auto reference = Net::Create(net, serial, {.executor = "serial", .opt_level = opt_level});
  std::vector<std::unique_ptr<Workspace>> workspaces;
  std::vector<std::unique_ptr<Net>> nets;
  constexpr int kThreads[] = {2, 3, 5};
  for (const int threads : kThreads) {
    workspaces.push_back(std::make_unique<Workspace>());
    Feed(step.Feeds(1), *workspaces.back());
    nets.push_back(
        Net::Create(net, *workspaces.back(), {.executor = "parallel", .threads = threads, .opt_level = opt_level}));
  }
  for (const std::int64_t steps : numbers_of_steps) {
    Feed(step.Feeds(steps), serial);
    reference->Run();
    for (size_t k = 0; k < nets.size(); ++k) {
      Feed(step.Feeds(steps), *workspaces[k]);
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
INSTANTIATE_TEST_SUITE_P(, ParallelRandomSteps, testing::Values(0, 1),
                         [](const auto& info) { return StrCat("level", info.param); });

TEST_P(ParallelRandomSteps, EqualTheirStepsWrittenOut) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    const RandomStep step(seed);
    const NetDef net = step.Recurrent();
    const std::string what = StrCat("seed ", seed, " of ", net.ShortDebugString());
    ExpectExecutorsAgree(step, net, GetParam(), {1, 9, 2}, what, [&](std::int64_t steps, const Workspace& found) {
      const RandomStep::WrittenOut plain = step.WriteOut(steps);
      Workspace expected;
      Feed(plain.feeds, expected);
      RunNetOnce(plain.net, expected);
      for (const auto& [output, blobs] : plain.outputs) {
        const Tensor& rows = found.GetTensor(output);
        for (std::int64_t t = 0; t < steps; ++t) {
          const Tensor& row = expected.GetTensor(blobs[t]);
          const Tensor same = rows.Slice(t, t + 1).Reshaped(row.shape());
          (GetParam() == 0 ? ExpectSame : ExpectNear)(same, row, StrCat(output, ", step ", t, " of ", what));
        }
      }
    });
    if (testing::Test::HasFailure()) return;
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
  int trained = 0, compared = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    const RandomStep step(seed);
    const std::optional<NetDef> net = step.Training();
    if (!net) continue;
    ++trained;
    const std::string what = StrCat("seed ", seed, " of ", net->ShortDebugString());
    ExpectExecutorsAgree(step, *net, GetParam(), {1, 7, 2}, what, [&](std::int64_t steps, const Workspace& found) {
      for (const auto& [name, expected] : WrittenOutGradients(step, steps)) {
        const Blob* gradient = found.FindBlob(name + "_grad");
        ExpectNear(gradient != nullptr ? gradient->GetTensor() : Tensor::Zeros(DType::kDouble, expected.shape()),
                   expected, StrCat(name, ", ", steps, " steps, ", what));
        ++compared;
      }
    });
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(trained, 150);
  EXPECT_GT(compared, 1000);
}

}  // namespace
}  // namespace stepnet
