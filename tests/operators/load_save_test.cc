#include "op_test.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/gradient.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/core/temp_dir.h"

namespace stepnet {
namespace {

NetDef NetOf(const std::string& text) {
  NetDef net;
  ParseMessageText(text, "test", &net);
  return net;
}

// One operator; DIR in its arguments stands for the folder.
void RunOp(const std::string& op, const TempDir& dir, Workspace& workspace) {
  std::string text = "op { " + op + " }";
  for (size_t at; (at = text.find("DIR")) != std::string::npos;) text.replace(at, 3, dir.path());
  RunNetOnce(NetOf(text), workspace, {.allow_files = dir.path()});
}

std::vector<std::string> Problems(const std::string& op) {
  std::vector<std::string> messages;
  for (const NetProblem& problem : CheckNet(NetOf("op { " + op + " }"))) messages.push_back(problem.message);
  return messages;
}

float First(const Workspace& workspace, const std::string& blob) { return workspace.GetTensor(blob).data<float>()[0]; }

void Fill(Workspace& workspace) {
  workspace.SetTensor("net/w", Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6}));
  workspace.SetTensor("net/b", Tensor::Of<float>({1}, {7}));
  workspace.SetTensor("ids", Tensor::Of<std::int64_t>({1}, {8}));
}

constexpr const char* kSave =
    "type: 'Save' input: ['net/w', 'net/b', 'ids'] arg { name: 'db' s: 'DIR/db' } arg { name: 'db_type' s: 'minidb' } ";

TEST(LoadSave, KeepsBlobsInEitherFormat) {
  for (const std::string type : {"minidb", "MiniDB", "tensor_protos", "protodb", "ProtoDB"}) {
    const TempDir dir;
    Workspace from;
    Fill(from);
    RunOp("type: 'Save' input: ['net/w', 'net/b', 'ids'] arg { name: 'db' s: 'DIR/db' } arg { name: 'db_type' s: '" +
              type + "' } arg { name: 'absolute_path' i: 1 }",
          dir, from);
    EXPECT_EQ(DetectKind(dir.Path("db")) == MessageKind::kMiniDb, type == "minidb" || type == "MiniDB");
    EXPECT_EQ(dir.Names().size(), 1u);
    Workspace to;
    RunOp("type: 'Load' output: ['ids', 'net/w'] arg { name: 'db' s: 'DIR/db' } arg { name: 'db_type' s: '" + type +
              "' } arg { name: 'keep_device' i: 1 }",
          dir, to);
    EXPECT_EQ(ToDoubles(to.GetTensor("net/w")), ToDoubles(from.GetTensor("net/w")));
    EXPECT_EQ(to.GetTensor("ids").Description(), "int64 [1]");
    EXPECT_FALSE(to.HasBlob("net/b"));
  }
}

TEST(LoadSave, LoadsWhatOtherProgramsWrite) {
  const TempDir dir;
  Workspace from;
  Fill(from);
  for (const char* file : {"w.safetensors", "w.npz"}) {
    WriteTensors({{"net/w", from.GetTensor("net/w")}, {"ids", from.GetTensor("ids")}}, dir.Path(file));
    Workspace to;
    RunOp(std::string("type: 'Load' output: ['ids', 'net/w'] arg { name: 'db' s: 'DIR/") + file + "' }", dir, to);
    EXPECT_EQ(ToDoubles(to.GetTensor("net/w")), ToDoubles(from.GetTensor("net/w")));
    EXPECT_EQ(to.GetTensor("ids").Description(), "int64 [1]");
  }
}

TEST(LoadSave, DealsWithPrefixes) {
  const TempDir dir;
  Workspace workspace;
  Fill(workspace);
  RunOp(std::string(kSave) + "arg { name: 'strip_prefix' s: 'net/' }", dir, workspace);
  EXPECT_EQ(ReadTensors(dir.Path("db"))[0].first, "w");
  EXPECT_EQ(ReadTensors(dir.Path("db"))[2].first, "ids");
  RunOp(
      "type: 'Load' output: ['new_w'] arg { name: 'db' s: 'DIR/db' } arg { name: 'db_type' s: 'minidb' } "
      "arg { name: 'add_prefix' s: 'new_' }",
      dir, workspace);
  EXPECT_EQ(First(workspace, "new_w"), 1);
  RunOp(kSave, dir, workspace);
  RunOp(
      "type: 'Load' output: ['x_b'] arg { name: 'db' s: 'DIR/db' } arg { name: 'db_type' s: 'minidb' } "
      "arg { name: 'strip_prefix' s: 'et/' } arg { name: 'add_prefix' s: 'x_' }",
      dir, workspace);
  EXPECT_EQ(First(workspace, "x_b"), 7);
}

TEST(LoadSave, RenamesBlobs) {
  const TempDir dir;
  Workspace workspace;
  Fill(workspace);
  RunOp(std::string(kSave) + "arg { name: 'blob_name_overrides' strings: ['a', 'b', 'c'] }", dir, workspace);
  RunOp(
      "type: 'Load' output: ['p', 'q'] arg { name: 'db' s: 'DIR/db' } arg { name: 'db_type' s: 'minidb' } "
      "arg { name: 'source_blob_names' strings: ['b', 'a'] }",
      dir, workspace);
  EXPECT_EQ(First(workspace, "p"), 7);
  EXPECT_EQ(First(workspace, "q"), 1);
}

TEST(LoadSave, LoadsEverythingFromSeveralFiles) {
  const TempDir dir;
  Workspace from;
  Fill(from);
  RunOp("type: 'Save' input: 'net/w' arg { name: 'db' s: 'DIR/1' } arg { name: 'db_type' s: 'minidb' }", dir, from);
  RunOp("type: 'Save' input: 'ids' arg { name: 'db' s: 'DIR/2' } arg { name: 'db_type' s: 'tensor_protos' }", dir,
        from);
  Workspace to;
  const std::string load =
      "type: 'Load' arg { name: 'dbs' strings: ['DIR/1', 'DIR/2'] } arg { name: 'db_type' s: "
      "'minidb' } ";
  RunOp(load + "arg { name: 'load_all' i: 1 }", dir, to);
  EXPECT_EQ(to.LocalBlobs(), (std::vector<std::string>{"ids", "net/w"}));
  RunOp("type: 'Save' input: 'net/w' arg { name: 'db' s: 'DIR/2' } arg { name: 'db_type' s: 'minidb' }", dir, from);
  ExpectError([&] { RunOp(load + "arg { name: 'load_all' i: 1 }", dir, to); },
              "…input/output error: \"net/w\" is found twice in " + dir.Path("1") + ", " + dir.Path("2") +
                  ", once as \"net/w\"");
}

TEST(LoadSave, PutsChunksTogether) {
  const TempDir dir;
  Workspace workspace;
  Fill(workspace);
  RunOp(std::string(kSave) + "arg { name: 'chunk_size' i: 2 }", dir, workspace);
  EXPECT_NE(dir.Get("db").find("net/w#%2"), std::string::npos);
  workspace.GetBlob("net/w").Reset();
  RunOp("type: 'Load' output: 'net/w' arg { name: 'db' s: 'DIR/db' } arg { name: 'db_type' s: 'minidb' }", dir,
        workspace);
  EXPECT_EQ(ToDoubles(workspace.GetTensor("net/w")), (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

TEST(LoadSave, MissingBlobsAreAnErrorThatChangesNothing) {
  const TempDir dir;
  Workspace from;
  Fill(from);
  RunOp(kSave, dir, from);
  Workspace to;
  to.SetTensor("net/w", Tensor::Of<float>({1}, {9}));
  const std::string load =
      "type: 'Load' output: ['net/w', 'net/c'] arg { name: 'db' s: 'DIR/db' } arg { name: 'db_type' s: 'minidb' } ";
  ExpectError([&] { RunOp(load, dir, to); },
              "input/output error: " + dir.Path("db") +
                  " has no blob \"net/c\"; did you mean \"net/b\"?\n  at op 0 `net/w, net/c = Load()`");
  EXPECT_EQ(First(to, "net/w"), 9);
  RunOp(load + "arg { name: 'allow_incomplete' i: 1 }", dir, to);
  EXPECT_EQ(First(to, "net/w"), 1);
  EXPECT_FALSE(to.GetBlob("net/c").HasTensor());
  ExpectError(
      [&] {
        RunOp("type: 'Load' output: ['a', 'b'] arg { name: 'db' s: 'DIR/db' } arg { name: 'db_type' s: 'minidb' }", dir,
              to);
      },
      "…has no blobs \"a\", \"b\"");
}

TEST(LoadSave, AFailedSaveLeavesTheOldFile) {
  const TempDir dir;
  dir.Put("db", "old");
  Workspace workspace;
  Fill(workspace);
  workspace.GetBlob("ids").Reset();
  ExpectError([&] { RunOp(kSave, dir, workspace); }, "…type mismatch: blob \"ids\" holds nothing, a tensor is needed");
  EXPECT_EQ(dir.Get("db"), "old");
  EXPECT_EQ(dir.Names().size(), 1u);
}

TEST(LoadSave, RefusesWhatMakesNoSense) {
  using Messages = std::vector<std::string>;
  const std::string db = "arg { name: 'db' s: 'f' } arg { name: 'db_type' s: 'minidb' } ";
  EXPECT_EQ(Problems("type: 'Load' output: 'x' arg { name: 'db' s: 'f' } arg { name: 'db_type' s: 'leveldb' }"),
            Messages{"db_type is \"leveldb\"; minidb and tensor_protos are supported (Caffe2's convert_db makes a "
                     "minidb of other databases)"});
  EXPECT_EQ(Problems("type: 'Load' output: 'x'"), Messages{"db holds an empty name"});
  EXPECT_EQ(Problems("type: 'Load' output: 'x' arg { name: 'dbs' strings: ['f', 'f'] } arg { name: 'db_type' s: "
                     "'minidb' }"),
            Messages{"dbs holds \"f\" twice"});
  EXPECT_EQ(Problems("type: 'Load' output: 'x' arg { name: 'source_blob_names' strings: ['a', 'a'] } " + db),
            (Messages{"source_blob_names holds \"a\" twice",
                      "source_blob_names has 2 names, the operator has 1 "
                      "outputs"}));
  EXPECT_EQ(Problems("type: 'Load' output: 'x' arg { name: 'source_blob_names' strings: 'a' } arg { name: "
                     "'strip_prefix' s: 'p' } arg { name: 'load_all' i: 1 } " +
                     db),
            (Messages{"source_blob_names and strip_prefix exclude each other",
                      "source_blob_names and load_all exclude each other"}));
  EXPECT_EQ(Problems("type: 'Save' input: 'x' arg { name: 'db_type' s: 'lmdb' }"),
            (Messages{"db_type is \"lmdb\"; minidb and tensor_protos are supported (Caffe2's convert_db makes a minidb "
                      "of other databases)",
                      "db is empty; it must be the path of the file"}));
  EXPECT_EQ(Problems("type: 'Save' input: ['x', 'y'] arg { name: 'blob_name_overrides' strings: 'a' } arg { name: "
                     "'strip_prefix' s: 'p' } " +
                     db),
            (Messages{"blob_name_overrides has 1 names, the operator has 2 inputs",
                      "blob_name_overrides and strip_prefix exclude each other"}));
  EXPECT_EQ(Problems("type: 'Save' input: ['a/x', 'b/x'] arg { name: 'strip_prefix' s: '/' } " + db),
            Messages{"what is saved holds \"x\" twice"});
  EXPECT_EQ(Problems("type: 'Save' " + db), Messages{"Save takes at least 1 input, has 0"});
}

TEST(LoadSave, GradientsStopHere) {
  const NetDef net = NetOf("op { type: 'Load' output: 'x' }");
  EXPECT_TRUE(MakeGradient(net.op(0), {{.dense = "x_grad"}}).ops.empty());
}

TEST(LoadSave, OpenNoFilesUnlessTheyMay) {
  const TempDir dir;
  Workspace workspace;
  Fill(workspace);
  const std::string save = "op { type: 'Save' input: 'ids' arg { name: 'db' s: '" + dir.Path("db") +
                           "' } arg { name: 'db_type' s: 'minidb' } }";
  ExpectError([&] { RunNetOnce(NetOf(save), workspace); },
              "input/output error: Save may not open \"" + dir.Path("db") +
                  "\": operators open files under `rnn_runner run --allow_files=DIR` alone, inside DIR\n"
                  "  at op 0 `Save(ids)`");
  EXPECT_TRUE(dir.Names().empty());
  for (const std::string type : {"Load", "DBExists"}) {
    const std::string argument = type == "Load" ? "db" : "db_name";
    const std::string op = "op { type: '" + type + "' output: 'y' arg { name: '" + argument +
                           "' s: '/etc/passwd' } arg { name: 'db_type' s: 'minidb' } }";
    EXPECT_TRUE(CheckNet(NetOf(op)).empty());
    ExpectError([&] { RunNetOnce(NetOf(op), workspace, {.allow_files = dir.path()}); },
                "…" + type + " may not open \"/etc/passwd\": it lies outside of " + dir.path() +
                    ", the folder of --allow_files");
  }
}

TEST(DBExists, TellsWhetherAFileIsThere) {
  const TempDir dir;
  Workspace workspace;
  const std::string op =
      "type: 'DBExists' output: 'y' arg { name: 'db_name' s: 'DIR/db' } arg { name: 'db_type' s: "
      "'minidb' }";
  RunOp(op, dir, workspace);
  EXPECT_EQ(workspace.GetTensor("y").Description(), "bool []");
  EXPECT_FALSE(*workspace.GetTensor("y").data<bool>());
  dir.Put("db", "");
  RunOp(op, dir, workspace);
  EXPECT_TRUE(*workspace.GetTensor("y").data<bool>());
}

}  // namespace
}  // namespace stepnet
