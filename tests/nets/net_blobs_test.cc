#include "stepnet/nets/net_blobs.h"

#include "../executor/recurrent_case.h"
#include "../operators/op_test.h"

namespace stepnet {
namespace {

TEST(NetBlobs, ListsWhatANetReadsFirst) {
  NetDef net;
  for (const char* op : {"a = Mul(x, b)", "b = Tanh(a)", "x = Copy(c)"}) *net.add_op() = ParseOp(op);
  EXPECT_EQ(BlobsReadFirst(net), (std::vector<std::string>{"b", "c", "x"}));
}

}  // namespace
}  // namespace stepnet
