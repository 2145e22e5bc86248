#include "small_training.h"

#include <algorithm>

#include "stepnet/cells/cell_expand.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/nets/training_net.h"
#include "stepnet/tests/examples/cell_case.h"

namespace stepnet {
namespace {

constexpr std::int64_t kSteps = 4, kBatch = 2, kTableRows = 5;

CellNet ElmanOfTable() {
  const CellSource cell = ReadExampleCell("elman");
  return ExpandCell(cell, {.sizes = SmallSizes(cell.def), .inputs = {{"x", "embedded"}}});
}

}  // namespace

SmallTraining::SmallTraining(const RunOptions& options) {
  const CellNet cell = ElmanOfTable();
  NetDef forward;
  forward.set_name("training");
  AddOp(&forward, "Gather", {"table", "rows"}, {"embedded"});
  forward.mutable_op()->MergeFrom(cell.net.op());
  AddOp(&forward, "Mul", {cell.outputs[0], cell.outputs[0]}, {"squares"});
  AddOp(&forward, "AveragedLoss", {"squares"}, {"loss"});
  OptimizerDef optimizer;
  optimizer.set_learning_rate(0.125);
  optimizer.set_clip_norm(1);
  kept_ = cell.parameters;
  kept_.emplace_back("table");
  const TrainingNet training = MakeTrainingNet(forward, "loss", kept_, optimizer);
  RunNetOnce(cell.init_net, *workspace_, {.seed = 3});
  const std::int64_t columns = cell.inputs[0].dims.back();
  Tensor table(DType::kFloat, Shape({kTableRows, columns}));
  for (std::int64_t i = 0; i < table.size(); ++i) table.data<float>()[i] = 0.25F * static_cast<float>(i % 7) - 0.5F;
  workspace_->SetTensor("table", table);
  RunNetOnce(training.init_net, *workspace_);
  kept_.insert(kept_.end(), training.state.begin(), training.state.end());
  SetRows();
  net_ = Net::Create(training.net, *workspace_, options);
  const auto writes_kept = [&](const OperatorDef& op) {
    return std::ranges::any_of(op.output(),
                               [&](const std::string& blob) { return std::ranges::find(kept_, blob) != kept_.end(); });
  };
  first_update_ = static_cast<int>(std::ranges::find_if(training.net.op(), writes_kept) - training.net.op().begin());
}

NamedInputs SmallTraining::Kept() const {
  NamedInputs kept;
  for (const std::string& name : kept_) {
    const Tensor& tensor = workspace_->GetTensor(name);
    kept[name] = tensor.device().IsHost() ? tensor.Clone() : tensor.To({});
  }
  return kept;
}

void SmallTraining::SetKept(const NamedInputs& kept) { Feed(kept, *workspace_); }

void SmallTraining::SetRows(std::int32_t bad_row) {
  Tensor rows(DType::kInt32, Shape({kSteps, kBatch}));
  for (std::int64_t i = 0; i < rows.size(); ++i) rows.data<std::int32_t>()[i] = static_cast<std::int32_t>(3 * i % 5);
  if (bad_row != 0) rows.data<std::int32_t>()[5] = bad_row;
  workspace_->SetTensor("rows", rows);
}

void SmallTraining::Iterate() {
  net_->SetRunCounter(0);
  net_->Run();
  net_->Wait();
}

}  // namespace stepnet
