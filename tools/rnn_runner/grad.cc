// rnn_runner grad: a net with the operators that compute its gradients.
#include <algorithm>
#include <iostream>
#include <set>

#include "stepnet/core/error.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/tools/rnn_runner/cell_file.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/gradients.h"
#include "stepnet/tools/rnn_runner/model_file.h"

DEFINE_string(of, "", "blobs to differentiate by; without the flag, all that the net reads");
DEFINE_string(
    gradient_requests, "",
    "what becomes of gradients by these blobs: `write`, as of all others; `add`, to what x_grad holds before\n"
    "the run, which must be something; `none`: nothing is computed or kept for it");
DECLARE_string(loss);

namespace stepnet::runner {
namespace {

// Throws kInvalidArgument for a name in --of that is no blob of the net, or one that it computes.
void CheckBlobs(const NetDef& net, const std::vector<std::string>& names) {
  std::set<std::string> blobs;
  for (const OperatorDef& op : net.op()) {
    blobs.insert(op.input().begin(), op.input().end());
    blobs.insert(op.output().begin(), op.output().end());
  }
  const std::vector<std::string> read = ReadFirst(net);
  for (const std::string& name : names) {
    if (!blobs.contains(name)) {
      throw Error(ErrorCode::kInvalidArgument, StrCat("--of names \"", name, "\", which is no blob of the net",
                                                      DidYouMean(name, {blobs.begin(), blobs.end()})));
    }
    if (std::ranges::find(read, name) != read.end()) continue;
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("--of names \"", name,
                       "\", which the net computes; gradients are by what it is given: ", Join(read, ", ")));
  }
}

// Throws UsageError for an item that is no BLOB=REQUEST, for a request that there is not, and for a blob that comes
// twice.
GradientRequests RequestsFromFlag() {
  GradientRequests requests;
  for (const std::string& item : SplitList(FLAGS_gradient_requests)) {
    const size_t equals = item.rfind('=');
    if (equals == std::string::npos || equals == 0) {
      throw UsageError(StrCat("--gradient_requests has \"", item, "\"; it takes BLOB=write, BLOB=add and BLOB=none"));
    }
    const std::string blob = item.substr(0, equals);
    GradientRequest request = GradientRequest::kWrite;
    try {
      request = ParseGradientRequest(item.substr(equals + 1), StrCat("--gradient_requests says for \"", blob, "\""));
    } catch (const Error& error) {
      throw UsageError(error.message());
    }
    if (!requests.emplace(blob, request).second) {
      throw UsageError(StrCat("--gradient_requests names \"", blob, "\" twice"));
    }
  }
  return requests;
}

// Throws kInvalidArgument for a name in --of by which there is no gradient.
void CheckMade(const NetWithGradients& made, const std::vector<std::string>& names,
               const std::vector<std::string>& losses) {
  for (const std::string& name : names) {
    const auto found = made.gradients.find(name);
    if (found != made.gradients.end() && !(found->second.dense.empty() && found->second.values.empty())) continue;
    throw Error(
        ErrorCode::kInvalidArgument,
        StrCat("--of names \"", name, "\", of which the loss is no differentiable function: ", Join(losses, " + ")));
  }
}

// Those of which a loss can be.
std::vector<std::string> FloatOutputs(const CellNet& cell) {
  std::vector<std::string> outputs;
  for (size_t k = 0; k < cell.outputs.size(); ++k) {
    if (IsFloating(cell.output_dtypes[k])) outputs.push_back(cell.outputs[k]);
  }
  return outputs;
}

int Grad(const std::vector<std::string>& operands) {
  const std::string& path = operands.front();
  const std::optional<CellNet> cell = ExpandCellFile(path);
  NetDef net = cell ? cell->net : LoadModel(path).net;
  std::vector<std::string> losses = SplitNames("loss", FLAGS_loss);
  if (losses.empty() && cell) losses = FloatOutputs(*cell);
  if (losses.empty()) losses.assign(net.external_output().begin(), net.external_output().end());
  if (losses.empty()) losses = UnreadBlobs(net);
  std::vector<std::string> inputs = SplitList(FLAGS_of);
  if (inputs.empty()) inputs = ReadFirst(net);
  const GradientRequests requests = RequestsFromFlag();
  NetWithGradients made;
  try {
    CheckBlobs(net, inputs);
    if (!FLAGS_loss.empty()) CheckLosses(net, losses);
    made = WithGradients(std::move(net), losses, inputs, requests);
    if (!FLAGS_of.empty()) CheckMade(made, AskedFor(inputs, requests), losses);
  } catch (...) {
    throw CurrentError().At({.file = path});
  }
  SayWhatIsLeftOut(made.net, path, "the text");
  std::cout << PrintMessageText(made.net);
  return kOk;
}

}  // namespace

const Command kGrad = {
    .name = "grad",
    .operands = "F",
    .doc = "prints a net with the operators that compute its gradients",
    .details =
        "F is a net or a cell. RecurrentNetwork operators get backward step nets. The gradient of the loss, the sum\n"
        "of the elements of all its blobs, by x is called x_grad; gradients are added to the net's outputs. Of a cell\n"
        "with dropout or zoneout these are gradients of what `run` computes; with --training, here and there, of what\n"
        "is trained.",
    .example =
        "rnn_runner grad examples/cells/lstm.cell --loss=h > gradients.prototxt\n"
        "rnn_runner grad examples/cells/lstm.cell --loss=h --gradient_requests=w=add,x=none > gradients.prototxt",
    .flags = WithCommonFlags({CellSizeFlag(),
                              CellOptionFlag(),
                              CellTrainingFlag(),
                              CellDTypeFlag(),
                              {.name = "loss",
                               .value = "BLOB,…",
                               .doc = "blobs; default: the net's outputs, of a cell those that are float",
                               .is_list = true},
                              {.name = "of", .value = "BLOB,…", .is_list = true},
                              {.name = "gradient_requests", .value = "BLOB=write|add|none,…", .is_list = true}}),
    .min_operands = 1,
    .max_operands = 1,
    .unknown_flag = AdviceOnOptions,
    .run = Grad,
};

}  // namespace stepnet::runner
