#include "stepnet/nets/completion.h"

#include <mutex>
#include <vector>

#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

struct Completions {
  std::mutex mutex;
  std::vector<Completion> list;
};

Completions& TheCompletions() {
  static Completions completions;
  return completions;
}

}  // namespace

CompletionRegistration::CompletionRegistration(Completion completion) {
  Completions& completions = TheCompletions();
  const std::lock_guard lock(completions.mutex);
  completions.list.push_back(std::move(completion));
}

NetDef Completed(const NetDef& net) {
  NetDef result = net;
  Completions& completions = TheCompletions();
  const std::lock_guard lock(completions.mutex);
  for (const Completion& completion : completions.list) completion(&result);
  return result;
}

}  // namespace stepnet
