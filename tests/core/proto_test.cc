// The file format against Caffe2's caffe2.proto, metanet.proto, predictor_consts.proto and prof_dag.proto.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/message_differencer.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "source_path.h"
#include "stepnet/io/file.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/proto/metanet.pb.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::util::MessageDifferencer;

// number name [rep|req] type [packed] [=default]
constexpr const char* kFields = R"(
TensorProto
  1 dims rep int64
  2 data_type DataType =FLOAT
  3 float_data rep float packed
  4 int32_data rep int32 packed
  5 byte_data bytes
  6 string_data rep bytes
  7 name string
  8 device_detail DeviceOption
  9 double_data rep double packed
  10 int64_data rep int64 packed
  11 segment Segment
  13 raw_data bytes
  15 data_format uint32 =0
TensorProto.Segment
  1 begin req int64
  2 end req int64
QTensorProto
  1 dims rep int64
  2 precision req int32
  3 scale req double
  4 bias req double
  5 is_signed req bool
  6 data rep int32 packed
  7 name string
  8 data_type DataType =INT32
  9 scales rep double
  10 biases rep double
  11 axis int32
  12 is_multiparam bool =false
TensorProtos
  1 protos rep TensorProto
TensorShape
  1 dims rep int64
  2 data_type DataType =FLOAT
  3 unknown_dims rep int32
  4 unknown_shape bool =false
  5 name string
TensorShapes
  1 shapes rep TensorShape
Argument
  1 name string
  2 f float
  3 i int64
  4 s bytes
  5 floats rep float
  6 ints rep int64
  7 strings rep bytes
  8 n NetDef
  9 nets rep NetDef
  10 t TensorProto
  11 tensors rep TensorProto
  12 qtensors rep QTensorProto
DeviceOption
  1 device_type int32 =0
  2 cuda_gpu_id int32
  3 random_seed uint32
  4 node_name string
  5 numa_node_id int32 =-1
  6 extra_info rep string
OperatorDef
  1 input rep string
  2 output rep string
  3 name string
  4 type string
  5 arg rep Argument
  6 device_option DeviceOption
  7 engine string
  8 control_input rep string
  9 is_gradient_op bool =false
  10 debug_info string
  11 domain string
  12 op_version int64
NetDef
  1 name string
  2 op rep OperatorDef
  3 type string
  4 num_workers int32
  5 device_option DeviceOption
  6 arg rep Argument
  7 external_input rep string
  8 external_output rep string
  9 partition_info rep PartitionInfo
PartitionInfo
  1 name req string
  2 device_id rep int32
  3 extra_info string
  4 backend_options rep BackendOptions
BackendOptions
  1 backend_name req string
  2 option rep Option
BackendOptions.Option
  1 key string
  2 val string
ExecutionStep
  1 name string
  2 substep rep ExecutionStep
  3 network rep string
  4 num_iter int64
  5 criteria_network string
  6 concurrent_substeps bool
  7 report_net string
  8 report_interval int32
  9 should_stop_blob string
  10 only_once bool
  11 run_every_ms int64
  12 create_workspace bool
  13 num_concurrent_instances int32
PlanDef
  1 name string
  2 network rep NetDef
  3 execution_step rep ExecutionStep
BlobProto
  1 name string
  2 type string
  3 tensor TensorProto
  4 content bytes
  5 qtensor QTensorProto
  6 content_num_chunks int32
  7 content_chunk_id int32
DBReaderProto
  1 name string
  2 source string
  3 db_type string
  4 key string
ModelInfo
  1 project string
  2 modelClass string
  3 version string
  4 predictorType string =SINGLE_PREDICTOR
  5 modelId string
BlobsMap
  1 key req string
  2 value rep string
NetsMap
  1 key req string
  2 value req NetDef
PlansMap
  1 key req string
  2 value req PlanDef
StringMap
  1 key req string
  2 value req string
MetaNetDef
  1 blobs rep BlobsMap
  2 nets rep NetsMap
  3 modelInfo ModelInfo
  4 plans rep PlansMap
  5 applicationSpecificInfo rep StringMap
PredictorConsts
  1 META_NET_DEF string =!!META_NET_DEF
  2 PREDICTOR_DBREADER string =!!PREDICTOR_DBREADER
  3 PARAMETERS_BLOB_TYPE string =PARAMETERS_BLOB_TYPE
  4 INPUTS_BLOB_TYPE string =INPUTS_BLOB_TYPE
  5 OUTPUTS_BLOB_TYPE string =OUTPUTS_BLOB_TYPE
  6 GLOBAL_INIT_NET_TYPE string =GLOBAL_INIT_NET_TYPE
  7 PREDICT_INIT_NET_TYPE string =PREDICT_INIT_NET_TYPE
  8 PREDICT_NET_TYPE string =PREDICT_NET_TYPE
  9 SINGLE_PREDICTOR string =SINGLE_PREDICTOR
  10 MULTI_PREDICTOR string =MULTI_PREDICTOR
  11 TRAIN_INIT_PLAN_TYPE string =TRAIN_INIT_PLAN_TYPE
  12 TRAIN_PLAN_TYPE string =TRAIN_PLAN_TYPE
ProfDAGProto
  1 name req string
  2 mean req float
  3 stddev req float
ProfDAGProtos
  1 stats rep ProfDAGProto
)";

std::string DefaultOf(const FieldDescriptor& field) {
  if (!field.has_default_value()) return "";
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_ENUM: return field.default_value_enum()->name();
    case FieldDescriptor::CPPTYPE_STRING: return field.default_value_string();
    case FieldDescriptor::CPPTYPE_BOOL: return field.default_value_bool() ? "true" : "false";
    case FieldDescriptor::CPPTYPE_INT32: return StrCat(field.default_value_int32());
    case FieldDescriptor::CPPTYPE_UINT32: return StrCat(field.default_value_uint32());
    default: return "?";
  }
}

std::string TextOf(const FieldDescriptor& field) {
  std::string type = field.type_name();
  if (field.message_type() != nullptr) type = field.message_type()->name();
  if (field.enum_type() != nullptr) type = field.enum_type()->name();
  std::string text = StrCat("  ", field.number(), " ", field.name(), " ");
  if (field.is_repeated()) text += "rep ";
  if (field.is_required()) text += "req ";
  text += type;
  if (field.is_packed()) text += " packed";
  if (field.has_default_value()) text += " =" + DefaultOf(field);
  return text;
}

std::string Bytes(std::initializer_list<int> bytes) { return {bytes.begin(), bytes.end()}; }

TEST(FileFormat, HasCaffe2sFields) {
  const auto& pool = *google::protobuf::DescriptorPool::generated_pool();
  // Both directions: no field is missing or different, and none is there besides those of 1000 and above.
  std::map<std::string, std::string> found;
  std::istringstream lines(kFields);
  std::string line, message;
  std::map<std::string, std::string> expected;
  while (std::getline(lines, line)) {
    if (line.empty()) continue;
    if (line[0] != ' ') {
      message = line;
      const Descriptor* type = pool.FindMessageTypeByName("stepnet." + message);
      ASSERT_NE(type, nullptr) << message;
      for (int i = 0; i < type->field_count(); ++i) {
        if (type->field(i)->number() < 1000) found[message] += TextOf(*type->field(i)) + "\n";
      }
    } else {
      expected[message] += line + "\n";
    }
  }
  EXPECT_EQ(expected.size(), 26u);
  for (const auto& [name, fields] : expected) EXPECT_EQ(found[name], fields) << name;
}

TEST(FileFormat, HasCaffe2sEnums) {
  const std::map<std::string, int> types = {{"UNDEFINED", 0},
                                            {"FLOAT", 1},
                                            {"INT32", 2},
                                            {"BYTE", 3},
                                            {"STRING", 4},
                                            {"BOOL", 5},
                                            {"UINT8", 6},
                                            {"INT8", 7},
                                            {"UINT16", 8},
                                            {"INT16", 9},
                                            {"INT64", 10},
                                            {"FLOAT16", 12},
                                            {"DOUBLE", 13},
                                            {"ZERO_COLLISION_HASH", 14},
                                            {"REBATCHING_BUFFER", 15},
                                            {"BFLOAT16", 1000}};
  std::map<std::string, int> found;
  for (int i = 0; i < TensorProto::DataType_descriptor()->value_count(); ++i) {
    found[TensorProto::DataType_descriptor()->value(i)->name()] =
        TensorProto::DataType_descriptor()->value(i)->number();
  }
  EXPECT_EQ(found, types);
  EXPECT_EQ(CPU, 0);
  EXPECT_EQ(CUDA, 1);
  EXPECT_EQ(MKLDNN, 2);
  EXPECT_EQ(OPENGL, 3);
  EXPECT_EQ(TensorProto::FMT_PROTOBUF, 0);
  EXPECT_EQ(TensorProto::FMT_BFLOAT16, 1);
}

TEST(FileFormat, NumbersOfWithdrawnFieldsStayReserved) {
  EXPECT_TRUE(TensorProto::descriptor()->IsReservedNumber(12));
  EXPECT_TRUE(TensorProto::descriptor()->IsReservedNumber(14));
}

// Caffe2's own encoding, byte by byte.
TEST(FileFormat, HasCaffe2sBytes) {
  OperatorDef op;
  op.add_input("x");
  op.add_output("y");
  op.set_type("FC");
  Argument* argument = op.add_arg();
  argument->set_name("a");
  argument->add_ints(1);
  argument->add_ints(300);
  EXPECT_EQ(op.SerializeAsString(),
            Bytes({0x0a, 1, 'x', 0x12, 1, 'y', 0x22, 2, 'F', 'C', 0x2a, 8, 0x0a, 1, 'a', 0x30, 1, 0x30, 0xac, 0x02}));
  TensorProto tensor;
  tensor.add_dims(2);
  tensor.set_data_type(TensorProto::FLOAT);
  tensor.add_float_data(1);
  tensor.add_float_data(2);
  EXPECT_EQ(tensor.SerializeAsString(), Bytes({0x08, 2, 0x10, 1, 0x1a, 8, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40}));
}

TEST(FileFormat, ReadsPackedAndUnpackedLists) {
  Argument unpacked, packed;
  ParseMessageBytes(Bytes({0x30, 1, 0x30, 0xac, 0x02}), "unpacked", &unpacked);
  ParseMessageBytes(Bytes({0x32, 3, 1, 0xac, 0x02}), "packed", &packed);
  EXPECT_TRUE(MessageDifferencer::Equals(unpacked, packed));
  EXPECT_EQ(packed.ints(1), 300);
  TensorProto floats;
  ParseMessageBytes(Bytes({0x1d, 0, 0, 0x80, 0x3f, 0x1a, 4, 0, 0, 0, 0x40}), "mixed", &floats);
  EXPECT_EQ(floats.float_data_size(), 2);
  EXPECT_EQ(floats.float_data(1), 2);
}

TEST(FileFormat, KeepsFieldsOfLaterVersions) {
  const std::string bytes = Bytes({0x0a, 1, 'n', 0xa0, 0x06, 7});  // field 100 is not ours
  NetDef net;
  ParseMessageBytes(bytes, "net", &net);
  EXPECT_EQ(net.name(), "n");
  EXPECT_EQ(net.SerializeAsString(), bytes);
}

TEST(FileFormat, TextKeepsEveryValue) {
  NetDef net;
  net.set_name("quotes \" and \\ and \n and \xc3\xa9");
  OperatorDef* op = net.add_op();
  for (const float value : {0.1f, 1e-45f, -0.0f, std::numeric_limits<float>::max(), std::nextafter(1.0f, 2.0f),
                            std::numeric_limits<float>::infinity()}) {
    op->add_arg()->set_f(value);
  }
  op->add_arg()->set_i(std::numeric_limits<std::int64_t>::min());
  std::string every_byte;
  for (int i = 0; i < 256; ++i) every_byte.push_back(static_cast<char>(i));
  op->add_arg()->set_s(every_byte);
  op->add_arg()->mutable_t()->add_double_data(0.1 + 1e-17);
  NetDef read;
  ParseMessageText(PrintMessageText(net), "net", &read);
  EXPECT_EQ(read.SerializeAsString(), net.SerializeAsString());
  op->add_arg()->set_f(std::nanf(""));
  ParseMessageText(PrintMessageText(net), "net", &read);
  EXPECT_TRUE(std::isnan(read.op(0).arg(read.op(0).arg_size() - 1).f()));
}

// What Caffe2 wrote: read, written and read again, as bytes and as text, it stays the same.
TEST(FileFormat, KeepsWhatCaffe2Wrote) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("tests/golden"))) {
    const std::string path = entry.path() / "net.pb";
    if (!std::filesystem::exists(path)) continue;
    ++files;
    const std::string bytes = ReadFile(path);
    NetDef net;
    ReadMessage(path, &net);
    EXPECT_GT(net.op_size(), 0) << path;
    EXPECT_EQ(net.SerializeAsString(), bytes) << path;
    NetDef from_text;
    ParseMessageText(PrintMessageText(net), path, &from_text);
    EXPECT_EQ(from_text.SerializeAsString(), bytes) << path;
    EXPECT_TRUE(net.GetReflection()->GetUnknownFields(net).empty()) << path;
  }
  EXPECT_EQ(files, 190);
}

}  // namespace
}  // namespace stepnet
