#include "stepnet/nets/completion.h"

#include <google/protobuf/arena.h>

#include "stepnet/core/registered_list.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

RegisteredList<Completion>& Completions() {
  static RegisteredList<Completion> completions;
  return completions;
}

}  // namespace

CompletionRegistration::CompletionRegistration(Completion completion) { Completions().Add(std::move(completion)); }

std::shared_ptr<const NetDef> Completed(const NetDef& net) {
  // A net with its step nets has thousands of messages, which an arena gives back all at once.
  const auto arena = std::make_shared<google::protobuf::Arena>();
  auto* const result = google::protobuf::Arena::CreateMessage<NetDef>(arena.get());
  result->CopyFrom(net);
  for (const Completion& completion : Completions().Items()) completion(result);
  return {arena, result};
}

}  // namespace stepnet
