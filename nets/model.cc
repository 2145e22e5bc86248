// Source: Caffe2's predictor_exporter: a bundle has nets, and lists of blobs, under the keys of PredictorConsts; a
// predictor database has the bundle under the key META_NET_DEF and a parameter under every other key.
#include "stepnet/nets/model.h"

#include <algorithm>
#include <set>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/minidb.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/nets/training_net.h"
#include "stepnet/proto/metanet.pb.h"

namespace stepnet {
namespace {

const PredictorConsts& Keys() { return PredictorConsts::default_instance(); }

const NetDef* FindNet(const MetaNetDef& bundle, const std::string& key) {
  for (const NetsMap& entry : bundle.nets()) {
    if (entry.key() == key) return &entry.value();
  }
  return nullptr;
}

std::vector<std::string> FindBlobs(const MetaNetDef& bundle, const std::string& key) {
  for (const BlobsMap& entry : bundle.blobs()) {
    if (entry.key() == key) return {entry.value().begin(), entry.value().end()};
  }
  return {};
}

// True for the operator by which Caffe2 reads the parameters out of the file that the bundle itself comes from.
bool ReadsThePredictorDatabase(const OperatorDef& op) {
  return op.type() == "Load" && op.input_size() == 1 && op.input(0) == Keys().predictor_dbreader();
}

// Throws kInputOutput unless the model has the parameters that `op` reads out of the predictor database.
void CheckHasParameters(const OperatorDef& op, const std::set<std::string>& given, const Model& model) {
  for (const std::string& parameter : op.output()) {
    if (model.parameters.contains(parameter) || given.contains(parameter)) continue;
    throw Error(ErrorCode::kInputOutput, StrCat("the bundle loads \"", parameter,
                                                "\" from the predictor database, which has none; give the "
                                                "database (minidb) itself, or the parameters as init_net"));
  }
}

// Without what the net would write to blobs of `given`, which are as whoever loads the model gives them: its other
// operators read that.
void AppendInitNet(const NetDef* net, const std::set<std::string>& given, Model* model) {
  if (net == nullptr) return;
  NetDef& all = model->init_net;
  if (all.name().empty()) all.set_name(net->name());
  for (const OperatorDef& op : net->op()) {
    if (ReadsThePredictorDatabase(op)) {
      CheckHasParameters(op, given, *model);
      continue;
    }
    std::vector<std::string> kept;
    std::ranges::copy_if(op.output(), std::back_inserter(kept), [&](const auto& blob) { return given.contains(blob); });
    if (!kept.empty() && std::ssize(kept) == op.output_size()) continue;
    for (const std::string& blob : kept) AddOp(&all, "Copy", {blob}, {blob + "_given"});
    *all.add_op() = op;
    for (const std::string& blob : kept) AddOp(&all, "Copy", {blob + "_given"}, {blob});
  }
}

void TakeBundle(const MetaNetDef& bundle, const std::set<std::string>& given, Model* model) {
  const NetDef* net = FindNet(bundle, Keys().predict_net_type());
  if (net == nullptr) {
    std::vector<std::string> keys;
    for (const NetsMap& entry : bundle.nets()) keys.push_back(entry.key());
    throw Error(ErrorCode::kInvalidNet, StrCat("the bundle has no net ", Keys().predict_net_type(), "; it has ",
                                               keys.empty() ? "no nets" : Join(keys, ", ")));
  }
  model->net = *net;
  AppendInitNet(FindNet(bundle, Keys().global_init_net_type()), given, model);
  AppendInitNet(FindNet(bundle, Keys().predict_init_net_type()), given, model);
  model->inputs = FindBlobs(bundle, Keys().inputs_blob_type());
  model->outputs = FindBlobs(bundle, Keys().outputs_blob_type());
}

// What the model has already stays.
void AddParameters(NamedTensors tensors, Model* model) {
  for (auto& [name, tensor] : tensors) model->parameters.emplace(name, std::move(tensor));
}

void TakeInit(const std::string& path, const NameFilter& wanted, Model* model) {
  if (!HoldsOnlyTensors(path) && !LooksLikeMiniDb(path)) {
    const std::string content = ReadFile(path);
    if (content.empty()) {
      throw Error(ErrorCode::kInputOutput,
                  StrCat(path, " is empty; a file of parameters, or a net that fills them, is needed"));
    }
    const MessageKind kind = DetectKindOf(content);
    if (kind != MessageKind::kTensorProtos && kind != MessageKind::kTensorProto && kind != MessageKind::kBlobProto) {
      NetDef net;
      ParseMessage(content, path, &net);
      return AppendInitNet(&net, {}, model);
    }
  }
  AddParameters(ReadTensors(path, wanted), model);
}

// Whether a file is a model with its net, and not what fills parameters alone.
bool IsBundle(const std::string& path) {
  if (HoldsOnlyTensors(path)) return false;
  return LooksLikeMiniDb(path) ? HoldsBundle(path) : DetectKindOf(ReadFile(path)) == MessageKind::kMetaNetDef;
}

void CheckReadsNothing(const Model& model, const std::string& path) {
  for (const std::string& blob : ReadFirst(model.init_net)) {
    if (model.parameters.contains(blob)) continue;
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(path, " is a net that reads \"", blob, "\", which nothing fills (is it the model?); parameters ",
                       "are what a file of tensors holds, or a net without inputs fills"));
  }
}

// What a net reads and neither writes first nor gets from the init net or the parameters.
std::vector<std::string> InputsOf(const Model& model) {
  std::set<std::string> known;
  for (const auto& [name, tensor] : model.parameters) known.insert(name);
  for (const OperatorDef& op : model.init_net.op()) known.insert(op.output().begin(), op.output().end());
  std::vector<std::string> inputs;
  const auto add = [&](const std::string& blob) {
    if (known.insert(blob).second) inputs.push_back(blob);
  };
  std::ranges::for_each(model.net.external_input(), add);
  if (model.net.external_input_size() > 0) return inputs;
  for (const OperatorDef& op : model.net.op()) {  // a net need not list what it reads
    std::ranges::for_each(op.input(), add);
    known.insert(op.output().begin(), op.output().end());
  }
  return inputs;
}

}  // namespace

void Model::Initialize(Workspace& workspace, const RunOptions& options) const {
  for (const auto& [name, tensor] : parameters) workspace.SetTensor(name, tensor);
  if (init_net.op_size() > 0) RunNetOnce(init_net, workspace, options);
}

Model LoadParameters(const std::string& path, const NameFilter& wanted) {
  Model model;
  TakeInit(path, wanted, &model);
  return model;
}

Model LoadModel(const std::string& net_path, const std::string& init_path) {
  // First, so that a bundle finds the parameters that it loads.
  return LoadModel(net_path, init_path.empty() ? Model() : LoadParameters(init_path));
}

Model LoadModel(const std::string& net_path, Model model) {
  const std::vector<std::string> filled = FilledBy(model);
  const std::set<std::string> given(filled.begin(), filled.end());
  try {
    if (LooksLikeMiniDb(net_path)) {
      const MetaNetDef bundle = ReadBundle(net_path);
      AddParameters(ReadTensors(net_path, [](const std::string& name) { return name != Keys().meta_net_def(); }),
                    &model);
      TakeBundle(bundle, given, &model);
    } else {
      const std::string content = ReadFile(net_path);
      if (DetectKindOf(content) == MessageKind::kMetaNetDef) {
        MetaNetDef bundle;
        ParseMessage(content, net_path, &bundle);
        TakeBundle(bundle, given, &model);
      } else {
        ParseMessage(content, net_path, &model.net);
      }
    }
  } catch (Error& error) {
    if (error.message().find(net_path) != std::string::npos || !error.places().empty()) throw;
    throw error.At({.file = net_path});
  }
  if (model.inputs.empty()) model.inputs = InputsOf(model);
  if (model.outputs.empty()) {
    model.outputs.assign(model.net.external_output().begin(), model.net.external_output().end());
  }
  return model;
}

bool HoldsBlob(const std::string& path, const std::string& blob) {
  MiniDbReader reader(path);
  for (std::string key, value; reader.Next(&key, &value);) {
    if (BlobOfKey(key) == blob) return true;
  }
  return false;
}

bool HoldsBundle(const std::string& path) { return HoldsBlob(path, Keys().meta_net_def()); }

MetaNetDef ReadBundle(const std::string& path) {
  MiniDbReader reader(path);
  std::string key, value;
  while (reader.Next(&key, &value)) {
    if (BlobOfKey(key) != Keys().meta_net_def()) continue;
    BlobProto blob;
    ParseMessageBytes(value, StrCat(path, ": the value of \"", key, "\""), &blob);
    MetaNetDef bundle;
    ParseMessage(blob.content(), StrCat(path, ": the content of \"", key, "\""), &bundle);
    return bundle;
  }
  throw Error(ErrorCode::kInputOutput,
              StrCat(path, " is a minidb without \"", Keys().meta_net_def(), "\": it holds blobs and no net"));
}

bool IsCheckpoint(const std::string& path) { return LooksLikeMiniDb(path) && HoldsBlob(path, kTrainStateBlob); }

NamedTensors ReadParameterTensors(const std::string& path, const NameFilter& asked, const RunOptions& options) {
  const NameFilter of_checkpoint = [&](const std::string& name) {
    return !IsOfTrainingAlone(name) && IsWanted(asked, name);
  };
  const NameFilter& wanted = IsCheckpoint(path) ? of_checkpoint : asked;
  NamedTensors tensors;
  const Model model = IsBundle(path) ? LoadModel(path) : LoadParameters(path, wanted);
  CheckReadsNothing(model, path);
  try {
    Workspace workspace;
    model.Initialize(workspace, options);
    for (const std::string& name : NamesGivenBy(model)) {
      const bool is_input = std::ranges::count(model.inputs, name) > 0;  // which a bundle may fill, too
      const Blob& blob = workspace.GetBlob(name);
      if (blob.HasTensor() && !is_input && IsWanted(wanted, name)) tensors.emplace_back(name, blob.GetTensor());
    }
  } catch (...) {
    throw CurrentError().At({.file = path});
  }
  return tensors;
}

std::vector<std::string> NamesGivenBy(const Model& model) {
  std::vector<std::string> names = HeldBy(model);
  const auto& listed = model.init_net.external_output();
  const std::vector<std::string> filled =
      listed.empty() ? UnreadBlobs(model.init_net) : std::vector<std::string>(listed.begin(), listed.end());
  names.insert(names.end(), filled.begin(), filled.end());
  return names;
}

std::vector<std::string> HeldBy(const Model& model) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model.parameters) names.push_back(name);
  return names;
}

std::vector<std::string> FilledBy(const Model& model) {
  std::vector<std::string> names = HeldBy(model);
  for (const OperatorDef& op : model.init_net.op()) names.insert(names.end(), op.output().begin(), op.output().end());
  return names;
}

void SetConstant(const std::vector<std::string>& blobs, const NetDef& net, const Workspace& workspace) {
  std::set<std::string> written_names;
  for (const OperatorDef& op : net.op()) written_names.insert(op.output().begin(), op.output().end());
  std::vector<Tensor> written;
  for (const std::string& name : written_names) {
    const Blob* blob = workspace.FindBlob(name);
    if (blob != nullptr && blob->HasTensor()) written.push_back(blob->GetTensor());
  }
  for (const std::string& name : blobs) {
    const Blob* blob = workspace.FindBlob(name);
    if (blob == nullptr || !blob->HasTensor() || written_names.contains(name)) continue;
    const auto shares = [&](const Tensor& other) { return blob->GetTensor().SharesStorageWith(other); };
    if (std::ranges::none_of(written, shares)) blob->GetTensor().SetConstant();
  }
}

}  // namespace stepnet
