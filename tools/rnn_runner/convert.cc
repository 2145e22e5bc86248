// rnn_runner convert: the same message as text or in binary, and parameters from any file to any other.
#include <gflags/gflags.h>

#include <iostream>

#include "stepnet/cells/cell.h"
#include "stepnet/core/error.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/memory_for.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/minidb.h"
#include "stepnet/nets/model.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/model_file.h"
#include "stepnet/tools/rnn_runner/packed_parameters.h"
#include "stepnet/tools/rnn_runner/parameter_file.h"

DEFINE_bool(params, false,
            "parameters: IN is a file of tensors, a net that fills parameters or a model with them; OUT is a file of\n"
            "tensors: .safetensors, .npz, .minidb, or TensorProtos, binary (.pb) or text");
DEFINE_bool(as_net, false, "with --params, OUT is a net that fills them (.pb, or text)");
DEFINE_bool(widen, false, "with --params, float16 and bfloat16 become float, which has all their numbers");
DEFINE_string(
    packed, "",
    "with --params: the parameters of recurrent layers, as tensors with names in one file and as one vector,\n"
    "that of MXNet's RNN and of cuDNN, in the other; the layers are lstm, gru, rnn_tanh or rnn_relu, L of H\n"
    "units each, and `bidirectional`, with `projection=P`, with `no_biases`; with `input=D` what is of another\n"
    "size of input is refused");

DECLARE_string(prefix);  // of expand

namespace stepnet::runner {
namespace {

bool IsMessageName(const std::string& path) { return IsTextFileName(path) || path.ends_with(".pb"); }

// What a kind of file does not keep as it was.
void SayWhatChanges(const NamedTensors& tensors, const std::string& to) {
  if (!to.ends_with(".npz")) return;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.dtype() != DType::kBFloat16) continue;
    std::cerr << PrintableLine(
                     StrCat(NameText(name), " is bfloat16, which NumPy does not have, and is written as float"))
              << "\n";
  }
}

// The tensors whose names begin with --prefix, without it. Throws kInvalidArgument where there are none.
NamedTensors BehindPrefix(const NamedTensors& tensors) {
  NamedTensors found;
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(FLAGS_prefix) && name != FLAGS_prefix) {
      found.emplace_back(name.substr(FLAGS_prefix.size()), tensor);
    }
  }
  if (!found.empty()) return found;
  throw Error(ErrorCode::kInvalidArgument, StrCat("no name of a tensor begins with ", Quoted(FLAGS_prefix),
                                                  "; the first is ", Quoted(tensors.front().first)));
}

int ConvertParameters(const std::string& from, const std::string& to) {
  if (FLAGS_as_net && !IsMessageName(to)) {
    throw UsageError(StrCat("a net is written to .pb, .pbtxt, .prototxt or .txt, not to \"", to, "\""));
  }
  if (!IsMessageName(to) && !to.ends_with(".safetensors") && !to.ends_with(".npz") && !to.ends_with(".minidb")) {
    throw UsageError(StrCat("cannot tell from \"", to,
                            "\" what to write; with --params it must end in .safetensors, .npz, .minidb, .pb, .pbtxt, "
                            ".prototxt or .txt"));
  }
  const std::optional<PackedLayers> packed =
      IsGiven("packed") ? std::optional(ParsePackedLayers(FLAGS_packed)) : std::nullopt;
  NamedTensors tensors = ReadParameterFile(from, SplitNames("output", FLAGS_output));
  if (FLAGS_widen) {
    for (auto& [name, tensor] : tensors) {
      if (IsStoredFloat(tensor.dtype())) tensor = WithMemoryFor("the tensor", name, [&] { return Widened(tensor); });
    }
  }
  try {
    if (IsGiven("prefix")) tensors = BehindPrefix(tensors);
    if (packed) tensors = SplitOrJoined(tensors, *packed);
  } catch (...) {
    throw CurrentError().At({.file = from});
  }
  if (FLAGS_as_net) {
    CheckNamesToWrite(tensors, to);
    WriteMessage(NetThatFills(tensors), to);
  } else {
    SayWhatChanges(tensors, to);
    WriteTensors(tensors, to);
  }
  // The size of the input follows from that of a vector, and would from a wrong one.
  const bool is_split = packed && tensors.size() > 1;
  const std::string input = is_split ? StrCat(", for an input of size ", tensors.front().second.dim(1)) : "";
  std::cerr << "wrote " << to << " (" << Count(std::ssize(tensors), "tensor") << (FLAGS_as_net ? ", as a net" : "")
            << input << ")\n";
  if (FLAGS_output.empty() && IsCheckpoint(from)) {
    std::cerr << "left out: what is of the training alone, optimizer/… and train_state\n";
  }
  return kOk;
}

int Convert(const std::vector<std::string>& operands) {
  const std::string& from = operands[0];
  const std::string& to = operands[1];
  if (FLAGS_params) return ConvertParameters(from, to);
  for (const char* flag : {"as_net", "output", "packed", "prefix", "seed", "widen"}) {
    if (IsGiven(flag)) throw UsageError(StrCat("--", flag, " is of parameters; give --params too"));
  }
  if (HoldsOnlyTensors(from)) {
    throw UsageError(StrCat(from, " holds tensors, and is no message; --params writes them to another kind of file"));
  }
  if (!IsMessageName(to) && !to.ends_with(".cell")) {
    const char* const onnx = to.ends_with(".onnx") ? " (stepnet.onnx.export of Python writes .onnx)" : "";
    throw UsageError(StrCat("cannot tell from \"", to,
                            "\" what to write; it must end in .pb, .pbtxt, .prototxt, .txt or .cell", onnx));
  }
  if (LooksLikeMiniDb(from) && !HoldsBundle(from)) {
    throw Error(
        ErrorCode::kInputOutput,
        StrCat(from,
               " is a minidb of tensors, and holds no net that could be written; `rnn_runner show` lists them, and "
               "--params writes them to another kind of file"));
  }
  const AnyMessage file = ReadAnyMessage(from);
  if (!to.ends_with(".pb")) SayWhatIsLeftOut(*file.message, from, to);
  if (to.ends_with(".cell")) {
    if (file.kind != MessageKind::kCellDef) {
      throw Error(ErrorCode::kInputOutput, StrCat(from, " is a ", MessageKindName(file.kind), ", and no cell"));
    }
    WriteFile(to, PrintShortCell(static_cast<const CellDef&>(*file.message)));
  } else {
    WriteMessage(*file.message, to);
  }
  std::cerr << "wrote " << to << " (" << MessageKindName(file.kind) << ")\n";
  return kOk;
}

}  // namespace

const Command kConvert = {
    .name = "convert",
    .operands = "IN OUT",
    .doc = "writes a file as text, binary or short cell; with --params, parameters of any file to any other",
    .details =
        "IN is a NetDef, a MetaNetDef, a PlanDef, a cell, TensorProtos, a TensorProto or a BlobProto, binary or\n"
        "text whatever its name; of a minidb model, the MetaNetDef is written. OUT appears when it is complete, and is "
        "not IN.\nFields of other versions of the format go from binary to binary; text lacks them, and they are "
        "named.\nWith --params parameters go from any kind of file that gives them to any other: safetensors, .npz,\n"
        "TensorProtos, minidb, and nets that fill them. What IN is its content says, what OUT is its name. Dtypes "
        "stay\n"
        "without --widen; metadata of safetensors is not kept. With --packed one vector in IN becomes tensors with the "
        "names that\n"
        "stepnet.layers of Python gives them, as layer1/reverse/weight_ih, and such tensors the vector `parameters`.",
    .example =
        "rnn_runner convert net.pb net.pbtxt\nrnn_runner convert --params init_net.pb weights.safetensors\n"
        "rnn_runner convert --params --as_net weights.npz init_net.pb\n"
        "rnn_runner convert --params --packed=lstm:2,128,bidirectional mxnet.npz layers.safetensors",
    .flags =
        WithCommonFlags({{.name = "params"},
                         {.name = "as_net"},
                         {.name = "widen"},
                         {.name = "packed", .value = "MODE:L,H,…"},
                         {.name = "prefix",
                          .value = "TEXT",
                          .doc = "with --params, tensors whose names begin so alone, and without it, as encoder.rnn."},
                         {.name = "output", .value = "BLOB,…", .doc = "with --params, those alone", .is_list = true},
                         {.name = "seed", .value = "N"}}),
    .min_operands = 2,
    .max_operands = 2,
    .writes_last_operand = true,
    .run = Convert,
};

}  // namespace stepnet::runner
