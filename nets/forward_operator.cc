#include "stepnet/nets/forward_operator.h"

#include <algorithm>
#include <utility>

#include "stepnet/nets/net_check.h"
#include "stepnet/nets/requested_gradients.h"

namespace stepnet {
namespace {

bool IsRecordReadBy(const OperatorCall& op, const char* type) {
  const std::vector<std::string>& readers = op.ReadersOf(op.num_outputs() - 1);
  return std::ranges::find(readers, type) != readers.end();
}

}  // namespace

ForwardOperator::ForwardOperator(OperatorCall given)
    : op(std::move(given)),
      spec(WithRequestedGradients(op, RecurrentSpecOf(op))),
      // By name: it is the one operator that looks into a record for blobs, and no property says that of others.
      keeps_all(IsRecordReadBy(op, "RecurrentNetworkBlobFetcher")),
      sources_change(IsRecordReadBy(op, kSourcesChange)) {}

}  // namespace stepnet
