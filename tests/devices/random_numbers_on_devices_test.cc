// Random numbers on every device: the words of the CPU, and what functions make of them as near as rounding lets it.
#include <cstdlib>
#include <cstring>

#include "recorded_nets.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

class RandomNumbers : public OnEveryDevice {
 protected:
  // Runs the net on the device and on the CPU; `compare` looks at both after each run, the last ones of which a device
  // that records plays.
  void Run(NetDef def, const std::function<void(const Workspace& found, const Workspace& expected)>& compare) {
    unsigned seed = 5;
    for (OperatorDef& op : *def.mutable_op()) op.mutable_device_option()->set_random_seed(seed++);
    Workspace found, expected;
    for (Workspace* workspace : {&found, &expected}) workspace->SetTensor("x", Random({70, 33}, 1, DType::kFloat));
    const std::unique_ptr<Net> there = Net::Create(def, found, Options());
    const std::unique_ptr<Net> on_cpu = Net::Create(def, expected, Reference());
    for (int run = 0; run < 5; ++run) {
      there->Run();
      on_cpu->Run();
      compare(found, expected);
      if (HasFailure()) return;
    }
  }
};
INSTANTIATE_ON_EVERY_DEVICE(RandomNumbers);

// How many numbers there are between two, of the same sign or not, and one.
template <typename T, typename Bits>
std::int64_t UlpsBetween(T a, T b) {
  const auto place = [](T number) {
    Bits bits = 0;
    std::memcpy(&bits, &number, sizeof(bits));
    return bits < 0 ? std::int64_t{std::numeric_limits<Bits>::min()} - bits : std::int64_t{bits};
  };
  return std::abs(place(a) - place(b));
}

template <typename T, typename Bits>
std::int64_t MostUlps(const Tensor& found_there, const Tensor& expected) {
  const Tensor found = found_there.To({});
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < expected.size(); ++i) {
    most = std::max(most, UlpsBetween<T, Bits>(found.data<T>()[i], expected.data<T>()[i]));
  }
  return most;
}

OperatorDef Fill(const std::string& text, int dtype) {
  OperatorDef op = ParseOp(text);
  AddInts(&op, "shape", {70, 33});
  if (dtype != TensorProto::INT32) AddInt(&op, "dtype", dtype);
  return op;
}

TEST_P(RandomNumbers, HaveTheBitsOfTheCpu) {
  NetDef def = NetOf({"dropped, mask = Dropout(x)"});
  *def.add_op() = Fill("u = UniformFill()", TensorProto::FLOAT);
  *def.add_op() = Fill("wide = UniformFill()", TensorProto::DOUBLE);
  *def.add_op() = Fill("n = UniformIntFill()", TensorProto::INT32);
  AddInt(def.mutable_op(3), "max", 1'000'000);
  Run(def, [](const Workspace& found, const Workspace& expected) { ExpectSameValues(found, expected, ""); });
}

// What is float was computed in double.
TEST_P(RandomNumbers, ThatAreNormalAreWithinAUlpOfTheCpus) {
  NetDef def;
  *def.add_op() = Fill("narrow = GaussianFill()", TensorProto::FLOAT);
  *def.add_op() = Fill("wide = GaussianFill()", TensorProto::DOUBLE);
  *def.add_op() = Fill("scaled = MSRAFill()", TensorProto::FLOAT);
  Run(def, [](const Workspace& found, const Workspace& expected) {
    for (const char* name : {"narrow", "scaled"}) {
      EXPECT_LE((MostUlps<float, std::int32_t>(found.GetTensor(name), expected.GetTensor(name))), 1) << name;
    }
    constexpr std::int64_t kOfFourFunctions = 4;
    EXPECT_LE((MostUlps<double, std::int64_t>(found.GetTensor("wide"), expected.GetTensor("wide"))), kOfFourFunctions);
  });
}

}  // namespace
}  // namespace stepnet
