// One model used by several threads at once.
#include <gtest/gtest.h>

#include <thread>

#include "recurrent_case.h"
#include "stepnet/cells/cell_expand.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/tests/core/source_path.h"

namespace stepnet {
namespace {

CellNet Lstm() {
  const CellSource cell = ReadCell(SourcePath("examples/cells/lstm.cell"));
  return ExpandCell(cell, {.sizes = {{"D", 3}, {"H", 5}}});
}

NetDef WithGradients(const CellNet& cell) {
  NetDef net = cell.net;
  AddBackwardStepNets(&net);
  return AddGradients(net, {"h"}, cell.parameters).net;
}

Tensor Sequence(std::int64_t steps, unsigned seed) { return Random({steps, 2, 3}, seed, DType::kFloat); }

TEST(ThreadsOfOneModel, NetsOverSharedParametersDoNotDisturbEachOther) {
  const CellNet cell = Lstm();
  const NetDef def = WithGradients(cell);
  Workspace parameters;
  RunNetOnce(cell.init_net, parameters);
  constexpr int kThreads = 6;
  constexpr int kRuns = 40;
  const auto run = [&](int thread, const std::function<void(Workspace&, int)>& look) {
    Workspace workspace(&parameters);
    workspace.SetTensor("x", Sequence(1, 0));
    const std::unique_ptr<Net> net = Net::Create(def, workspace);
    for (int k = 0; k < kRuns; ++k) {
      workspace.SetTensor("x", Sequence(1 + (thread + k) % 7, static_cast<unsigned>(100 * thread + k)));
      net->Run();
      look(workspace, k);
    }
  };
  std::vector<std::vector<std::pair<Tensor, Tensor>>> expected(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    run(thread, [&](Workspace& workspace, int) {
      expected[thread].emplace_back(workspace.GetTensor("h").Clone(), workspace.GetTensor("u_grad").Clone());
    });
  }
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      run(thread, [&](Workspace& workspace, int k) {
        ExpectSame(workspace.GetTensor("h"), expected[thread][k].first, "h");
        ExpectSame(workspace.GetTensor("u_grad"), expected[thread][k].second, "u_grad");
      });
    });
  }
  threads.clear();
  EXPECT_FALSE(parameters.HasBlob("h"));
}

TEST(ThreadsOfOneModel, RunsOfOneNetWaitForEachOther) {
  const CellNet cell = Lstm();
  Workspace workspace;
  RunNetOnce(cell.init_net, workspace);
  workspace.SetTensor("x", Sequence(9, 1));
  const std::unique_ptr<Net> net = Net::Create(WithGradients(cell), workspace);
  net->Run();
  const Tensor expected = workspace.GetTensor("u_grad").Clone();
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&] {
        for (int k = 0; k < 20; ++k) net->Run();
      });
    }
  }
  ExpectSame(workspace.GetTensor("u_grad"), expected, "u_grad");
}

}  // namespace
}  // namespace stepnet
