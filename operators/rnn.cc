// RNN: layers of recurrent cells over a sequence, with all their parameters in one vector, as MXNet 1.9 has it.
//
// It has no kernel: cells/rnn_decomposition.cc says which operators it stands for. RNNWeights, the first of them,
// checks the shapes of all that comes from outside, and cuts the vector of parameters up.
#include <string>
#include <vector>

#include "stepnet/core/expansion.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/nets/packed_layers.h"
#include "stepnet/operators/dtypes.h"

namespace stepnet {
namespace {

// What the arguments say about sizes.
struct RnnSizes {
  explicit RnnSizes(const OperatorCall& op)
      : is_lstm(op.String("mode") == "lstm"),
        has_lengths(op.Bool("use_sequence_length")),
        layers{.mode = op.String("mode"),
               .layers = op.Int("num_layers"),
               .state = op.Int("state_size"),
               .projection = op.Int("projection_size"),
               .bidirectional = op.Bool("bidirectional")} {}

  int num_inputs() const { return 3 + (is_lstm ? 1 : 0) + (has_lengths ? 1 : 0); }
  std::int64_t num_rows() const { return layers.layers * layers.directions(); }  // of states

  bool is_lstm;
  bool has_lengths;
  PackedLayers layers;
};

PackedLayout LayoutOfRnn(const RnnSizes& sizes, std::int64_t input_size) {
  PackedLayers layers = sizes.layers;
  layers.input = input_size;
  return LayoutOf(layers);
}

void ExpectShape(const ShapeQuery& query, int i, const Shape& wanted, const std::string& letters) {
  if (query.In(i).shape == wanted) return;
  throw Error(ErrorCode::kShapeMismatch, StrCat(InputText(query, i), "; with ", InputText(query, 0), ", RNN needs ",
                                                letters, ", which is ", wanted));
}

void CheckTypes(const ShapeQuery& query, const RnnSizes& sizes) {
  const int num_floats = query.num_inputs() - (sizes.has_lengths ? 1 : 0);
  for (int i = 0; i < num_floats; ++i) {
    if (!IsFloatOrDouble(query.In(i).dtype)) {
      throw Error(ErrorCode::kTypeMismatch, StrCat("RNN works on float and double; ", InputText(query, i)));
    }
    if (query.In(i).dtype != query.In(0).dtype) {
      throw Error(ErrorCode::kTypeMismatch, StrCat("RNN needs data, parameters and states of one type; ",
                                                   InputText(query, 0), " and ", InputText(query, i)));
    }
  }
  if (!sizes.has_lengths) return;
  const DType lengths = query.In(num_floats).dtype;
  if (lengths != DType::kString && lengths != DType::kBool) return;
  throw Error(ErrorCode::kTypeMismatch, StrCat("RNN needs lengths that are numbers; ", InputText(query, num_floats)));
}

// Checks all inputs of RNN. Throws kShapeMismatch and kTypeMismatch.
PackedLayout CheckedLayout(const ShapeQuery& query) {
  const RnnSizes sizes(query.op());
  CheckTypes(query, sizes);
  const Shape& data = query.In(0).shape;
  if (data.rank() != 3) {
    throw Error(ErrorCode::kShapeMismatch, StrCat(InputText(query, 0), "; RNN needs data [T, B, I]"));
  }
  PackedLayout layout = LayoutOfRnn(sizes, data[2]);
  ExpectShape(query, 1, Shape({layout.size}), "all weights and biases in one vector");
  const std::int64_t rows = sizes.num_rows();
  ExpectShape(query, 2, Shape({rows, data[1], sizes.layers.output()}), "state [layers * directions, B, R]");
  if (sizes.is_lstm) {
    ExpectShape(query, 3, Shape({rows, data[1], sizes.layers.state}), "state_cell [layers * directions, B, H]");
  }
  if (sizes.has_lengths) ExpectShape(query, sizes.num_inputs() - 1, Shape({data[1]}), "sequence_length [B]");
  return layout;
}

std::vector<TensorInfo> RnnShapes(const ShapeQuery& query) {
  CheckedLayout(query);
  const RnnSizes sizes(query.op());
  const Shape& data = query.In(0).shape;
  std::vector<TensorInfo> outputs = {
      {.dtype = query.In(0).dtype, .shape = data.With(2, sizes.layers.directions() * sizes.layers.output())}};
  if (query.op().num_outputs() > 1) outputs.push_back(query.In(2));
  if (query.op().num_outputs() > 2) outputs.push_back(query.In(3));
  return outputs;
}

// The arguments that say what sizes there are; RNNWeights has them, too.
Operator WithSizes(Operator op) {
  constexpr double kMaxSize = 1LL << 31;  // so that products of a few do not overflow
  constexpr double kMaxLayers = 1000;     // of a cell
  return std::move(
      op.RequiredArg("mode", ArgumentType::kString, "the cell of all layers", OneOf(PackedModes()))
          .RequiredArg("state_size", ArgumentType::kInt, "H, the size of h and c", Between(0, kMaxSize))
          .RequiredArg("num_layers", ArgumentType::kInt, "L, how many layers there are", Between(1, kMaxLayers))
          .Arg("bidirectional", false, "each layer runs in both directions, with their outputs side by side")
          .Arg("projection_size", 0, "of lstm: P, the size of h after a projection; 0: there is none",
               Between(0, kMaxSize))
          .Arg("use_sequence_length", false, "the last input says how long each sequence is"));
}

void CheckInputs(const OperatorCall& op) {
  const RnnSizes sizes(op);
  std::vector<std::string> inputs = {"data", "parameters", "state"};
  if (sizes.is_lstm) inputs.emplace_back("state_cell");
  if (sizes.has_lengths) inputs.emplace_back("sequence_length");
  if (op.num_inputs() != sizes.num_inputs()) {
    throw Error(ErrorCode::kInvalidNet,
                StrCat("RNN with mode ", op.String("mode"), sizes.has_lengths ? " and use_sequence_length" : "",
                       " takes ", inputs.size(), " inputs (", Join(inputs, ", "), "), has ", op.num_inputs()));
  }
}

void CheckOutputs(const OperatorCall& op) {
  const int num_outputs = !op.Bool("state_outputs") ? 1 : RnnSizes(op).is_lstm ? 3 : 2;
  if (op.num_outputs() != num_outputs) {
    throw Error(ErrorCode::kInvalidNet,
                StrCat("RNN with mode ", op.String("mode"), op.Bool("state_outputs") ? " and" : " without",
                       " state_outputs gives ", num_outputs, num_outputs == 1 ? " output, has " : " outputs, has ",
                       op.num_outputs()));
  }
}

void CheckClip(const OperatorCall& op) {
  const bool has_min = op.HasArg("lstm_state_clip_min"), has_max = op.HasArg("lstm_state_clip_max");
  if (!has_min && !has_max && !op.Bool("lstm_state_clip_nan")) return;
  if (!has_min || !has_max) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "RNN: lstm_state_clip_min and lstm_state_clip_max are given together, and lstm_state_clip_nan with them");
  }
  const float low = op.Float("lstm_state_clip_min"), high = op.Float("lstm_state_clip_max");
  if (low <= high) return;  // neither is NaN
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("RNN: lstm_state_clip_min is ", low, ", must not exceed lstm_state_clip_max, which is ", high));
}

void CheckOfLstm(const OperatorCall& op) {
  if (op.String("mode") == "lstm") return;
  const auto refuse = [&](const char* name) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("RNN: ", name, " is of mode lstm, the mode is ", op.String("mode")));
  };
  if (op.Int("projection_size") > 0) refuse("projection_size");
  for (const char* name : {"lstm_state_clip_min", "lstm_state_clip_max"}) {
    if (op.HasArg(name)) refuse(name);
  }
  if (op.Bool("lstm_state_clip_nan")) refuse("lstm_state_clip_nan");
}

void CheckDropout(const OperatorCall& op) {
  if (op.Float("p") < 1) return;
  throw Error(ErrorCode::kInvalidArgument, "RNN: p is 1, must be less: nothing would be kept");
}

const Registration rnn =
    WithSizes(Operator("RNN"))
        .Doc(
            "Layers of recurrent cells over a sequence, with all parameters in one vector, as MXNet 1.9 and cuDNN have "
            "it. With a = W x + b_i2h and e = U h + b_h2h, gate by gate: rnn_relu, rnn_tanh h' = relu(a + e), "
            "tanh(a + e); lstm (gates i, f, g, o) c' = σ(f) c + σ(i) tanh(g), h' = σ(o) tanh(c'), with a projection "
            "W_h2r times that; gru (gates r, z, n) n = tanh(a_n + r e_n), h' = (1 - z) n + z h. A net with gradients "
            "(AddBackwardStepNets) trains: there p drops. Steps at or beyond the length of a sequence are not read, "
            "and output is 0 there; a length of 0 passes the states through.")
        .Input("data", "[T, B, I], float or double")
        .Input("parameters",
               "[n] of the type of data: first all weights, by layer, then by direction, i2h [G*H, I or dir*R], h2h "
               "[G*H, R] and h2r [P, H] where there is a projection; then all biases in the same order, i2h [G*H], h2h "
               "[G*H]. G is 4 for lstm, 3 for gru, otherwise 1")
        .Input("state", "[L*dir, B, R], what h starts from, row l*dir + d; R is P with a projection, otherwise H")
        .OptionalInput("state_cell", "of lstm: [L*dir, B, H], what c starts from")
        .OptionalInput("sequence_length",
                       "with use_sequence_length, as the last input: [B] whole numbers from 0 to T of any type")
        .Output("output", "[T, B, dir*R], h of the last layer")
        .OptionalOutput("state_output", "with state_outputs: [L*dir, B, R], h after each sequence's last step")
        .OptionalOutput("statecell_output", "with state_outputs, of lstm: [L*dir, B, H], c after it, not clipped")
        .Arg("state_outputs", false, "give the last states, too")
        .Arg("p", 0.0f,
             "part of the elements, less than 1, that is dropped of the output of each layer but the last, in training",
             Between(0, 1))
        .Arg("lstm_state_clip_min", 0.0f,
             "of lstm: where c is used, the one that comes in too, what is less counts as this; c itself stays. Given "
             "together with the maximum; without both nothing is clipped")
        .Arg("lstm_state_clip_max", 0.0f, "the same of what is greater")
        .Arg("lstm_state_clip_nan", false, "a c that is NaN counts as lstm_state_clip_min")
        .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) {
          for (const auto& rule : {CheckInputs, CheckOutputs, CheckClip, CheckOfLstm, CheckDropout})
            CheckBy(rule)(op, problems);
        })
        .Shapes(RnnShapes)
        .Gradient([](GradientBuilder&) {
          throw Error(ErrorCode::kInvalidNet,
                      "RNN has no gradient operator: call AddBackwardStepNets (nets/backward_step.h) first, which puts "
                      "those that it stands for in its place");
        });

void CheckParts(const OperatorCall& op) {
  const size_t num_parts = LayoutOfRnn(RnnSizes(op), /*input_size=*/0).parts.size();
  if (static_cast<size_t>(op.num_outputs()) == num_parts) return;
  throw Error(ErrorCode::kInvalidNet,
              StrCat("RNNWeights gives ", num_parts, " parts, has ", op.num_outputs(), " outputs"));
}

// Parts of constant parameters are views: what is computed of them alone is then kept, too (Tensor::SetConstant).
// Others are copied, as an operator may write to the parameters before another has read a part.
void RunRnnWeights(const OperatorCall& op, const OpRun& run) {
  OpHost& host = run.host();
  std::vector<TensorInfo> infos;
  for (int i = 0; i < op.num_inputs(); ++i) {
    const Tensor& input = host.Input(i).GetTensor();
    infos.push_back({.dtype = input.dtype(), .shape = input.shape()});
  }
  const PackedLayout layout = CheckedLayout(ShapeQuery(op, infos));
  const Tensor& parameters = host.Input(1).GetTensor();
  for (int o = 0; o < op.num_outputs(); ++o) {
    const PackedPart& part = layout.parts[o];
    const Tensor view = parameters.At(part.offset * DTypeBytes(parameters.dtype()), parameters.dtype(), part.shape);
    if (parameters.ConstantId() != 0) {
      host.Output(o).SetTensor(view);
    } else {
      CopyElements(view.View(), host.Output(o).MakeTensor(view.dtype(), view.shape()).View());
    }
  }
}

const Registration rnn_weights =
    WithSizes(Operator("RNNWeights"))
        .Doc("The weights and biases in the parameters of RNN. Checks the other inputs of RNN, too.")
        .Input("data", "as in RNN, here and below")
        .Input("parameters", "[n]")
        .Input("state", "[L*dir, B, R]")
        .OptionalInput("state_cell", "[L*dir, B, H]")
        .OptionalInput("sequence_length", "[B]")
        .Outputs("part", "by layer, then by direction, i2h, h2h, h2r where there is one, the bias of i2h, that of h2h")
        .Private()
        .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) {
          for (const auto& rule : {CheckInputs, CheckParts}) CheckBy(rule)(op, problems);
        })
        .ReadsShapes({0, 2, 3, 4})
        .Shapes([](const ShapeQuery& query) {
          std::vector<TensorInfo> infos;
          const PackedLayout layout = CheckedLayout(query);
          for (const PackedPart& part : layout.parts) {
            infos.push_back({.dtype = query.In(1).dtype, .shape = part.shape});
          }
          return infos;
        })
        .Expands([](Expansion& e) {
          const PackedLayout layout = CheckedLayout(e.query());
          for (int o = 0; o < e.op().num_outputs(); ++o) {
            const PackedPart& part = layout.parts[o];
            const std::int64_t size = part.shape.size();
            e.Copy(1, size, {.operand = 1, .row_length = layout.size, .first = part.offset},
                   {.operand = o, .row_length = size});
          }
        })
        .Gradient([](GradientBuilder& g) {
          GradientOp joined{.type = "RNNWeightsGradient", .inputs = {}, .outputs = {}};
          for (int o = 0; o < g.op().num_outputs(); ++o) joined.inputs.push_back(g.GO(o));
          joined.outputs.push_back(g.GI(1));
          g.Add(std::move(joined));
        })
        .Cpu(
            {.make = [](const OperatorCall& op) -> RunFn { return [op](const OpRun& run) { RunRnnWeights(op, run); }; },
             .takes_blobs = true});

// Where the parts lie whose gradients these are: the first one tells I.
PackedLayout LayoutOfGradients(const ShapeQuery& query) {
  ExpectFloat(query, 0);
  const Shape& first = query.In(0).shape;
  PackedLayout layout = LayoutOfRnn(RnnSizes(query.op()), first.rank() == 2 ? first[1] : 0);
  bool fits = std::ssize(layout.parts) == query.num_inputs();
  for (int i = 0; fits && i < query.num_inputs(); ++i) {
    fits = query.In(i).shape == layout.parts[i].shape && query.In(i).dtype == query.In(0).dtype;
  }
  if (fits) return layout;
  throw Error(ErrorCode::kShapeMismatch, "RNNWeightsGradient needs the gradients of what RNNWeights gives");
}

const Registration rnn_weights_gradient =
    WithSizes(Operator("RNNWeightsGradient"))
        .Doc("The gradient of the parameters of RNN.")
        .Inputs("dpart", "the shape of each output of RNNWeights")
        .Output("dparameters", "[n]")
        .Private()
        .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
          return {{.dtype = query.In(0).dtype, .shape = Shape({LayoutOfGradients(query).size})}};
        })
        .Expands([](Expansion& e) {
          const PackedLayout layout = LayoutOfGradients(e.query());
          for (int i = 0; i < e.num_inputs(); ++i) {
            const PackedPart& part = layout.parts[i];
            const std::int64_t size = part.shape.size();
            e.Copy(1, size, {.operand = i, .row_length = size},
                   {.operand = 0, .row_length = layout.size, .first = part.offset});
          }
        })
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [sizes = RnnSizes(op)](const OpRun& run) {
            const PackedLayout layout = LayoutOfRnn(sizes, run.In(0).dim(1));
            for (int i = 0; i < run.num_inputs(); ++i) {
              const std::int64_t size = run.In(i).size();
              CopyRuns(run.Out(0).dtype, At(run.In(i), 0), size, At(run.Out(0), layout.parts[i].offset), size, size, 1);
            }
          };
        });

}  // namespace
}  // namespace stepnet
