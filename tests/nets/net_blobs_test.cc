#include "stepnet/nets/net_blobs.h"

#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

TEST(NetBlobs, ListsWhatANetReadsFirst) {
  NetDef net;
  for (const char* op : {"a = Mul(x, b)", "b = Tanh(a)", "x = Copy(c)"}) *net.add_op() = ParseOp(op);
  EXPECT_EQ(BlobsReadFirst(net), (std::vector<std::string>{"b", "c", "x"}));
}

TEST(NetBlobs, ListsWhatGoesInAndWhatComesOutInTheirOrder) {
  NetDef net;
  for (const char* op : {"a = Mul(x, b)", "b = Tanh(a)", "x = Copy(c)", "d, a = Split(b)"}) *net.add_op() = ParseOp(op);
  net.add_external_output("as_it_is");
  EXPECT_EQ(ReadFirst(net), (std::vector<std::string>{"x", "b", "c", "as_it_is"}));
  EXPECT_EQ(UnreadBlobs(net), (std::vector<std::string>{"d"}));
  EXPECT_TRUE(ReadFirst(NetDef()).empty());
  EXPECT_TRUE(UnreadBlobs(NetDef()).empty());
}

// What is read otherwise, too, before or behind, and what the net itself has written, is no such blob.
TEST(NetBlobs, ListsWhatIsReadForItsShapeAlone) {
  NetDef net;
  for (const char* op :
       {"a = SumReduceLike(x, shape)", "y = Tanh(x)", "b = SumReduceLike(y, x)", "c = SumReduceLike(later, y)",
        "d = SumReduceLike(y, later)", "e = SumReduceLike(shape_too, a)", "f = SumReduceLike(y, other)"})
    *net.add_op() = ParseOp(op);
  EXPECT_EQ(BlobsReadForShape(net), (std::vector<std::string>{"other", "shape"}));
  EXPECT_TRUE(BlobsReadForShape(NetDef()).empty());
  const std::unordered_map<std::string_view, bool> all = {
      {"x", false}, {"shape", true}, {"later", false}, {"shape_too", false}, {"other", true}};
  EXPECT_EQ(ReadFirstForShape(net), all);
}

TEST(NetBlobs, SaysWhichOperatorsUseABlob) {
  NetDef net;
  for (const char* op : {"a = Mul(x, b)", "b = Tanh(a)", "x = Copy(x)", "a = Add(x, b)"}) *net.add_op() = ParseOp(op);
  const std::map<std::string, BlobUse> uses = UsesOf(net);
  ASSERT_EQ(uses.size(), 3u);
  const BlobUse &a = uses.at("a"), &b = uses.at("b"), &x = uses.at("x");
  EXPECT_EQ((std::vector{a.first_read, a.last_read, a.first_write, a.last_write}), (std::vector{1, 1, 0, 3}));
  EXPECT_EQ((std::vector{b.first_read, b.last_read, b.first_write, b.last_write}), (std::vector{0, 3, 1, 1}));
  EXPECT_EQ((std::vector{x.first_read, x.last_read, x.first_write, x.last_write}), (std::vector{0, 3, 2, 2}));
  EXPECT_FALSE(a.IsReadFirst());
  EXPECT_TRUE(b.IsReadFirst());
  EXPECT_TRUE(x.IsReadFirst());
}

}  // namespace
}  // namespace stepnet
