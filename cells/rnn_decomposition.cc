// What the operator RNN (operators/rnn.cc) stands for: a cell with layers and directions, its weights cut from the
// vector of parameters, its states from those that are given.
#include <algorithm>
#include <string>
#include <vector>

#include "stepnet/cells/cell_expand.h"
#include "stepnet/nets/decomposition.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/nets/rename.h"

namespace stepnet {
namespace {

// A step of each mode. With a = W x + b_i2h and e = U h + b_h2h the equations are those of MXNet's operator, which are
// cuDNN's: https://docs.nvidia.com/deeplearning/cudnn, cudnnRNNMode_t. What RNNWeights gives are the parameters in
// their order.
std::string TextOfPlain(const std::string& activation) {
  return R"(cell rnn(x[D]; h[R]) {
    size D; size R
    param i2h[R, D]; param h2h[R, R]; param i2h_bias[R]; param h2h_bias[R]
    h = )" +
         activation + R"((x @ i2h + i2h_bias + h @ h2h + h2h_bias)
    output h
  })";
}

constexpr const char* kGru = R"(cell gru(x[D]; h[R]) {
    size D; size R
    param i2h[3*R, D]; param h2h[3*R, R]; param i2h_bias[3*R]; param h2h_bias[3*R]
    a_r, a_z, a_n = Split(x @ i2h + i2h_bias, axis=-1)
    e_r, e_z, e_n = Split(h @ h2h + h2h_bias, axis=-1)
    z = Sigmoid(a_z + e_z)
    n = Tanh(a_n + Sigmoid(a_r + e_r) * e_n)
    h = (1 - z) * n + z * h
    output h
  })";

// c stays as it is and is clipped where it is used, as cuDNN does it.
std::string TextOfLstm(bool is_clipped, bool is_projected) {
  const std::string used = is_clipped ? "LSTMStateClip(c)" : "c";
  return StrCat(R"(cell lstm(x[D]; h[R], c[H]) {
    size D; size H; size R
    param i2h[4*H, D]; param h2h[4*H, R])",
                is_projected ? "; param h2r[R, H]" : "", R"(; param i2h_bias[4*H]; param h2h_bias[4*H]
    i, f, g, o = Split(x @ i2h + i2h_bias + h @ h2h + h2h_bias, axis=-1)
    c = Sigmoid(f) * )",
                used, R"( + Sigmoid(i) * Tanh(g)
    h = )",
                is_projected ? "(" : "", "Sigmoid(o) * Tanh(", used, ")", is_projected ? ") @ h2r" : "", R"(
    output h
  })");
}

std::string TextOf(const OperatorCall& op) {
  const std::string& mode = op.String("mode");
  if (mode == "rnn_relu") return TextOfPlain("Relu");
  if (mode == "rnn_tanh") return TextOfPlain("Tanh");
  if (mode == "gru") return kGru;
  return TextOfLstm(op.HasArg("lstm_state_clip_min"), op.Int("projection_size") > 0);
}

CellSource CellOf(const OperatorCall& op) {
  CellSource cell = ParseShortCell(TextOf(op), "RNN");
  CellOptions& options = *cell.def.mutable_options();
  options.set_layers(op.Int("num_layers"));
  if (op.Bool("bidirectional")) options.set_direction(CellOptions::BIDIRECTIONAL);
  if (op.Bool("use_sequence_length")) options.set_lengths("lengths");
  if (op.Float("p") > 0 && options.layers() > 1) options.set_dropout(op.Float("p"));
  for (OperatorDef& step_op : *cell.def.mutable_op()) {
    if (step_op.type() != "LSTMStateClip") continue;
    OpBuilder(&step_op)
        .Float("min", op.Float("lstm_state_clip_min"))
        .Float("max", op.Float("lstm_state_clip_max"))
        .Int("nan", op.Bool("lstm_state_clip_nan") ? 1 : 0);
  }
  return cell;
}

CellSizes SizesOf(const OperatorCall& op) {
  const std::int64_t state = std::max<std::int64_t>(op.Int("state_size"), 1);  // cells have none of 0
  const std::int64_t projection = op.Int("projection_size");
  // The net is the same for all sizes of the input and of states, which runs tell.
  CellSizes sizes = {{"D", 1}, {"R", projection > 0 ? projection : state}};
  if (op.String("mode") == "lstm") sizes["H"] = state;
  return sizes;
}

class RnnDecomposer {
 public:
  RnnDecomposer(const OperatorCall& op, const DecompositionContext& context)
      : op_(op), scope_(context.scope), has_lengths_(op.Bool("use_sequence_length")) {
    CellUse use{.sizes = SizesOf(op),
                .scope = scope_,
                .inputs = {{"x", op.inputs()[0]}},
                .training = context.use == NetUse::kTraining,
                .outer_states = true};
    if (has_lengths_) use.inputs["lengths"] = scope_ + "lengths";
    cell_ = ExpandCell(CellOf(op), use);
  }

  NetDef Run() {
    CutParameters();
    if (has_lengths_) ReadLengths();
    const int num_states = op_.String("mode") == "lstm" ? 2 : 1;
    for (int s = 0; s < num_states; ++s) CutStates(s, num_states);
    RenameBlobs({{cell_.outputs.front(), op_.outputs()[0]}}, &cell_.net);
    net_.mutable_op()->MergeFrom(cell_.net.op());
    for (int s = 0; s < num_states && op_.Bool("state_outputs"); ++s) JoinStates(s, num_states);
    return std::move(net_);
  }

 private:
  void CutParameters() {
    AddOp(&net_, "RNNWeights", op_.inputs(), cell_.parameters)
        .String("mode", op_.String("mode"))
        .Int("state_size", op_.Int("state_size"))
        .Int("num_layers", op_.Int("num_layers"))
        .Int("bidirectional", op_.Bool("bidirectional") ? 1 : 0)
        .Int("projection_size", op_.Int("projection_size"))
        .Int("use_sequence_length", has_lengths_ ? 1 : 0);
  }

  void ReadLengths() {
    const std::string &data = op_.inputs()[0], &lengths = op_.inputs().back();
    AddOp(&net_, "Cast", {lengths}, {scope_ + "lengths_double"}).Int("to", TensorProto::DOUBLE);
    AddOp(&net_, "RNNLengths", {data, scope_ + "lengths_double"}, {scope_ + "lengths"}).String("blob", lengths);
  }

  // State s of each layer and direction, by what it starts from or ends as.
  std::vector<std::string> OfState(int s, int num_states, std::string CarriedState::*blob) const {
    std::vector<std::string> blobs;
    for (size_t k = s; k < cell_.states.size(); k += num_states) blobs.push_back(cell_.states[k].*blob);
    return blobs;
  }

  void CutStates(int s, int num_states) {
    AddOp(&net_, "Split", {op_.inputs()[2 + s]}, OfState(s, num_states, &CarriedState::initial)).Int("axis", 0);
  }

  void JoinStates(int s, int num_states) {
    AddOp(&net_, "Concat", OfState(s, num_states, &CarriedState::last),
          {op_.outputs()[1 + s], StrCat(scope_, "state", s, "_sizes")})
        .Int("axis", 0);
  }

  const OperatorCall& op_;
  const std::string scope_;
  const bool has_lengths_;
  CellNet cell_;
  NetDef net_;
};

const DecompositionRegistration rnn("RNN", [](const OperatorCall& op, const DecompositionContext& context) {
  return RnnDecomposer(op, context).Run();
});

}  // namespace
}  // namespace stepnet
