#include "stepnet/tools/rnn_runner/weights_flag.h"

#include <gflags/gflags.h>

#include <iostream>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/bfloat16_weights.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/common_flags.h"

DEFINE_string(
    weights, "float32",
    "what weights of products are kept in: float32, as they are, or bf16, rounded to bfloat16 once before the\n"
    "net runs, half as many bytes; the arithmetic is that of float32 (inference on the CPU alone)");

namespace stepnet::runner {
namespace {

// "weights in bfloat16: u, w; 4 MB in place of 8 MB".
std::string StoredText(const BFloat16Weights& weights) {
  std::vector<std::string> names;
  for (const std::string& name : weights.stored) names.push_back(NameText(name));
  const auto bytes = static_cast<double>(weights.bytes);
  return StrCat("weights in bfloat16: ", Join(names, ", "), "; ", Bytes(bytes), " in place of ", Bytes(2 * bytes));
}

}  // namespace

FlagUse WeightsFlag() { return {.name = "weights", .value = "float32|bf16"}; }

bool WantsBFloat16Weights() {
  const std::vector<std::string> names = {"float32", "bf16"};
  if (FLAGS_weights == names[0]) return false;
  if (FLAGS_weights != names[1]) {
    throw UsageError(
        StrCat("no weights \"", FLAGS_weights, "\", must be ", Join(names, " or "), DidYouMean(FLAGS_weights, names)));
  }
  if (const Device device = DeviceNamedByFlags(); !device.IsHost()) {
    throw UsageError(StrCat("--weights=bf16 is of the CPU, and --device=", device, " computes with weights in float32 ",
                            "(--math=tf32 makes its products faster)"));
  }
  return true;
}

void StoreWeights(const NetDef& net, const std::vector<std::string>& parameters, Workspace& workspace,
                  const RunOptions& options) {
  if (!WantsBFloat16Weights()) return;
  if (parameters.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "--weights=bf16 is for parameters, and nothing gives any: what --input and --shape give is as it is, "
                "--init_net gives parameters");
  }
  const BFloat16Weights weights = StoreWeightsInBFloat16(net, parameters, workspace, options);
  std::cerr << PrintableLine(StoredText(weights)) << "\n";
  for (const FloatWeight& weight : weights.kept) {
    std::cerr << PrintableLine(StrCat("weights that stay float: ", NameText(weight.name), ", as ", weight.reason))
              << "\n";
  }
}

std::string AdviceOnWeights(const std::string& flag) {
  if (flag != "weights") return "";
  return "weights in bfloat16 are for inference (run, bench, explain, show, sample), and this computes gradients, in "
         "which weights stay as they are";
}

}  // namespace stepnet::runner
