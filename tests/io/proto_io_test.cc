#include "stepnet/io/proto_io.h"

#include <google/protobuf/util/message_differencer.h>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/tensor.h"
#include "stepnet/io/wire_scan.h"
#include "stepnet/proto/metanet.pb.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/core/limited_memory.h"
#include "stepnet/tests/core/source_path.h"
#include "stepnet/tests/core/temp_dir.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

using google::protobuf::Message;
using google::protobuf::util::MessageDifferencer;

NetDef SmallNet() {
  NetDef net;
  net.set_name("small");
  OperatorDef* op = net.add_op();
  op->set_type("Relu");
  op->add_input("x");
  op->add_output("y");
  net.add_external_input("x");
  return net;
}

NetDef Read(const std::string& path) {
  NetDef net;
  ReadMessage(path, &net);
  return net;
}

// A net in an argument of an operator of a net, `depth` nets deep.
NetDef Nested(int depth) {
  NetDef net = SmallNet();
  for (int i = 1; i < depth; ++i) {
    NetDef outer = SmallNet();
    *outer.mutable_op(0)->add_arg()->mutable_n() = net;
    net = std::move(outer);
  }
  return net;
}

TEST(ProtoIo, WritesAndReadsBothFormats) {
  const TempDir dir;
  const NetDef net = SmallNet();
  for (const char* name : {"net.pb", "net.pbtxt", "net.prototxt", "net.txt", "net"}) {
    WriteMessage(net, dir.Path(name));
    EXPECT_TRUE(MessageDifferencer::Equals(net, Read(dir.Path(name)))) << name;
  }
  EXPECT_EQ(dir.Get("net.pb"), net.SerializeAsString());
  EXPECT_EQ(dir.Get("net.pbtxt"),
            "name: \"small\"\nop {\n  input: \"x\"\n  output: \"y\"\n  type: \"Relu\"\n}\nexternal_input: \"x\"\n");
}

TEST(ProtoIo, ContentDecidesNotTheName) {
  const TempDir dir;
  const NetDef net = SmallNet();
  EXPECT_TRUE(MessageDifferencer::Equals(net, Read(dir.Put("text.pb", PrintMessageText(net)))));
  EXPECT_TRUE(MessageDifferencer::Equals(net, Read(dir.Put("binary.pbtxt", net.SerializeAsString()))));
  EXPECT_TRUE(MessageDifferencer::Equals(net, Read(dir.Put("mark.pbtxt", "\xef\xbb\xbf" + PrintMessageText(net)))));
  // Bytes that could be text: a name of 32 to 126 printable characters and nothing else.
  NetDef named;
  named.set_name(std::string(40, 'n'));
  EXPECT_EQ(Read(dir.Put("named.pb", named.SerializeAsString())).name(), named.name());
}

TEST(ProtoIo, TextErrorsGivePlaceAndNearestName) {
  const TempDir dir;
  const std::string path = dir.Put("net.pbtxt", "name: \"n\"\nop {\n  type: \"Relu\"\n  inpt: \"x\"\n}\n");
  ExpectError([&] { Read(path); }, "input/output error: " + path +
                                       ":4:7: Message type \"OperatorDef\" has no field named \"inpt\"; did you mean "
                                       "\"input\"?");
  const std::string values = dir.Put("values.pbtxt", "op { arg { t { data_type: FLOT } } }");
  ExpectError([&] { Read(values); }, "input/output error: " + values +
                                         ":1:32: Unknown enumeration value of \"FLOT\" for field \"data_type\"; did "
                                         "you mean \"FLOAT\"?");
  const std::string quoted = dir.Put("quoted.pbtxt", "op { arg { t { data_type: \"FLOAT\" } } }");
  ExpectError([&] { Read(quoted); }, "input/output error: " + quoted +
                                         ":1:27: Expected integer or identifier, got: \"FLOAT\"; names of values "
                                         "stand without quotes");
  const std::string open = dir.Put("open.pbtxt", "name: \"n\"\nop {\n");
  ExpectError([&] { Read(open); }, "input/output error: " + open + ":3:1: Expected identifier, got: ");
  NetDef net;
  ExpectError([&] { ParseMessageText("name: 3", "step_net of op 3", &net); },
              "input/output error: step_net of op 3:1:7: Expected string, got: 3; strings stand in double quotes");
}

// Later versions of Caffe2 call field 2 of DeviceOption so; that of a partition is another one.
TEST(ProtoIo, TextsMayCallTheNumberOfAGpuDeviceId) {
  const std::string text =
      "op { type: \"A\" device_option { device_type: 1 device_id: 3 } arg { name: \"step_net\" n {"
      "  op { type: \"B\" device_option { cuda_gpu_id: 2 } } op { type: \"C\" device_option { device_id: 0 } } } } }"
      "partition_info { name: \"p\" device_id: 7 }";
  NetDef net;
  ParseMessageText(text, "net.pbtxt", &net);
  EXPECT_EQ(net.op(0).device_option().cuda_gpu_id(), 3);
  const NetDef& step = net.op(0).arg(0).n();
  EXPECT_EQ(step.op(0).device_option().cuda_gpu_id(), 2);
  EXPECT_TRUE(step.op(1).device_option().has_cuda_gpu_id());
  EXPECT_EQ(net.partition_info(0).device_id(0), 7);
  NetDef copy;
  ParseMessageBytes(net.SerializeAsString(), "net.pb", &copy);
  EXPECT_EQ(copy.op(0).device_option().cuda_gpu_id(), 3);
  EXPECT_FALSE(net.op(0).device_option().has_device_id() || step.op(1).device_option().has_device_id());
}

TEST(ProtoIo, TextsGiveOneNumberOfAGpu) {
  const auto text = [](int number) {
    return StrCat("op { type: \"A\" arg { name: \"step_net\" n { op { type: \"B\" device_option { device_id: ", number,
                  " cuda_gpu_id: 3 } } } } }");
  };
  NetDef net;
  ParseMessageText(text(3), "net.pbtxt", &net);
  EXPECT_EQ(net.op(0).arg(0).n().op(0).device_option().cuda_gpu_id(), 3);
  ExpectError(
      [&] { ParseMessageText(text(1), "net.pbtxt", &net); },
      "input/output error: net.pbtxt: a device_option has device_id 1 and cuda_gpu_id 3, which are two names of "
      "one number; leave one out");
}

TEST(ProtoIo, RequiredFieldsAreNamed) {
  const TempDir dir;
  TensorProto proto;
  const std::string text = dir.Put("t.pbtxt", "segment { begin: 0 }");
  ExpectError([&] { ReadMessage(text, &proto); },
              "input/output error: " + text + ": Message missing required fields: segment.end");
  TensorProto partial;
  partial.mutable_segment()->set_begin(0);
  const std::string bytes = dir.Put("t.pb", partial.SerializePartialAsString());
  ExpectError([&] { ReadMessage(bytes, &proto); },
              "input/output error: " + bytes + " lacks required fields: segment.end");
}

TEST(ProtoIo, RefusesFilesThatHoldNoMessage) {
  const TempDir dir;
  const std::string empty = dir.Put("empty.pb", "");
  ExpectError([&] { Read(empty); }, "input/output error: " + empty + " is empty, a NetDef is needed");
  const std::string comment = dir.Put("comment.pbtxt", "# nothing\n");
  ExpectError([&] { Read(comment); }, "input/output error: " + comment + " does not hold a NetDef: it sets no field");
  // Well-formed as a message, but of unknown fields alone.
  const std::string unknown = dir.Put("unknown.pb", std::string("\xa0\x06\x01\xa8\x06\x00", 6));
  ExpectError([&] { Read(unknown); }, "input/output error: " + unknown + " does not hold a NetDef");
  ExpectError([&] { Read(dir.Path("none.pb")); },
              "input/output error: cannot read " + dir.Path("none.pb") + ": No such file or directory");
  ExpectError([&] { Read(dir.path()); }, "input/output error: cannot read " + dir.path() + ": Is a directory");
}

TEST(ProtoIo, NamesTheKindOfAnotherFile) {
  const TempDir dir;
  TensorProtos tensors;
  tensors.add_protos()->add_dims(1);
  tensors.mutable_protos(0)->set_name("x");
  tensors.mutable_protos(0)->add_float_data(1);
  const std::string path = dir.Put("inputs.pb", tensors.SerializeAsString());
  ExpectError([&] { Read(path); },
              "input/output error: " + path + " does not hold a NetDef, it looks like a TensorProtos");
  const std::string text = dir.Put("inputs.pbtxt", PrintMessageText(tensors));
  ExpectError([&] { Read(text); }, "input/output error: " + text +
                                       ":1:8: Message type \"NetDef\" has no field named \"protos\" (the file looks "
                                       "like a TensorProtos)");
}

TEST(ProtoIo, SaysWhereBytesAreCutOff) {
  const TempDir dir;
  const std::string bytes = SmallNet().SerializeAsString();
  const std::string path = dir.Put("cut.pb", bytes.substr(0, bytes.size() - 1));
  ExpectError([&] { Read(path); }, "input/output error: " + path +
                                       " does not hold a NetDef: field NetDef.external_input at byte 21 has 1 bytes, "
                                       "0 are left");
  // Whatever is cut off or changed: an error or a net, never a crash.
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_NO_FATAL_FAILURE({
      try {
        Read(dir.Put("cut.pb", bytes.substr(0, n)));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInputOutput);
      }
    });
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = bytes;
      flipped[n] = static_cast<char>(flipped[n] ^ (1 << bit));
      try {
        Read(dir.Put("flipped.pb", flipped));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInputOutput);
      }
    }
  }
}

TEST(ProtoIo, RefusesDeepNesting) {
  const TempDir dir;
  WriteMessage(Nested(30), dir.Path("fine.pb"));
  EXPECT_TRUE(MessageDifferencer::Equals(Nested(30), Read(dir.Path("fine.pb"))));
  WriteMessage(Nested(30), dir.Path("fine.pbtxt"));
  EXPECT_TRUE(MessageDifferencer::Equals(Nested(30), Read(dir.Path("fine.pbtxt"))));
  WriteMessage(Nested(40), dir.Path("deep.pb"));
  ExpectError([&] { Read(dir.Path("deep.pb")); }, "…does not hold a NetDef: messages nest deeper than 100 at byte ");
  WriteMessage(Nested(40), dir.Path("deep.pbtxt"));
  ExpectError([&] { Read(dir.Path("deep.pbtxt")); }, "…Message is too deep");
}

TEST(ProtoIo, HostileNestingEndsEarly) {
  const TempDir dir;
  // A million levels: each is a field 2 (op) or 5 (arg) or 8 (n) that says it goes to the end of the file.
  std::string bytes;
  for (int i = 0; i < 1000000; ++i) bytes += "\x12\xff\xff\xff\x07";
  ExpectError([&] { Read(dir.Put("deep.pb", bytes)); }, "…does not hold a NetDef");
  std::string text;
  for (int i = 0; i < 1000000; ++i) text += "op { arg { n { ";
  ExpectError([&] { Read(dir.Put("deep.pbtxt", text)); }, "…Message is too deep");
}

TEST(ProtoIo, RefusesMessagesLargerThanTheMemoryLimit) {
  const TempDir dir;
  std::string bytes;
  for (int i = 0; i < 10000; ++i) bytes += std::string("\x12\x00", 2);  // an operator without fields
  std::string text;
  for (int i = 0; i < 10000; ++i) text += "op{}";
  const std::string binary_path = dir.Put("many.pb", bytes);
  const std::string text_path = dir.Put("many.pbtxt", text);
  EXPECT_EQ(Read(binary_path).op_size(), 10000);
  EXPECT_EQ(Read(text_path).op_size(), 10000);
  {
    const LimitedMemory limited(1000000);
    ExpectError([&] { Read(binary_path); }, "…many.pb may take 3840320 bytes of memory once it is read; 1000000 are");
    ExpectError([&] { Read(text_path); }, "…many.pbtxt may take ");
  }
  const LimitedMemory limited(10000);
  ExpectError([&] { Read(binary_path); }, "out of memory: " + binary_path + " has 20000 bytes; 10000 are allowed");
}

TEST(ProtoIo, ScanBoundsTheMemoryOfAMessage) {
  NetDef net = SmallNet();
  for (int i = 0; i < 100; ++i) {
    Argument* argument = net.mutable_op(0)->add_arg();
    argument->set_name("argument");
    for (int k = 0; k < i; ++k) {
      argument->add_floats(1);
      argument->add_ints(k);
      argument->add_strings(std::string(40, 's'));
    }
    argument->mutable_t()->add_float_data(3);
    argument->mutable_t()->add_int64_data(3);
  }
  NetDef parsed;
  const std::string bytes = net.SerializeAsString();
  ASSERT_TRUE(parsed.ParseFromString(bytes));
  const WireScan scan = ScanWire(*NetDef::descriptor(), bytes);
  EXPECT_TRUE(scan.ok()) << scan.problem;
  EXPECT_EQ(scan.known, 3);
  EXPECT_EQ(scan.oddities, 0);
  EXPECT_GE(scan.max_bytes, static_cast<std::int64_t>(parsed.SpaceUsedLong()));
  EXPECT_LE(scan.max_bytes, 20 * static_cast<std::int64_t>(parsed.SpaceUsedLong()));
}

TEST(ProtoIo, KeepsTheMessageOnFailure) {
  const TempDir dir;
  NetDef net = SmallNet();
  EXPECT_THROW(ReadMessage(dir.Put("bad.pbtxt", "name: \"other\" op {"), &net), Error);
  EXPECT_THROW(ParseMessageText("name: \"other\" x", "text", &net), Error);
  EXPECT_THROW(ParseMessageBytes("\x0a\x7f", "bytes", &net), Error);
  EXPECT_TRUE(MessageDifferencer::Equals(net, SmallNet()));
}

TEST(ProtoIo, TellsKindsApart) {
  const TempDir dir;
  const auto kind_of = [&](const Message& message) {
    const MessageKind binary = DetectKind(dir.Put("file", message.SerializeAsString()));
    const MessageKind text = DetectKind(dir.Put("file", PrintMessageText(message)));
    EXPECT_EQ(binary, text) << MessageKindName(binary) << " and " << MessageKindName(text) << "\n"
                            << message.DebugString();
    return std::string(MessageKindName(binary));
  };
  const NetDef net = SmallNet();
  EXPECT_EQ(kind_of(net), "NetDef");
  NetDef unnamed;
  *unnamed.add_op() = net.op(0);
  EXPECT_EQ(kind_of(unnamed), "NetDef");
  PlanDef plan;
  plan.set_name("plan");
  *plan.add_network() = net;
  plan.add_execution_step()->add_network("small");
  EXPECT_EQ(kind_of(plan), "PlanDef");
  MetaNetDef meta;
  NetsMap* nets = meta.add_nets();
  nets->set_key("PREDICT_NET_TYPE");
  *nets->mutable_value() = net;
  EXPECT_EQ(kind_of(meta), "MetaNetDef");
  BlobsMap* blobs = meta.add_blobs();
  blobs->set_key("PARAMETERS_BLOB_TYPE");
  blobs->add_value("w");
  EXPECT_EQ(kind_of(meta), "MetaNetDef");
  TensorProtos tensors;
  TensorProto* tensor = tensors.add_protos();
  tensor->set_name("x");
  tensor->add_dims(2);
  tensor->add_float_data(1);
  tensor->add_float_data(2);
  EXPECT_EQ(kind_of(*tensor), "TensorProto");
  EXPECT_EQ(kind_of(tensors), "TensorProtos");
  *tensors.add_protos() = *tensor;
  EXPECT_EQ(kind_of(tensors), "TensorProtos");
  BlobProto blob;
  blob.set_name("x");
  blob.set_type("Tensor");
  *blob.mutable_tensor() = *tensor;
  EXPECT_EQ(kind_of(blob), "BlobProto");
  EXPECT_EQ(DetectKind(dir.Put("file", "not a message")), MessageKind::kUnknown);
  EXPECT_EQ(DetectKind(dir.Put("file", "")), MessageKind::kUnknown);
}

TEST(ProtoIo, TellsKindsOfFilesThatCaffe2Wrote) {
  const std::filesystem::path golden = SourcePath("tests/golden");
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(golden)) {
    if (!entry.is_directory()) continue;
    ++cases;
    for (const auto& file : std::filesystem::directory_iterator(entry.path())) {
      const std::string name = file.path().filename();
      if (!name.ends_with(".pb")) continue;
      EXPECT_EQ(DetectKind(file.path()),
                name.find("net") != std::string::npos ? MessageKind::kNetDef : MessageKind::kTensorProtos)
          << file.path();
    }
  }
  EXPECT_EQ(cases, 190);
}

// Each of them takes seconds for the largest message.
TEST(ProtoIo, IsStoppedAsRunsAre) {
  const TempDir dir;
  const NetDef net = SmallNet();
  const std::string text = PrintMessageText(net);
  const std::string bytes = net.SerializeAsString();
  NetDef read = SmallNet();
  Cancellation cancellation;
  cancellation.Cancel();
  const CancellationScope scope(&cancellation);
  const std::string message = "cancelled: the run was cancelled";
  ExpectError([&] { ParseMessageText(text, "a text", &read); }, message);
  ExpectError([&] { ParseMessageBytes(bytes, "bytes", &read); }, message);
  ExpectError([&] { static_cast<void>(DetectKindOf(text)); }, message);
  ExpectError([&] { static_cast<void>(PrintMessageText(net)); }, message);
  ExpectError([&] { WriteMessage(net, dir.Path("net.pb")); }, message);
  ExpectError([&] { WriteMessage(net, dir.Path("net.pbtxt")); }, message);
  EXPECT_TRUE(MessageDifferencer::Equals(read, net)) << "it keeps its value";
  EXPECT_TRUE(dir.Names().empty());
}

}  // namespace
}  // namespace stepnet
