#include "stepnet/tools/rnn_runner/parameter_file.h"

#include <algorithm>
#include <cmath>

#include "stepnet/cells/cell.h"
#include "stepnet/core/error.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/memory_for.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/minidb.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/model.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/nets/side_effects.h"
#include "stepnet/nets/training_net.h"
#include "stepnet/tools/rnn_runner/common_flags.h"

namespace stepnet::runner {
namespace {

template <typename T>
void AddInts(const Tensor& tensor, Argument* values) {
  values->mutable_ints()->Add(tensor.data<T>(), tensor.data<T>() + tensor.size());
}

void AddDoubles(const std::string& name, const Tensor& tensor, Argument* values) {
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    const double value = tensor.data<double>()[i];
    values->add_floats(static_cast<float>(value));
    if (std::isnan(value) || values->floats(static_cast<int>(i)) == value) continue;
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("\"", name, "\" is ", tensor.Description(), ", and its element ", i,
                       " is no float, as which nets hold numbers; a file of tensors holds it as it is"));
  }
}

void AddValues(const std::string& name, const Tensor& tensor, Argument* values) {
  switch (tensor.dtype()) {
    case DType::kFloat:
    case DType::kFloat16:
    case DType::kBFloat16: {
      const Tensor floats = WithMemoryFor("a copy in float of the tensor", name, [&] { return Widened(tensor); });
      values->mutable_floats()->Add(floats.data<float>(), floats.data<float>() + floats.size());
      return;
    }
    case DType::kDouble: return AddDoubles(name, tensor, values);
    case DType::kInt8: return AddInts<std::int8_t>(tensor, values);
    case DType::kInt16: return AddInts<std::int16_t>(tensor, values);
    case DType::kInt32: return AddInts<std::int32_t>(tensor, values);
    case DType::kInt64: return AddInts<std::int64_t>(tensor, values);
    case DType::kUInt8: return AddInts<std::uint8_t>(tensor, values);
    case DType::kUInt16: return AddInts<std::uint16_t>(tensor, values);
    case DType::kBool: return AddInts<bool>(tensor, values);
    case DType::kString:
      values->mutable_strings()->Add(tensor.data<std::string>(), tensor.data<std::string>() + tensor.size());
      return;
  }
}

// The operator of Caffe2 that fills such a tensor; "" where it has none of its own.
std::string FillOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat: return "GivenTensorFill";
    case DType::kDouble: return "GivenTensorDoubleFill";
    case DType::kInt32: return "GivenTensorIntFill";
    case DType::kInt64: return "GivenTensorInt64Fill";
    case DType::kBool: return "GivenTensorBoolFill";
    case DType::kString: return "GivenTensorStringFill";
    default: return "";
  }
}

void RefuseIdleSeed(const std::string& path) {
  if (HoldsOnlyTensors(path))
    throw UsageError(StrCat("--seed has no meaning: ", path, " holds tensors, which are not drawn"));
  const bool is_bundle = LooksLikeMiniDb(path) ? HoldsBundle(path) : DetectKind(path) == MessageKind::kMetaNetDef;
  const Model model = is_bundle ? LoadModel(path) : LoadParameters(path);
  if (DrawsRandomNumbers(model.init_net)) return;
  throw UsageError(StrCat("--seed has no meaning: nothing that fills parameters in ", path, " draws random numbers"));
}

}  // namespace

NamedTensors ReadParameterFile(const std::string& path, const std::vector<std::string>& names) {
  std::vector<std::string> given;
  const auto is_wanted = [&](const std::string& name) {
    given.push_back(name);
    return names.empty() || std::ranges::find(names, name) != names.end();
  };
  if (!HoldsOnlyTensors(path) && !LooksLikeMiniDb(path) && IsCell(ReadFile(path), path)) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(path, " is a cell; `rnn_runner expand --init` writes the net that fills its parameters"));
  }
  if (IsGiven("seed")) RefuseIdleSeed(path);
  NamedTensors tensors = ReadParameterTensors(path, is_wanted, RunOptionsFromFlags());
  std::ranges::sort(given);  // the filter may be asked twice
  given.erase(std::unique(given.begin(), given.end()), given.end());
  for (const std::string& name : names) {
    if (std::ranges::find(given, name) != given.end()) continue;
    if (IsOfTrainingAlone(name) && IsCheckpoint(path)) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("\"", name, "\" is of the training that goes on from ", path,
                         " alone; what a checkpoint gives is ", "parameters and states: ", Join(given, ", ")));
    }
    throw Error(ErrorCode::kInvalidArgument, StrCat(path, " gives no \"", name, "\"", DidYouMean(name, given)));
  }
  if (tensors.empty()) throw Error(ErrorCode::kInvalidArgument, StrCat(path, " gives no parameters"));
  return tensors;
}

NetDef NetThatFills(const NamedTensors& tensors) {
  NetDef net;
  net.set_name("parameters");
  for (const auto& [name, anywhere] : tensors) {
    const Tensor tensor = anywhere.To({});
    const std::string fill = FillOf(tensor.dtype());
    OpBuilder op = AddOp(&net, fill.empty() ? "GivenTensorFill" : fill, {}, {name});
    op.Ints("shape", tensor.shape().ToVector());
    if (fill.empty()) op.Int("dtype", NumberFromDType(tensor.dtype()));
    Argument* const values = net.mutable_op()->rbegin()->add_arg();
    values->set_name("values");
    AddValues(name, tensor, values);
    net.add_external_output(name);
  }
  return net;
}

}  // namespace stepnet::runner
