// Kernels that check values: with a record of faults they note the first that is bad, and write every element of their
// outputs, whatever the values are.
#include <limits>
#include <set>

#include "numbered_operator.h"
#include "op_test.h"
#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/net_operator.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/tests/core/filled_memory.h"

namespace stepnet {
namespace {

constexpr std::int64_t kLow = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kHigh = std::numeric_limits<std::int64_t>::max();

struct Case {
  OperatorDef def;
  std::vector<Tensor> inputs;
  std::string message;
};

Tensor Floats(const Shape& shape) {
  Tensor tensor(DType::kFloat, shape);
  std::fill_n(tensor.data<float>(), tensor.size(), 1.0f);
  return tensor;
}

Tensor Ints(const std::vector<std::int64_t>& values) {
  return Tensor::Of<std::int64_t>({static_cast<std::int64_t>(values.size())}, values);
}

Tensor Int32s(const std::vector<std::int32_t>& values) {
  return Tensor::Of<std::int32_t>({static_cast<std::int64_t>(values.size())}, values);
}

OperatorDef With(OperatorDef def, const std::string& name, std::int64_t value) {
  OpBuilder(&def).Int(name, value);
  return def;
}

std::vector<Case> Losses() {
  const Tensor x = Floats({3, 2});
  const Tensor soft = Tensor::Of<float>({3, 2}, {1, 0, 0.5f, 0.5f, -3, 1});
  const Tensor labels = Ints({1, kHigh, kLow});
  const std::string label_1 = StrCat("label 1 is ", kHigh, "; there are classes 0 to 1");
  return {{NumberedOperator("LabelCrossEntropy", 2), {x, labels}, label_1},
          {NumberedOperator("LabelCrossEntropyGradient", 3), {x, labels, Floats({3})}, label_1},
          {NumberedOperator("CrossEntropy", 2), {x, soft}, "label [2, 0] is -3"},
          {NumberedOperator("SoftmaxWithLoss", 2, 2), {x, labels}, label_1},
          {With(NumberedOperator("SoftmaxWithLoss", 2, 2), "label_prob", 1), {x, soft}, "label [2, 0] is -3"},
          {With(NumberedOperator("SoftmaxWithLoss", 2, 2), "label_prob", 1), {x, x}, "the labels of row 0 add up to 2"},
          {NumberedOperator("SoftmaxWithLossGradient", 4), {x, labels, x, Floats({})}, label_1},
          {NumberedOperator("Accuracy", 2), {x, labels}, label_1}};
}

std::vector<Case> Indices() {
  return {
      {NumberedOperator("Gather", 2), {Floats({3, 2}), Ints({2, kHigh, kLow})}, "Gather: element 1 of the indices is"},
      {NumberedOperator("Gather", 2), {Floats({0, 2}), Int32s({0})}, "Gather: element 0 of the indices is 0"},
      {NumberedOperator("SparseToDense", 3),
       {Ints({2, 3, kLow}), Floats({3, 2}), Floats({3, 2})},
       "SparseToDense: element 1 of"},
      {NumberedOperator("ScatterElements", 3),
       {Floats({3, 2}), Tensor::Of<std::int64_t>({2, 1}, {-3, kHigh}), Floats({2, 1})},
       "ScatterElements: element 1 of the indices is"},
      {With(NumberedOperator("ScatterElementsGradient", 4, 2), "axis", 1),
       {Floats({3, 2}), Tensor::Of<std::int64_t>({1, 2}, {-3, 1}), Floats({1, 2}), Floats({3, 2})},
       "ScatterElements: element 0 of the indices is -3; dimension 1 of the data has size 2"},
      {With(NumberedOperator("TopKGradient", 3), "k", 2),
       {Floats({2, 2}), Tensor::Of<std::int64_t>({2, 2}, {0, kHigh, -2, -1}), Floats({2, 3})},
       "element 1 of the indices is"},
      {NumberedOperator("SliceGradient", 4), {Floats({3}), Ints({2}), Ints({kLow}), Floats({2})}, "Slice from 2 to"},
      {NumberedOperator("SliceGradient", 4),
       {Floats({3}), Ints({0}), Ints({1}), Floats({2})},
       "Slice from 0 to 1 along dimension 0 of a tensor [3] is not what dy [2] is the gradient of"},
      {NumberedOperator("Div", 2),
       {Ints({4, kLow, 3}), Ints({2, 0, 0})},
       StrCat("Div of the integer ", kLow, " by 0 for element 1 of the output")}};
}

std::vector<Case> LengthsCases() {
  OperatorDef mask = NumberedOperator("SequenceMask", 2);
  OpBuilder(&mask).String("mode", "sequence");
  OperatorDef whole = NumberedOperator("RNNLengths", 2);
  OpBuilder(&whole).String("blob", "in1");
  const std::int32_t high = std::numeric_limits<std::int32_t>::max();
  const std::int32_t low = std::numeric_limits<std::int32_t>::min();
  return {
      {whole, {Floats({3, 3, 2}), Tensor::Of<double>({3}, {1, 2.5, -1})}, "element 1 of in1 is 2.5"},
      {mask, {Floats({3, 2}), Int32s({1, high, low})}, "element 1 of in1 is"},
      {NumberedOperator("ReversePackedSegs", 2), {Floats({2, 3, 2}), Ints({1, kHigh, kLow})}, "element 1 of in1 is"},
      {NumberedOperator("StepMask", 2), {Floats({2, 3, 2}), Ints({1, kHigh, kLow})}, "element 1 of in1 is"},
      {NumberedOperator("PackRNNSequence", 3),
       {Floats({3, 2}), Int32s({high, low}), Floats({2, 2, 2})},
       "element 0 of in1 is"},
      {NumberedOperator("PackRNNSequence", 3),
       {Floats({3, 2}), Int32s({2, 2}), Floats({2, 2, 2})},
       "the lengths in in1 add up to 4, the data have 3 rows"},
      {NumberedOperator("AddPadding", 2, 2), {Floats({3, 2}), Int32s({4, -1})}, "element 1 of in1 is -1"},
      {NumberedOperator("AddPadding", 2, 2), {Floats({3, 2}), Int32s({4, 1})}, "the lengths in in1 add up to 5"},
      {NumberedOperator("RemovePadding", 2, 2),
       {Floats({4, 2}), Int32s({3, 1})},
       "sequence 1 has 1 rows, fewer than the 2"},
      {NumberedOperator("GatherPadding", 2),
       {Floats({4, 2}), Int32s({3, 1})},
       "sequence 1 has 1 rows, fewer than the 2"}};
}

std::vector<Case> Updates() {
  OperatorDef rate = NumberedOperator("LearningRate", 1);
  OpBuilder(&rate).String("policy", "fixed").Float("base_lr", 1);
  const Tensor x = Floats({2});
  OperatorDef iter = NumberedOperator("Iter", 1);
  iter.set_output(0, "in0");
  return {{rate, {Ints({-1})}, "the iteration number in0 is -1, below 0"},
          {rate, {Ints({kHigh})}, "the iteration number in0 is 9223372036854775807, and Iter cannot count on"},
          {iter, {Ints({-5})}, "the iteration number in0 is -5, below 0"},
          {iter, {Ints({kHigh})}, "the iteration number in0 is 9223372036854775807, and Iter cannot count on"},
          {NumberedOperator("Adam", 6, 3),
           {x, x, x, x, Floats({1}), Ints({-1})},
           "the iteration number in5 is -1, below 0"}};
}

std::vector<Case> AllCases() {
  std::vector<Case> all = Losses();
  for (const auto& cases : {Indices(), LengthsCases(), Updates()}) all.insert(all.end(), cases.begin(), cases.end());
  return all;
}

// The elements of all outputs of a run that notes its fault in `record`, or of one that throws it.
std::string BytesOf(const Case& c, FaultRecord* record) {
  Workspace workspace;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    workspace.SetTensor(c.def.input(static_cast<int>(i)), c.inputs[i].Clone());
  }
  NetOperator op(OperatorCall(c.def), workspace);
  RunContext context;
  context.faults = record;
  op.Run(context);
  std::string bytes;
  for (const std::string& output : c.def.output()) {
    const Tensor& tensor = workspace.GetTensor(output);
    bytes.append(static_cast<const char*>(tensor.raw()), static_cast<size_t>(tensor.size_bytes()));
  }
  return bytes;
}

TEST(CheckedValues, AreNotedAndEveryElementIsWritten) {
  for (const Case& c : AllCases()) {
    std::vector<std::string> bytes;
    for (const std::uint8_t fill : kFills) {
      const FilledMemory filled(fill);
      FaultRecord record;
      bytes.push_back(BytesOf(c, &record));
      ASSERT_TRUE(record.any()) << c.def.type() << ": " << c.message;
      EXPECT_TRUE(record.Take()->error.message().starts_with(c.message)) << c.def.type() << ": " << c.message;
    }
    EXPECT_EQ(bytes[0], bytes[1]) << c.def.type() << ": " << c.message;
  }
}

TEST(CheckedValues, AreThrownWhereNobodyKeepsARecord) {
  for (const Case& c : AllCases()) {
    try {
      BytesOf(c, nullptr);
      ADD_FAILURE() << c.def.type();
    } catch (const Error& error) {
      EXPECT_TRUE(error.message().starts_with(c.message)) << error.message() << " and not " << c.message;
    }
  }
}

TEST(CheckedValues, CasesCoverAllTypesThatSayThatTheyCheckThem) {
  // UnpackRNNSequence: its shape rule reads the same values.
  std::set<std::string> covered = {"UnpackRNNSequence"};
  for (const Case& c : AllCases()) covered.insert(c.def.type());
  std::set<std::string> declared;
  for (const std::string& type : OperatorTypes()) {
    if (type.starts_with("test.") || type.find('.') != std::string::npos) continue;
    const Kernel* kernel = GetOperator(type).FindKernel(DeviceKind::kCpu);
    const bool may_divide = MayDivideByZero(GetOperator(type));
    if (kernel != nullptr && (kernel->checks_values || may_divide)) declared.insert(type);
  }
  EXPECT_EQ(declared, covered);
}

}  // namespace
}  // namespace stepnet
