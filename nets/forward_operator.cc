#include "stepnet/nets/forward_operator.h"

#include <algorithm>
#include <utility>

#include "stepnet/nets/requested_gradients.h"

namespace stepnet {
namespace {

// By name: it is the one operator that looks into a record for blobs, and no property says that of others.
bool FetchesBlobs(const OperatorCall& op) {
  const std::vector<std::string>& readers = op.ReadersOf(op.num_outputs() - 1);
  return std::ranges::find(readers, "RecurrentNetworkBlobFetcher") != readers.end();
}

}  // namespace

ForwardOperator::ForwardOperator(OperatorCall given)
    : op(std::move(given)), spec(WithRequestedGradients(op, ParseRecurrentSpec(op))), keeps_all(FetchesBlobs(op)) {}

}  // namespace stepnet
