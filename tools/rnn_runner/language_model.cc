#include "stepnet/tools/rnn_runner/language_model.h"

#include <algorithm>

#include "stepnet/core/error.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/op_builder.h"

namespace stepnet::runner {
namespace {

constexpr const char* kScope = "cell/";

[[noreturn]] void Refuse(const LanguageModelSpec& spec, CellPart part, int index, const std::string& why) {
  const std::string text = StrCat("cell \"", spec.cell.def.name(), "\" cannot be the cell of a language model: ", why);
  throw Error(ErrorCode::kInvalidArgument, spec.cell.Fault(part, index, text));
}

void CheckOptions(const LanguageModelSpec& spec) {
  const CellOptions& options = spec.cell.def.options();
  const auto refuse = [&](int field, const char* why) { Refuse(spec, CellPart::kOptions, field, why); };
  if (options.has_lengths()) refuse(CellOptions::kLengthsFieldNumber, "its option says lengths, and texts have none");
  if (options.has_mask()) refuse(CellOptions::kMaskFieldNumber, "its option says mask, and texts have none");
  if (options.batch_major()) {
    refuse(CellOptions::kBatchMajorFieldNumber, "a text comes by steps, [T, B], and its option says batch_major");
  }
}

CellUse UseOf(const LanguageModelSpec& spec, ModelUse use) {
  const CellDef& cell = spec.cell.def;
  if (cell.input_size() != 1) {
    const bool has_more = cell.input_size() > 1;
    Refuse(spec, has_more ? CellPart::kInput : CellPart::kCell, has_more ? 1 : 0,
           StrCat("it must have one input, and has ", cell.input_size()));
  }
  if (cell.input(0).shape_size() != 1) {
    Refuse(spec, CellPart::kInput, 0,
           StrCat("its input must have one dimension, and has ", cell.input(0).shape_size()));
  }
  CheckOptions(spec);
  CellUse cell_use{.sizes = spec.sizes,
                   .scope = kScope,
                   .inputs = {{cell.input(0).name(), "embedded"}},
                   .training = use == ModelUse::kTraining,
                   .carry = true};
  const std::string& input_size = cell.input(0).shape(0);
  const auto is_that = [&](const CellSize& size) { return size.name() == input_size; };
  if (!std::ranges::any_of(cell.size(), is_that)) {
    Refuse(spec, CellPart::kInput, 0,
           StrCat("the dimension of its input is ", input_size, "; it must be a size with a name"));
  }
  cell_use.sizes[input_size] = spec.embedding;
  return cell_use;
}

void CheckCellNet(const LanguageModelSpec& spec, const CellNet& cell) {
  for (const CellNetInput& input : cell.inputs) {
    const bool is_state =
        std::ranges::any_of(cell.states, [&](const CarriedState& state) { return state.initial == input.blob; });
    if (input.blob != "embedded" && !is_state)
      Refuse(spec, CellPart::kCell, 0, StrCat("it needs \"", input.blob, "\""));
  }
  if (cell.output_items[0].rank() != 1) {
    Refuse(spec, CellPart::kOutput, 0,
           StrCat("an item of its first output is ", cell.output_items[0], "; it must have one dimension"));
  }
}

void AddParameter(LanguageModel* model, const std::string& name, const std::string& filler,
                  const std::vector<std::int64_t>& shape) {
  AddOp(&model->init_net, filler, {}, {name}).Ints("shape", shape);
  model->parameters.push_back(name);
}

}  // namespace

LanguageModel MakeLanguageModel(const LanguageModelSpec& spec, ModelUse use) {
  const CellNet cell = ExpandCell(spec.cell, UseOf(spec, use));
  CheckCellNet(spec, cell);
  LanguageModel model;
  model.states = cell.states;
  model.init_net.set_name("language_model_init");
  model.net.set_name("language_model");

  AddParameter(&model, "embedding", "XavierFill", {spec.vocabulary, spec.embedding});
  model.init_net.mutable_op()->MergeFrom(cell.init_net.op());
  model.parameters.insert(model.parameters.end(), cell.parameters.begin(), cell.parameters.end());
  AddParameter(&model, "output_w", "XavierFill", {spec.vocabulary, cell.output_items[0][0]});
  AddParameter(&model, "output_b", "ConstantFill", {spec.vocabulary});

  AddOp(&model.net, "Gather", {"embedding", "tokens"}, {"embedded"}).Int("dense_gradient", 1);
  model.net.mutable_op()->MergeFrom(cell.net.op());
  AddOp(&model.net, "FC", {cell.outputs[0], "output_w", "output_b"}, {"logits"}).Int("axis", 2);
  model.net.add_external_input("tokens");
  if (use == ModelUse::kPrediction) {
    AddOp(&model.net, "Softmax", {"logits"}, {"probabilities"}).Int("axis", 2);
    model.net.add_external_output("probabilities");
  } else {
    AddOp(&model.net, "SoftmaxWithLoss", {"logits", "targets"}, {"softmax", "loss"}).Int("axis", 2);
    model.net.add_external_input("targets");
    model.net.add_external_output("loss");
  }
  for (const OperatorDef& op : model.init_net.op()) model.net.add_external_input(op.output(0));
  for (const CarriedState& state : model.states) {
    model.net.add_external_input(state.initial);
    model.net.add_external_output(state.last);
  }
  return model;
}

}  // namespace stepnet::runner
