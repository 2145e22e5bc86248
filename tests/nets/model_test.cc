#include "stepnet/nets/model.h"

#include <set>

#include "stepnet/io/minidb.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/net.h"
#include "stepnet/proto/metanet.pb.h"
#include "stepnet/tests/core/source_path.h"
#include "stepnet/tests/core/temp_dir.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

using Names = std::vector<std::string>;

// y = relu(x + w), on registered operators alone.
constexpr const char* kNet =
    "name: 'predict' op { type: 'Sum' input: ['x', 'w'] output: 's' } op { type: 'Relu' input: 's' output: 'y' } "
    "external_input: ['x', 'w'] external_output: 'y'";
constexpr const char* kInit = "name: 'init' op { type: 'test.Ones' output: 'w' } external_output: 'w'";

const Registration ones = Operator("test.Ones")
                              .Output("y", "float [2]")
                              .Shapes([](const ShapeQuery&) {
                                return std::vector<TensorInfo>{{.dtype = DType::kFloat, .shape = Shape({2})}};
                              })
                              .Cpu([](const OperatorCall&) -> RunFn {
                                return [](const OpRun& run) { std::fill_n(run.Out(0).As<float>(), 2, 1.0f); };
                              });

NetDef NetOf(const std::string& text) {
  NetDef net;
  ParseMessageText(text, "test", &net);
  return net;
}

// As Caffe2's predictor_exporter writes it.
MetaNetDef Bundle() {
  MetaNetDef bundle;
  const auto add_net = [&](const std::string& key, const NetDef& net) {
    NetsMap* entry = bundle.add_nets();
    entry->set_key(key);
    *entry->mutable_value() = net;
  };
  const auto add_blobs = [&](const std::string& key, const Names& names) {
    BlobsMap* entry = bundle.add_blobs();
    entry->set_key(key);
    for (const std::string& name : names) entry->add_value(name);
  };
  add_net("PREDICT_NET_TYPE", NetOf(kNet));
  add_net("GLOBAL_INIT_NET_TYPE", NetOf("name: 'global' op { type: 'Load' input: '!!PREDICTOR_DBREADER' output: 'w' } "
                                        "external_input: '!!PREDICTOR_DBREADER' external_output: 'w'"));
  add_net("PREDICT_INIT_NET_TYPE", NetOf("name: 'predict_init' op { type: 'test.Ones' output: 'x' }"));
  add_blobs("PARAMETERS_BLOB_TYPE", {"w"});
  add_blobs("INPUTS_BLOB_TYPE", {"x"});
  add_blobs("OUTPUTS_BLOB_TYPE", {"y"});
  return bundle;
}

void AddBundle(const MetaNetDef& bundle, MiniDbWriter* writer) {
  BlobProto blob;
  blob.set_name("!!META_NET_DEF");
  blob.set_type("std::string");
  blob.set_content(bundle.SerializeAsString());
  writer->Add("!!META_NET_DEF", blob.SerializeAsString());
}

void AddTensor(const std::string& name, const Tensor& tensor, MiniDbWriter* writer) {
  writer->Add(name + "#%0", TensorToBlob(name, tensor).SerializeAsString());
}

// Runs the model on x = [-4, 3].
std::vector<double> Predict(const Model& model) {
  Workspace workspace;
  model.Initialize(workspace);
  workspace.SetTensor("x", Tensor::Of<float>({2}, {-4, 3}));
  RunNetOnce(model.net, workspace);
  return ToDoubles(workspace.GetTensor("y"));
}

TEST(Model, ReadsAPairOfNets) {
  const TempDir dir;
  for (const char* suffix : {".pb", ".pbtxt"}) {
    WriteMessage(NetOf(kNet), dir.Path(std::string("net") + suffix));
    WriteMessage(NetOf(kInit), dir.Path(std::string("init") + suffix));
    const Model alone = LoadModel(dir.Path(std::string("net") + suffix));
    EXPECT_EQ(alone.inputs, (Names{"x", "w"}));
    EXPECT_EQ(alone.outputs, Names{"y"});
    EXPECT_EQ(alone.init_net.op_size(), 0);
    const Model pair = LoadModel(dir.Path(std::string("net") + suffix), dir.Path(std::string("init") + suffix));
    EXPECT_EQ(pair.inputs, Names{"x"});
    EXPECT_EQ(pair.init_net.name(), "init");
    EXPECT_EQ(Predict(pair), (std::vector<double>{0, 4}));
  }
}

TEST(Model, ReadsParametersFromFilesOfTensors) {
  const TempDir dir;
  WriteMessage(NetOf(kNet), dir.Path("net.pb"));
  const NamedTensors parameters = {{"w", Tensor::Of<float>({2}, {10, 20})}};
  WriteTensors(parameters, dir.Path("w.pb"));
  WriteMiniDb(parameters, dir.Path("w.minidb"));
  WriteTensors(parameters, dir.Path("w.safetensors"));
  WriteTensors(parameters, dir.Path("w.npz"));
  for (const char* file : {"w.pb", "w.minidb", "w.safetensors", "w.npz"}) {
    const Model model = LoadModel(dir.Path("net.pb"), dir.Path(file));
    EXPECT_EQ(model.inputs, Names{"x"});
    EXPECT_EQ(Predict(model), (std::vector<double>{6, 23}));
  }
}

// The names and the values that a file gives.
std::vector<std::pair<std::string, std::vector<double>>> GivenAs(const std::string& path,
                                                                 const NameFilter& wanted = {}) {
  std::vector<std::pair<std::string, std::vector<double>>> given;
  for (const auto& [name, tensor] : ReadParameterTensors(path, wanted)) given.emplace_back(name, ToDoubles(tensor));
  return given;
}

TEST(Model, GivesParametersOfAnyFile) {
  const TempDir dir;
  const Tensor w = Tensor::Of<float>({2}, {10, 20});
  using Given = std::vector<std::pair<std::string, std::vector<double>>>;
  for (const char* file : {"w.pb", "w.pbtxt", "w.minidb", "w.safetensors", "w.npz"}) {
    WriteTensors({{"u", Tensor::Of<double>({}, {3})}, {"w", w}}, dir.Path(file));
    EXPECT_EQ(GivenAs(dir.Path(file)), (Given{{"u", {3}}, {"w", {10, 20}}})) << file;
    EXPECT_EQ(GivenAs(dir.Path(file), [](const std::string& name) { return name == "w"; }), (Given{{"w", {10, 20}}}));
  }
  WriteMessage(NetOf(kInit), dir.Path("init.pb"));
  EXPECT_EQ(GivenAs(dir.Path("init.pb")), (Given{{"w", {1, 1}}}));
  // What a net writes on the way is none.
  WriteMessage(NetOf("op { type: 'test.Ones' output: 'v' } op { type: 'Relu' input: 'v' output: 'w' }"),
               dir.Path("init.pb"));
  EXPECT_EQ(GivenAs(dir.Path("init.pb")), (Given{{"w", {1, 1}}}));
  // A database fills the inputs of its net, too.
  MiniDbWriter writer(dir.Path("model.minidb"));
  AddBundle(Bundle(), &writer);
  AddTensor("w", w, &writer);
  writer.Commit();
  EXPECT_EQ(GivenAs(dir.Path("model.minidb")), (Given{{"w", {10, 20}}}));
  WriteMessage(NetOf(kNet), dir.Path("net.pb"));
  ExpectError([&] { ReadParameterTensors(dir.Path("net.pb")); },
              "invalid argument: " + dir.Path("net.pb") +
                  " is a net that reads \"x\", which nothing fills (is it the model?); parameters are what a file of "
                  "tensors holds, or a net without inputs fills");
}

TEST(Model, ReadsAPredictorDatabase) {
  const TempDir dir;
  MiniDbWriter writer(dir.Path("model.minidb"));
  AddBundle(Bundle(), &writer);
  AddTensor("w", Tensor::Of<float>({2}, {10, 20}), &writer);
  writer.Commit();
  const Model model = LoadModel(dir.Path("model.minidb"));
  EXPECT_EQ(model.inputs, Names{"x"});
  EXPECT_EQ(model.outputs, Names{"y"});
  EXPECT_EQ(model.parameters.size(), 1u);
  // What loads the parameters is done; what fills the inputs stays.
  ASSERT_EQ(model.init_net.op_size(), 1);
  EXPECT_EQ(model.init_net.op(0).type(), "test.Ones");
  EXPECT_EQ(Predict(model), (std::vector<double>{6, 23}));
}

TEST(Model, ReadsABundleWithItsParametersBesideIt) {
  const TempDir dir;
  WriteTensors({{"w", Tensor::Of<float>({2}, {10, 20})}}, dir.Path("w.pb"));
  for (const char* file : {"model.pb", "model.pbtxt"}) {
    WriteMessage(Bundle(), dir.Path(file));
    EXPECT_EQ(Predict(LoadModel(dir.Path(file), dir.Path("w.pb"))), (std::vector<double>{6, 23}));
    ExpectError([&] { LoadModel(dir.Path(file)); },
                "input/output error: the bundle loads \"w\" from the predictor database, which has none; give the "
                "database (minidb) itself, or the parameters as init_net\n  in file " +
                    dir.Path(file));
  }
}

// The parameters of a bundle as a user gives them: tensors, or a net.
std::vector<std::string> WriteGivenParameters(const TempDir& dir) {
  WriteTensors({{"w", Tensor::Of<float>({2}, {10, 20})}}, dir.Path("w.pb"));
  WriteMessage(NetOf("op { type: 'GivenTensorFill' output: 'w' arg { name: 'shape' ints: 2 } "
                     "arg { name: 'values' floats: [10, 20] } }"),
               dir.Path("fill_w.pb"));
  return {dir.Path("w.pb"), dir.Path("fill_w.pb")};
}

TEST(Model, TakesParametersThatAreGivenInPlaceOfItsOwn) {
  const TempDir dir;
  MetaNetDef filling = Bundle();
  *filling.mutable_nets(1)->mutable_value() = NetOf("op { type: 'test.Ones' output: 'w' }");
  WriteMessage(filling, dir.Path("filling.pb"));
  MiniDbWriter writer(dir.Path("model.minidb"));
  AddBundle(Bundle(), &writer);
  AddTensor("w", Tensor::Of<float>({2}, {1, 2}), &writer);
  writer.Commit();
  WriteMessage(Bundle(), dir.Path("loading.pb"));
  for (const std::string& given : WriteGivenParameters(dir)) {
    for (const char* file : {"filling.pb", "model.minidb", "loading.pb"}) {
      EXPECT_EQ(Predict(LoadModel(dir.Path(file), given)), (std::vector<double>{6, 23})) << file << " with " << given;
    }
  }
}

TEST(Model, FillsTheRestFromWhatIsGiven) {
  const TempDir dir;
  MetaNetDef bundle = Bundle();
  *bundle.mutable_nets(1)->mutable_value() = NetOf(
      "op { type: 'test.Ones' output: 'v' } op { type: 'Split' input: 'v' output: 'w' output: 'rest' "
      "arg { name: 'axis' i: 0 } arg { name: 'split' ints: [1, 1] } } op { type: 'Copy' input: 'w' output: 'copy' }");
  WriteMessage(bundle, dir.Path("bundle.pb"));
  for (const std::string& given : WriteGivenParameters(dir)) {
    const Model model = LoadModel(dir.Path("bundle.pb"), given);
    Workspace workspace;
    model.Initialize(workspace);
    for (const char* blob : {"w", "copy"}) {
      const float* const values = workspace.GetTensor(blob).data<float>();
      EXPECT_EQ(std::vector<float>(values, values + 2), (std::vector<float>{10, 20})) << blob << " with " << given;
    }
    EXPECT_EQ(workspace.GetTensor("rest").data<float>()[0], 1);
  }
}

TEST(Model, ListsInputsOfANetThatDeclaresNone) {
  const TempDir dir;
  WriteMessage(NetOf("op { type: 'Sum' input: ['x', 'w'] output: 's' } op { type: 'Sum' input: ['s', 'x'] output: "
                     "'y' }"),
               dir.Path("net.pb"));
  EXPECT_EQ(LoadModel(dir.Path("net.pb")).inputs, (Names{"x", "w"}));
}

TEST(Model, ReadsWhatCaffe2Wrote) {
  const std::string dir = SourcePath("examples/char_lm/");
  const Model model = LoadModel(dir + "net.pb", dir + "init_net.pb");
  EXPECT_EQ(std::set<std::string>(model.inputs.begin(), model.inputs.end()),
            (std::set<std::string>{"input", "seq_lengths", "hidden_init", "cell_init"}));
  EXPECT_GT(model.init_net.op_size(), 0);
}

TEST(Model, SaysWhatIsMissing) {
  const TempDir dir;
  MiniDbWriter blobs(dir.Path("blobs.minidb"));
  AddTensor("w", Tensor::Of<float>({2}, {10, 20}), &blobs);
  blobs.Commit();
  ExpectError([&] { LoadModel(dir.Path("blobs.minidb")); },
              "input/output error: " + dir.Path("blobs.minidb") +
                  " is a minidb without \"!!META_NET_DEF\": it holds blobs and no net");
  MetaNetDef no_net = Bundle();
  no_net.mutable_nets(0)->set_key("TRAIN_NET");
  WriteMessage(no_net, dir.Path("bundle.pb"));
  ExpectError([&] { LoadModel(dir.Path("bundle.pb")); },
              "invalid net: the bundle has no net PREDICT_NET_TYPE; it has TRAIN_NET, GLOBAL_INIT_NET_TYPE, "
              "PREDICT_INIT_NET_TYPE\n  in file " +
                  dir.Path("bundle.pb"));
  WriteTensors({{"w", Tensor::Of<float>({2}, {10, 20})}}, dir.Path("w.pb"));
  ExpectError([&] { LoadModel(dir.Path("w.pb")); },
              "input/output error: " + dir.Path("w.pb") + " does not hold a NetDef, it looks like a TensorProtos");
  MiniDbWriter cut(dir.Path("cut.minidb"));
  AddBundle(Bundle(), &cut);
  cut.Commit();
  const std::string content = dir.Get("cut.minidb");
  dir.Put("cut.minidb", content.substr(0, content.size() - 1));
  ExpectError([&] { LoadModel(dir.Path("cut.minidb")); },
              "…cut.minidb is no minidb or is cut off: the record at byte 0");
}

}  // namespace
}  // namespace stepnet
