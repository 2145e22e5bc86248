#include "stepnet/nets/completion.h"

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

NetDef Completed(const NetDef& net) {
  NetDef result = net;
  for (const Completion& completion : Completions().Items()) completion(&result);
  return result;
}

}  // namespace stepnet
