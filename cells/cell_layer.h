// CellLayer: one layer of a cell in one direction, as a part of a RecurrentNetwork operator and what belongs to it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stepnet/cells/cell_expand.h"
#include "stepnet/cells/recurrent_operator.h"
#include "stepnet/compiler/step_graph.h"
#include "stepnet/core/index_of.h"
#include "stepnet/nets/recurrent_spec.h"

namespace stepnet {

// The value of a size in the shape of a part of the cell: above 0. Throws kInvalidArgument with the part's place.
std::int64_t SizeIn(const CellSource& cell, CellPart part, int index, const std::string& text, const CellSizes& sizes);

// What a layer is given.
struct LayerContext {
  const CellSource* cell = nullptr;
  const CellUse* use = nullptr;
  CellSizes sizes;
  std::string prefix;                  // of names outside
  std::string step_name;               // of the step net
  std::string step_prefix;             // of names that a step alone knows
  std::vector<std::string> sequences;  // blobs of the cell's inputs, [T, B, …]
  std::string mask;                    // blob, bool [T, B], or ""
  NameSet* names = nullptr;            // outside
  RecurrentOperator* op = nullptr;     // that it is written into; where that has a `top`, this is the first input
  bool adds_top = false;               // `top` is added to the first output, too
  // Steps that do not count compute what the first one of their sequence that does computes: `sequences` hold there
  // what it reads, and states are read as what they start from.
  bool repeats_first = false;
};

// The number of the message of that name; -1 for none.
template <typename Messages>
int IndexOfName(const Messages& messages, const std::string& name) {
  return IndexOf(messages, name, &Messages::value_type::name);
}

// Whether an operator of the cell reads the blob.
bool IsRead(const CellDef& cell, const std::string& blob);

class CellLayer {
 public:
  // Makes the step net and infers its shapes. Throws as ExpandCell does.
  explicit CellLayer(LayerContext context);

  // The shape of an item of each output.
  const std::vector<Shape>& output_items() const { return output_items_; }
  DType OutputDType(int k) const { return output_infos_[k].dtype; }

  // Adds to the operator and to result's nets; `outputs` names the blobs that shall hold the cell's outputs, "" for
  // none.
  void Write(const std::vector<std::string>& outputs, CellNet* result);

 private:
  // A state that is there to show the last value of a blob that is none. Steps read it only where there is a mask, to
  // hold what they do not count.
  struct ShownState {
    std::string blob;      // what the step writes
    std::string previous;  // "" where the step does not read it
    Shape item;
    std::string name = {};  // outside
  };
  // The name in the step net of what the cell calls so, or nearly.
  std::string InStep(const std::string& name) const { return context_.step_prefix + name; }
  std::string Outside(const std::string& blob) const {  // of the step
    return context_.prefix + blob.substr(context_.step_prefix.size());
  }

  const CellDef& cell() const { return context_.cell->def; }
  Shape ShapeOf(CellPart part, int index, const google::protobuf::RepeatedPtrField<std::string>& shape,
                const CellSizes& sizes) const;
  void ChooseBatch(std::int64_t least);
  bool HasStep(const Shape& shape) const;
  Shape InputShape(int i) const;
  Shape StateShape(int i) const;
  Shape ParameterShape(int i) const;
  Shape CaptureShape(int i) const;
  float DropoutOf(int state) const;
  float ZoneoutOf(int state) const;

  void NameStep();
  void WriteStep();
  OperatorDef Resolved(const OperatorDef& def);
  void MaskInputs();
  void ReadFirstStates();
  std::string NewestRow(int state, const std::string& rows);
  void WriteStateUpdate(int state);
  bool CanBeState(int k) const;
  [[noreturn]] void ThrowNotCarried(int k) const;
  std::string Masked(const std::string& blob, DType dtype, std::string otherwise);
  void WriteOutputs();
  void AddTop(bool is_shown);
  std::map<std::string, TensorInfo> StepInputs() const;
  void InferShapes();
  void InferShapesOfBatch();
  void InferShapesOfAnotherBatch();
  void ThrowOfAnyBatch(ErrorCode code);
  void CheckSlices(const StepGraph& graph) const;
  void CheckStateWrites(const StepGraph& graph) const;
  void CheckBefore(int op_index, const std::map<std::string, TensorInfo>& inputs) const;
  StepGraph GraphBefore(int op_index, const std::map<std::string, TensorInfo>& inputs) const;
  std::string AdviceOn(int k, const Error& error, const std::map<std::string, TensorInfo>& inputs) const;
  [[noreturn]] void ThrowAtOperator(const Error& error, const std::map<std::string, TensorInfo>& inputs) const;
  void SayWhereMatrices(const StepGraph& graph);
  void WriteParameters(CellNet* result) const;
  void WriteInitial(int state, CellNet* result) const;
  void WriteStates(CellNet* result);
  void ShowOutputs(const std::vector<std::string>& outputs);
  void CarryStates(CellNet* result);

  LayerContext context_;
  std::int64_t batch_ = 1;                      // where shapes are inferred
  NameSet& names_;                              // in the step net
  std::map<std::string, std::string> renamed_;  // blob of the cell → blob of the step net
  std::vector<std::string> linked_;             // of each input, what the step is given
  std::vector<std::string> previous_;           // of each state, what the step reads
  std::vector<std::string> next_;               // of each state, what the step gives
  std::vector<std::string> read_;               // of each state, what stands for `previous_` in what the step computes
  std::vector<std::string> initial_;            // of each state what it starts from, outside
  std::vector<std::string> output_blobs_;       // of each output
  std::map<std::string, std::string> newest_;   // rows of a state → the last of them
  std::string computed_;                        // the first output before it is held or zeroed
  std::vector<std::string> rows_;         // of each output what it shows, where that is no state, or not all of it
  std::vector<TensorInfo> output_infos_;  // of each output, as the cell writes it
  std::vector<Shape> output_items_;
  std::vector<bool> item_has_batch_;  // of each output, whether the shape of an item follows from the batch
  std::vector<ShownState> shown_;     // for outputs of the last step
  std::string mask_;                  // in the step net
  NetDef step_;                       // of this layer
  int first_op_ = 0;                  // of step_ that comes from the cell
  std::vector<std::string> states_;   // outside: of each state
};

}  // namespace stepnet
