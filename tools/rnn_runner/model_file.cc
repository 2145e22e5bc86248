#include "stepnet/tools/rnn_runner/model_file.h"

#include <iostream>

#include "stepnet/cells/cell.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/minidb.h"
#include "stepnet/io/unknown_fields.h"
#include "stepnet/nets/model.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/report/net_text.h"
#include "stepnet/report/text.h"

namespace stepnet::runner {
namespace {

std::unique_ptr<google::protobuf::Message> NewMessage(MessageKind kind) {
  switch (kind) {
    case MessageKind::kMetaNetDef: return std::make_unique<MetaNetDef>();
    case MessageKind::kPlanDef: return std::make_unique<PlanDef>();
    case MessageKind::kTensorProtos: return std::make_unique<TensorProtos>();
    case MessageKind::kTensorProto: return std::make_unique<TensorProto>();
    case MessageKind::kBlobProto: return std::make_unique<BlobProto>();
    case MessageKind::kCellDef:
    case MessageKind::kNetDef:
    case MessageKind::kMiniDb:
    case MessageKind::kTrainConfig:
    case MessageKind::kSafetensors:
    case MessageKind::kNpz:
    case MessageKind::kUnknown: break;
  }
  return std::make_unique<NetDef>();
}

void AddNets(const PlanDef& plan, std::vector<NamedNet>* nets) {
  for (const NetDef& net : plan.network()) nets->push_back({.name = net.name(), .net = &net});
}

}  // namespace

AnyMessage ReadAnyMessage(const std::string& path) {
  if (LooksLikeMiniDb(path)) {
    return {.kind = MessageKind::kMetaNetDef, .message = std::make_unique<MetaNetDef>(ReadBundle(path))};
  }
  const std::string content = ReadFile(path);
  if (IsCell(content, path)) {
    return {.kind = MessageKind::kCellDef, .message = std::make_unique<CellDef>(ParseCell(content, path).def)};
  }
  AnyMessage file{.kind = DetectKindOf(content), .message = nullptr};
  if (file.kind == MessageKind::kUnknown) file.kind = MessageKind::kNetDef;
  file.message = NewMessage(file.kind);
  ParseMessage(content, path, file.message.get());
  return file;
}

void SayWhatIsLeftOut(const google::protobuf::Message& message, const std::string& path, const std::string& target) {
  const std::string fields = UnknownFieldsText(message);
  if (fields.empty()) return;
  std::cerr << Printable(StrCat(path, " has fields that this version does not know, and ", target, " lacks: ", fields))
            << "\n";
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
