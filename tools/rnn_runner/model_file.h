// Files that hold nets, whatever kind they are.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stepnet/io/proto_io.h"
#include "stepnet/proto/metanet.pb.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet::runner {

// A message that was read from a file, with its kind.
struct AnyMessage {
  MessageKind kind = MessageKind::kUnknown;
  std::unique_ptr<google::protobuf::Message> message;
};

// Reads `path` as what it is. Gives the MetaNetDef of a minidb model. A file that fits no kind is read as a NetDef, for
// the sake of the message about it. Throws kInputOutput, kOutOfMemory.
AnyMessage ReadAnyMessage(const std::string& path);

// Says on standard error which fields of another version of the format, read from `path`, `target` is printed without.
void SayWhatIsLeftOut(const google::protobuf::Message& message, const std::string& path, const std::string& target);

struct NamedNet {
  std::string name;  // what the net is within its file: "PREDICT_NET_TYPE"; "" where the file is the net
  const NetDef* net;
};

// The nets of a NetDef, MetaNetDef or PlanDef, which must outlive the result. Throws kInputOutput, naming `path`, for
// other messages.
std::vector<NamedNet> NetsOf(const AnyMessage& file, const std::string& path);

// Step nets within the net, at any depth.
int CountStepNets(const NetDef& net);

}  // namespace stepnet::runner
