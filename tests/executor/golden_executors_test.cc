// Nets that real Caffe2 built: every blob that they leave in the workspace is the same whichever executor runs them.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "layers.h"
#include "recurrent_case.h"
#include "stepnet/io/file.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/net.h"
#include "stepnet/tests/core/filled_memory.h"
#include "stepnet/tests/core/source_path.h"
#include "stepnet/tests/poison_device/poison_device.h"

namespace stepnet {
namespace {

namespace fs = std::filesystem;

struct GoldenCase {
  std::string name;
  NetDef net;
  std::vector<NamedTensors> runs;  // inputs of each
};

GoldenCase ReadCase(const fs::path& folder) {
  const nlohmann::json manifest = nlohmann::json::parse(ReadFile((folder / "manifest.json").string()));
  GoldenCase golden{.name = folder.filename().string(), .net = {}, .runs = {}};
  ReadMessage((folder / manifest.at("net").get<std::string>()).string(), &golden.net);
  for (const nlohmann::json& run : manifest.at("runs")) {
    golden.runs.push_back(ReadTensors((folder / run.at("inputs").get<std::string>()).string()));
  }
  return golden;
}

const std::vector<GoldenCase>& GoldenCases() {
  static const std::vector<GoldenCase> cases = [] {
    std::vector<GoldenCase> all;
    for (const auto& entry : fs::directory_iterator(SourcePath("tests/golden"))) {
      if (entry.is_directory()) all.push_back(ReadCase(entry.path()));
    }
    return all;
  }();
  return cases;
}

// A workspace in which the runs of the case have been one after the other.
class CaseRun {
 public:
  CaseRun(const GoldenCase& golden, const RunOptions& options) : golden_(golden), options_(options) {}

  const Workspace& Run(size_t r) {
    for (const auto& [name, tensor] : golden_.runs[r]) workspace_.SetTensor(name, tensor);
    if (net_ == nullptr) net_ = Net::Create(golden_.net, workspace_, options_);
    net_->Run();
    return workspace_;
  }

 private:
  const GoldenCase& golden_;
  const RunOptions options_;
  Workspace workspace_;
  std::unique_ptr<Net> net_;
};

class ParallelGolden : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, ParallelGolden, testing::Values(1, 2, 3, 4, 8, 16));

TEST_P(ParallelGolden, EveryBlobIsWhatTheSerialExecutorGives) {
  int num_parallel = 0;
  RunOptions options{.executor = "parallel", .threads = GetParam()};
  options.on_plan = [&](const StepPlan&) { ++num_parallel; };
  for (const GoldenCase& golden : GoldenCases()) {
    CaseRun serial(golden, {.executor = "serial"});
    CaseRun parallel(golden, options);
    for (size_t r = 0; r < golden.runs.size(); ++r) {
      const Workspace& expected = serial.Run(r);
      ExpectSameBlobs(expected, parallel.Run(r), StrCat(golden.name, ", run ", r));
    }
  }
  EXPECT_GT(GoldenCases().size(), 150u);
  EXPECT_GT(num_parallel, 200) << "the cases hold few recurrent networks";
}

class GoldenMemory : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, GoldenMemory, testing::Values("serial", "parallel"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(GoldenMemory, NoBlobDependsOnWhatWasInMemory) {
  const RunOptions options{
      .executor = GetParam(), .threads = 2, .opt_level = GetParam() == std::string("serial") ? 0 : 1};
  for (const GoldenCase& golden : GoldenCases()) {
    std::vector<std::unique_ptr<CaseRun>> fills;
    for (size_t k = 0; k < std::size(kFills); ++k) fills.push_back(std::make_unique<CaseRun>(golden, options));
    for (size_t r = 0; r < golden.runs.size(); ++r) {
      std::vector<const Workspace*> found;
      for (size_t k = 0; k < std::size(kFills); ++k) {
        const FilledMemory filled(kFills[k]);
        found.push_back(&fills[k]->Run(r));
      }
      ExpectSameBlobs(*found[0], *found[1], StrCat(golden.name, ", run ", r));
    }
  }
}

// Every blob of the CPU's workspace is in the other one, wherever its tensor lies there. What placement adds is not in
// the first.
void ExpectSameValues(const Workspace& on_host, const Workspace& on_device, const std::string& what) {
  for (const std::string& name : on_host.LocalBlobs()) {
    const Blob* blob = on_device.FindBlob(name);
    ASSERT_NE(blob, nullptr) << name << ", " << what;
    ASSERT_EQ(on_host.FindBlob(name)->HasTensor(), blob->HasTensor()) << name << ", " << what;
    if (!blob->HasTensor()) continue;
    ExpectSame(on_host.GetTensor(name), blob->GetTensor().To({}), StrCat(what, ": ", name));
  }
}

class PoisonGolden : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, PoisonGolden, testing::Values(0, 1),
                         [](const auto& info) { return StrCat("level", info.param); });

TEST_P(PoisonGolden, EveryBlobIsWhatTheCpuGives) {
  const RunOptions options{.executor = "serial", .opt_level = GetParam()};
  const PoisonCounts before = CountsOfPoisonDevice();
  for (const GoldenCase& golden : GoldenCases()) {
    CaseRun cpu(golden, options);
    CaseRun device(golden, OnDevice(options, kPoisonDevice));
    for (size_t r = 0; r < golden.runs.size(); ++r) {
      const Workspace& expected = cpu.Run(r);
      ExpectSameValues(expected, device.Run(r), StrCat(golden.name, ", run ", r));
    }
  }
  EXPECT_GT(CountsOfPoisonDevice().kernels, before.kernels + 10'000);
  EXPECT_EQ(CountsOfPoisonDevice().bytes, before.bytes) << "all memory is given back";
}

// Rounding differs, in sums and functions: by no more than a part of the largest element.
void ExpectNearOnDevice(const Tensor& found, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(found.Description(), expected.Description()) << what;
  if (expected.dtype() != DType::kFloat) return ExpectSame(found, expected, what);
  const float *a = found.data<float>(), *b = expected.data<float>();
  float largest = 1;
  for (std::int64_t i = 0; i < expected.size(); ++i) largest = std::max(largest, std::abs(b[i]));
  for (std::int64_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(b[i]) && std::isnan(a[i])) continue;
    ASSERT_NEAR(a[i], b[i], 1e-5f * largest) << "element " << i << " of " << what;
  }
}

constexpr Device kCuda = {.kind = DeviceKind::kCuda};

bool HasOperator(const NetDef& net, const std::string& type) {
  return std::ranges::any_of(net.op(), [&](const OperatorDef& op) {
    return op.type() == type || std::ranges::any_of(op.arg(), [&](const Argument& arg) {
             return arg.has_n() && HasOperator(arg.n(), type);
           });
  });
}

class CudaGolden : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, CudaGolden, testing::Values(0, 1),
                         [](const auto& info) { return StrCat("level", info.param); });

TEST_P(CudaGolden, EveryBlobIsNearWhatTheCpuGives) {
  try {
    RuntimeOf(kCuda);
  } catch (const Error& error) {
    GTEST_SKIP() << error.message();
  }
  const RunOptions options{.executor = "serial", .opt_level = GetParam()};
  int compared = 0;
  for (const GoldenCase& golden : GoldenCases()) {
    if (HasOperator(golden.net, "Conv")) continue;  // no kernel yet
    ++compared;
    CaseRun cpu(golden, options);
    CaseRun device(golden, OnDevice(options, kCuda));
    for (size_t r = 0; r < golden.runs.size(); ++r) {
      const Workspace& expected = cpu.Run(r);
      const Workspace& found = device.Run(r);
      for (const std::string& name : expected.LocalBlobs()) {
        const Blob* blob = found.FindBlob(name);
        ASSERT_NE(blob, nullptr) << name << ", " << golden.name;
        if (!blob->HasTensor()) continue;
        ExpectNearOnDevice(blob->GetTensor().To({}), expected.GetTensor(name), StrCat(golden.name, ": ", name));
      }
    }
  }
  EXPECT_GT(compared, 185);
}

// The first run launches its kernels, the second records them, and later ones play what was recorded, on inputs that
// are others each time.
TEST(CudaGraphs, GiveTheBitsOfTheStream) {
  try {
    RuntimeOf(kCuda);
  } catch (const Error& error) {
    GTEST_SKIP() << error.message();
  }
  for (const GoldenCase& golden : GoldenCases()) {
    if (HasOperator(golden.net, "Conv")) continue;
    GoldenCase changing = golden;
    changing.runs.clear();
    for (int r = 0; r < 5; ++r) {
      NamedTensors inputs = golden.runs[0];
      for (auto& [name, tensor] : inputs) {
        if (tensor.dtype() != DType::kFloat) continue;
        tensor = tensor.Clone();
        for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.data<float>()[i] *= 1 - 0.1f * static_cast<float>(r);
      }
      changing.runs.push_back(std::move(inputs));
    }
    RunOptions options = OnDevice({}, kCuda);
    CaseRun graph(changing, options);
    options.executor = "serial";
    CaseRun stream(changing, options);
    for (size_t r = 0; r < changing.runs.size(); ++r) {
      const Workspace& expected = stream.Run(r);
      const Workspace& found = graph.Run(r);
      for (const std::string& name : expected.LocalBlobs()) {
        if (!expected.FindBlob(name)->HasTensor()) continue;
        ExpectSame(expected.GetTensor(name).To({}), found.GetTensor(name).To({}), StrCat(golden.name, ": ", name));
      }
    }
  }
}

}  // namespace
}  // namespace stepnet
