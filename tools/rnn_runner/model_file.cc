#include "stepnet/tools/rnn_runner/model_file.h"

#include "stepnet/core/error.h"
#include "stepnet/core/minidb.h"
#include "stepnet/core/strings.h"
#include "stepnet/tools/rnn_runner/net_text.h"

namespace stepnet::runner {
namespace {

std::unique_ptr<google::protobuf::Message> NewMessage(MessageKind kind) {
  switch (kind) {
    case MessageKind::kMetaNetDef:
    case MessageKind::kMiniDb: return std::make_unique<MetaNetDef>();
    case MessageKind::kPlanDef: return std::make_unique<PlanDef>();
    case MessageKind::kTensorProtos: return std::make_unique<TensorProtos>();
    case MessageKind::kTensorProto: return std::make_unique<TensorProto>();
    case MessageKind::kBlobProto: return std::make_unique<BlobProto>();
    case MessageKind::kNetDef:
    case MessageKind::kUnknown: break;
  }
  return std::make_unique<NetDef>();
}

// Predictor databases keep the bundle of nets beside the parameters, as a BlobProto or as it is.
void ReadBundle(const std::string& path, MetaNetDef* bundle) {
  MiniDbReader reader(path);
  std::string key;
  std::string value;
  while (reader.Next(&key, &value)) {
    if (key != PredictorConsts::default_instance().meta_net_def()) continue;
    BlobProto blob;
    if (blob.ParseFromString(value) && blob.has_content()) value = blob.content();
    ParseMessageBytes(value, StrCat("\"", key, "\" of ", path), bundle);
    return;
  }
  throw Error(ErrorCode::kInputOutput,
              StrCat(path, " is a minidb without \"", PredictorConsts::default_instance().meta_net_def(), "\""));
}

void AddNets(const PlanDef& plan, std::vector<NamedNet>* nets) {
  for (const NetDef& net : plan.network()) nets->push_back({.name = net.name(), .net = &net});
}

}  // namespace

AnyMessage ReadAnyMessage(const std::string& path) {
  AnyMessage file{.kind = DetectKind(path), .message = nullptr};
  file.message = NewMessage(file.kind);
  if (file.kind == MessageKind::kMiniDb) {
    file.kind = MessageKind::kMetaNetDef;
    ReadBundle(path, static_cast<MetaNetDef*>(file.message.get()));
    return file;
  }
  ReadMessage(path, file.message.get());
  if (file.kind == MessageKind::kUnknown) file.kind = MessageKind::kNetDef;
  return file;
}

std::vector<NamedNet> NetsOf(const AnyMessage& file, const std::string& path) {
  std::vector<NamedNet> nets;
  switch (file.kind) {
    case MessageKind::kNetDef:
      nets.push_back({.name = {}, .net = static_cast<const NetDef*>(file.message.get())});
      break;
    case MessageKind::kPlanDef: AddNets(*static_cast<const PlanDef*>(file.message.get()), &nets); break;
    case MessageKind::kMetaNetDef: {
      const auto& bundle = *static_cast<const MetaNetDef*>(file.message.get());
      for (const NetsMap& item : bundle.nets()) nets.push_back({.name = item.key(), .net = &item.value()});
      for (const PlansMap& item : bundle.plans()) AddNets(item.value(), &nets);
      break;
    }
    default:
      throw Error(ErrorCode::kInputOutput,
                  StrCat(path, " is a ", MessageKindName(file.kind), ", a NetDef, MetaNetDef or PlanDef is needed"));
  }
  return nets;
}

int CountStepNets(const NetDef& net) {
  int count = 0;
  for (const OperatorDef& op : net.op()) {
    for (const Argument& argument : op.arg()) {
      NetDef step_net;
      if (NetOfArgument(argument, &step_net)) count += 1 + CountStepNets(step_net);
    }
  }
  return count;
}

}  // namespace stepnet::runner
