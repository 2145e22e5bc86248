// The runtime of a GPU: its limit of memory, its clock, its math, and what is left of it after a fault. Most of it
// needs a GPU.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "scoped_variable.h"
#include "stepnet/core/move.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/cuda/cublas_lt.h"
#include "stepnet/gpu/cuda/cuda_call.h"
#include "stepnet/gpu/cuda/product_choices.h"
#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/core/temp_dir.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

constexpr Device kGpu = {.kind = DeviceKind::kCuda};

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Faults end the context of a process for good, so each of these tests has a process of its own.
class CudaFaults : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// Exits with the number of the first thing that is not so.
void Expect(bool is_so, int number) {
  if (is_so) return;
  std::cerr << "expectation " << number << " does not hold\n";
  std::_Exit(number);
}

TEST_F(CudaFaults, TheFirstCauseIsToldFromThenOn) {
  const auto run = [] {
    const std::string first = ErrorOf([] { CheckCuda(cudaErrorIllegalAddress, "a kernel"); });
    Expect(Contains(first, "cudaErrorIllegalAddress) in a kernel") && Contains(first, "CUDA_LAUNCH_BLOCKING=1"), 2);
    Expect(Contains(first, "compute-sanitizer"), 3);
    for (const cudaError_t later : {cudaErrorLaunchFailure, cudaErrorInvalidValue}) {
      const std::string text = ErrorOf([&] { CheckCuda(later, "another call"); });
      Expect(Contains(text, "cuda:0 cannot be used any more") && Contains(text, "in a kernel"), 4);
    }
    Expect(Contains(ErrorOf([] { UseCudaDevice(0); }), "an earlier error ended its context: "), 5);
    Expect(!Contains(ErrorOf([] { UseCudaDevice(1); }), "an earlier error"), 6);
    std::exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "^$");
}

TEST(CudaCall, OtherErrorsEndNothing) {
  const std::string text = ErrorOf([] { CheckCuda(cudaErrorInvalidValue, "a call"); });
  EXPECT_TRUE(Contains(text, "(cudaErrorInvalidValue) in a call")) << text;
  EXPECT_EQ(ErrorOf([] { CheckCuda(cudaErrorMemoryAllocation, "a call"); }).substr(0, 15), "out of memory: ");
  EXPECT_EQ(ErrorOf([] { CheckCuda(cudaSuccess, "a call"); }), "no error");
}

// The exit status of a forked process that runs `child` and exits as usual; -1 where a signal ended it.
template <typename Child>
int ForkedExit(const Child& child) {
  const pid_t process = fork();
  if (process == 0) {
    alarm(30);
    child();
    std::exit(0);
  }
  int status = 0;
  if (process < 0 || waitpid(process, &status, 0) != process || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

TEST_F(CudaFaults, AForkedProcessIsToldThatItHasNoDevice) {
  const auto run = [] {
    LoseDevicesInForkedProcesses();
    const auto child = [] { Expect(Contains(ErrorOf([] { UseCudaDevice(0); }), "forked from one that had used"), 2); };
    Expect(ForkedExit(child) == 0, 3);
    Expect(!Contains(ErrorOf([] { UseCudaDevice(0); }), "forked"), 4);
    std::exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "^$");
}

TEST(ProductChoices, AreMadeOnceAndKept) {
  try {
    TheCublasLt();
  } catch (const Error& error) {
    GTEST_SKIP() << error.message();
  }
  const TempDir dir;
  int made = 0;
  const auto choose = [&] {
    ++made;
    cublasLtMatmulAlgo_t algorithm = {};
    algorithm.data[0] = static_cast<std::uint64_t>(made);
    return algorithm;
  };
  ProductChoices first(dir.path());
  EXPECT_EQ(first.Get(0, "gpu", "a", choose).data[0], 1U);
  EXPECT_EQ(first.Get(0, "gpu", "a", choose).data[0], 1U);
  EXPECT_EQ(first.Get(0, "gpu", "a, tf32", choose).data[0], 2U);
  ProductChoices second(dir.path());
  EXPECT_EQ(second.Get(1, "gpu", "a", choose).data[0], 1U) << "kept for GPUs alike";
  EXPECT_EQ(second.Get(0, "other gpu", "a", choose).data[0], 3U);
  EXPECT_EQ(made, 3);
  EXPECT_EQ(second.Texts(0).size(), 1U);
  EXPECT_EQ(first.Texts(0)[0].substr(0, 14), "a: algorithm 1") << first.Texts(0)[0];
}

class CudaRuntimeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (const std::string why = ErrorOf([] { RuntimeOf(kGpu); }); why != "no error") GTEST_SKIP() << why;
  }
};

TEST_F(CudaRuntimeTest, KeepsItsLimitAndGoesOn) {
  DeviceRuntime& runtime = RuntimeOf(kGpu);
  const MemoryUse before = runtime.memory();
  runtime.SetMemoryLimit(before.current + (1 << 20));
  const Shape shape({4 << 20});
  const std::string text = ErrorOf([&] { Tensor(DType::kUInt8, shape, kGpu); });
  EXPECT_TRUE(Contains(text, "4194304 bytes of cuda:0 exceed the limit")) << text;
  EXPECT_NE(ErrorOf([] { RuntimeOf(kGpu).SetMemoryLimit(-1); }), "no error");
  runtime.SetMemoryLimit(before.limit);
  Tensor(DType::kUInt8, shape, kGpu);
  EXPECT_EQ(runtime.memory().current, before.current);
  EXPECT_GE(runtime.memory().cached, 4 << 20);
  // More than there is: what is kept is given back first.
  EXPECT_NE(ErrorOf([&] { Tensor(DType::kUInt8, Shape({before.limit - before.current - (32 << 20)}), kGpu); }),
            "no error");
  EXPECT_EQ(runtime.memory().cached, 0);
  Tensor(DType::kUInt8, shape, kGpu);
}

TEST_F(CudaRuntimeTest, ItsClockIsThatOfTheHost) {
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  Queue& queue = RuntimeOf(kGpu).queue();
  const Tensor tensor(DType::kUInt8, Shape({256 << 20}), kGpu);
  const double begin = now();
  std::vector<std::shared_ptr<const double>> marks = {queue.MarkTime()};
  for (int i = 0; i < 5000; ++i) {
    if (i % 1000 == 0) queue.Fill(tensor.raw(kGpu), 1, tensor.size_bytes());
    marks.push_back(queue.MarkTime());
  }
  queue.Wait();
  const double end = now();
  for (size_t i = 1; i < marks.size(); ++i) ASSERT_LE(*marks[i - 1], *marks[i]) << i;
  EXPECT_GT(*marks[1], *marks[0] + 1e-5) << "256 MB are filled";
  EXPECT_GT(*marks.front(), begin - 1e-3);
  EXPECT_LT(*marks.back(), end + 1e-3);
}

TEST_F(CudaRuntimeTest, Tf32IsNearFloat32AndChosenApart) {
  const auto product = [](const RunOptions& options) {
    Workspace workspace;
    workspace.SetTensor("x", Random({64, 512}, 1, DType::kFloat));
    workspace.SetTensor("w", Random({1024, 512}, 2, DType::kFloat));
    workspace.SetTensor("b", Random({1024}, 3, DType::kFloat));
    NetDef net;
    *net.add_op() = ParseOp("y = FC(x, w, b)");
    Net::Create(net, workspace, options)->Run();
    return workspace.GetTensor("y").To({});
  };
  RunOptions exact = OnDevice({}, kGpu), rounded = exact;
  rounded.math = Math::kTf32;
  const Tensor on_cpu = product({}), in_float = product(exact), in_tf32 = product(rounded);
  double float_error = 0, tf32_error = 0;
  for (std::int64_t i = 0; i < on_cpu.size(); ++i) {
    const float want = on_cpu.data<float>()[i];
    float_error = std::max<double>(float_error, std::abs(want - in_float.data<float>()[i]));
    tf32_error = std::max<double>(tf32_error, std::abs(want - in_tf32.data<float>()[i]));
  }
  EXPECT_LT(float_error, 1e-4);
  EXPECT_GT(tf32_error, 2e-4);
  EXPECT_LT(tf32_error, 1e-1);
  int found = 0;
  for (const std::string& choice : RuntimeOf(kGpu).Choices()) {
    found += Contains(choice, "product of float, float32: [64, 512] x [1024, 512]^T");
    found += Contains(choice, "product of float, tf32: [64, 512] x [1024, 512]^T");
  }
  EXPECT_EQ(found, 2) << Join(RuntimeOf(kGpu).Choices(), "\n");
}

// Tensors go, and the process ends, as if nothing had been.
TEST_F(CudaRuntimeTest, AFaultOfAKernelEndsTheDeviceAndNothingElse) {
  const auto run = [] {
    const Tensor tensor = Tensor::Zeros(DType::kFloat, Shape({1000}), kGpu);
    Queue& queue = RuntimeOf(kGpu).queue();
    float* const nowhere = reinterpret_cast<float*>(std::uintptr_t{4096});
    queue.Add(nowhere, nowhere, DType::kFloat, 1);
    const std::string first = ErrorOf([&] { queue.Wait(); });
    Expect(Contains(first, "cudaErrorIllegalAddress") && Contains(first, "CUDA_LAUNCH_BLOCKING=1"), 2);
    Expect(Contains(ErrorOf([&] { queue.Fill(tensor.raw(kGpu), 0, 4); }), "an earlier error ended its context"), 3);
    Expect(Contains(ErrorOf([&] { tensor.To({}); }), "cudaErrorIllegalAddress"), 4);
    Expect(Contains(ErrorOf([&] { tensor.Clone(); }), "cudaErrorIllegalAddress"), 5);
    NetDef net;
    *net.add_op() = ParseOp("y = Relu(x)");
    Workspace workspace;
    workspace.SetTensor("x", Tensor::Zeros(DType::kFloat, Shape({3})));
    const std::unique_ptr<Net> made = Net::Create(net, workspace, OnDevice({}, kGpu));
    Expect(Contains(ErrorOf([&] { made->Run(); }), "an earlier error ended its context"), 6);
    Net::Create(net, workspace)->Run();  // on the CPU
    std::exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "^$");
}

// y = x; on a GPU, in step 2, from where nothing is.
const Registration reads_nowhere = Operator("test.ReadsNowhere")
                                       .Doc("y = x.")
                                       .Input("x", "float")
                                       .Output("y", "the shape of x")
                                       .Shapes(SameAsInput(0))
                                       .StopsGradient()
                                       .Cpu(CopyKernel())
                                       .On(DeviceKind::kCuda, {.make = [](const OperatorCall&) -> RunFn {
                                             return [](const OpRun& run) {
                                               if (run.step() != 2) return CopyInput(run);
                                               auto* const nowhere = reinterpret_cast<float*>(std::uintptr_t{4096});
                                               run.queue().Add(nowhere, nowhere, DType::kFloat, 1);
                                             };
                                           }});

// As the error says: the same run where the host waits for each kernel names operator and step.
TEST_F(CudaRuntimeTest, AFaultOfAKernelIsLocatedByARunThatWaitsForEach) {
  const auto error_of = [](const char* executor) {
    RecurrentCase net;
    net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
    net.Step("r = test.ReadsNowhere(x_t)").Step("h_next = Add(r, h_prev)").Output("h_all", "h", 1);
    net.Feed("x", Tensor::Zeros(DType::kFloat, {4, 1, 2}));
    net.Feed("h0", Tensor::Zeros(DType::kFloat, {1, 2}));
    RunOptions options = OnDevice({}, kGpu);
    options.executor = executor;
    const auto made = Net::Create(net.Build(), net.workspace(), options);
    return ErrorOf([&] {
      made->Run();
      made->Wait();
    });
  };
  const auto launched = [&] {
    const std::string error = error_of("cuda");
    Expect(Contains(error, "CUDA_LAUNCH_BLOCKING=1") && Contains(error, "--executor=serial"), 2);
    Expect(Contains(error_of("cuda"), "an earlier error ended its context"), 3);
    std::exit(0);
  };
  EXPECT_EXIT(launched(), ::testing::ExitedWithCode(0), "^$");
  const ScopedVariable waits("CUDA_LAUNCH_BLOCKING", "1");  // which a process reads when it begins with CUDA
  const auto waiting = [&] {
    const std::string error = error_of("serial");
    if (!Contains(error, "`r = test.ReadsNowhere(x_t)`") || !Contains(error, "step 2")) std::cerr << error;
    std::exit(0);
  };
  EXPECT_EXIT(waiting(), ::testing::ExitedWithCode(0), "^$");
}

TEST_F(CudaRuntimeTest, AForkedProcessComputesOnTheCpuAndEnds) {
  const auto run = [] {
    const auto tensor = std::make_shared<Tensor>(Tensor::Zeros(DType::kFloat, Shape({1000}), kGpu));
    RuntimeOf(kGpu).queue().Wait();
    TheCublasLt();  // which a thread opens: the forked process has none to wait for
    NetDef net;
    *net.add_op() = ParseOp("y = Relu(x)");
    Workspace workspace;
    workspace.SetTensor("x", Tensor::Zeros(DType::kFloat, Shape({3})));
    const auto child = [&] {
      Expect(Contains(ErrorOf([&] { tensor->To({}); }), "forked from one that had used"), 2);
      *tensor = Tensor();
      Net::Create(net, workspace)->Run();
    };
    Expect(ForkedExit(child) == 0, 3);
    Expect(tensor->To({}).data<float>()[999] == 0, 4);
    std::exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace stepnet
