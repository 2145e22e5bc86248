// Blobs get other names in a whole net: rule G16 of docs/caffe2_compatibility.md.
#include "stepnet/nets/rename.h"

#include <map>

#include "stepnet/tests/executor/lstm_case.h"

namespace stepnet {
namespace {

TEST(Rename, G16ReachesEveryReference) {
  RecurrentCase net = LstmCase(true);
  AddString(&net.gradient(), "h_grad.rename", "__m0");
  NetDef def = net.Build();
  AddString(def.mutable_op(0), "timestep", "timestep");
  AddString(def.mutable_op(1), "timestep", "timestep");
  std::map<std::string, std::string> names;
  for (const char* blob : {"x", "h", "h_prev", "gates", "timestep", "w_grad", "h_grad", "__m0", "h_all", "lengths"}) {
    names[blob] = std::string("copy/") + blob;
  }
  const std::string before = def.ShortDebugString();
  RenameBlobs(names, &def);
  const std::string text = def.ShortDebugString();
  for (const auto& [old_name, new_name] : names) {
    if (old_name != "timestep") {  // which is the name of an argument too
      EXPECT_EQ(text.find("\"" + old_name + "\""), std::string::npos) << old_name;
    }
    EXPECT_NE(text.find("\"" + new_name + "\""), std::string::npos) << new_name;
  }
  EXPECT_NE(text.find("\"copy/h_grad.rename\""), std::string::npos);
  std::map<std::string, std::string> back;
  for (const auto& [old_name, new_name] : names) back[new_name] = old_name;
  RenameBlobs(back, &def);
  EXPECT_EQ(def.ShortDebugString(), before);
}

TEST(Rename, G16ARenamedNetGivesTheSameValues) {
  RecurrentCase net = LstmCase(true);
  FeedLstm(net, 5, 2, 8);
  NetDef def = net.Build();
  RenameBlobs({{"h", "copy/h"}, {"h_grad", "copy/h_grad"}, {"gates", "g"}, {"w_grad", "dw"}, {"timestep", "t"}}, &def);
  net.Run();
  RunNetOnce(def, net.workspace());
  ExpectSame(net.Get("dw"), net.Get("w_grad"), "w_grad");
}

TEST(Rename, RefusesToMergeTwoBlobs) {
  NetDef def = LstmCase(false).Build();
  ExpectError(
      [&] {
        RenameBlobs({{"h", "c"}}, &def);
      },
      "invalid net: cannot rename \"h\" to \"c\": another blob has that name\n  in net \"case\"");
}

}  // namespace
}  // namespace stepnet
