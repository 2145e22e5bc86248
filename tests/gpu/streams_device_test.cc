// The order of a GPU's queue and streams of others. Needs a GPU.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "stepnet/core/tensor.h"
#include "stepnet/gpu/cuda/cuda_runtime.h"
#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

constexpr Device kGpu = {.kind = DeviceKind::kCuda};
constexpr std::int64_t kBytes = 1000;

// A stream of somebody else, which does nothing of what it is given before Go.
class HeldStream {
 public:
  HeldStream() {
    STEPNET_CUDA_CALL(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    const auto hold = [](void* may_go) {
      while (!*static_cast<std::atomic<bool>*>(may_go)) std::this_thread::yield();
    };
    STEPNET_CUDA_CALL(cudaLaunchHostFunc(stream_, hold, &may_go_));
  }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;
  ~HeldStream() {
    Go();
    static_cast<void>(cudaStreamSynchronize(stream_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }
  void Go() { may_go_ = true; }
  cudaStream_t stream() const { return stream_; }
  StreamId id() const { return reinterpret_cast<StreamId>(stream_); }

 private:
  std::atomic<bool> may_go_ = false;
  cudaStream_t stream_ = nullptr;
};

class CudaStreams : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = ErrorOf([] { RuntimeOf(kGpu); }); why != "no error") GTEST_SKIP() << why;
    memory_ = Tensor::Zeros(DType::kUInt8, {kBytes}, kGpu);
    queue().Wait();
  }
  static DeviceRuntime& runtime() { return RuntimeOf(kGpu); }
  static Queue& queue() { return runtime().queue(); }
  void* memory() const { return memory_.raw(kGpu); }

  Tensor memory_;
};

TEST_F(CudaStreams, TheQueueComesBehindAStream) {
  const Tensor seen(DType::kUInt8, {kBytes}, kGpu);
  HeldStream stream;
  STEPNET_CUDA_CALL(cudaMemsetAsync(memory(), 7, kBytes, stream.stream()));
  queue().WaitFor(stream.id());
  queue().Copy(memory(), seen.raw(kGpu), kBytes);
  bool is_done = false;
  runtime().WhenDone([&] { is_done = true; });
  runtime().WhenDone([] {});  // looks for those that are ready
  EXPECT_FALSE(is_done);
  stream.Go();
  EXPECT_EQ(seen.To({}).data<std::uint8_t>()[kBytes - 1], 7);
  EXPECT_TRUE(is_done);
}

TEST_F(CudaStreams, AStreamComesBehindTheQueue) {
  const Tensor seen = Tensor::Zeros(DType::kUInt8, {kBytes}, kGpu);
  HeldStream before, behind;
  behind.Go();
  queue().WaitFor(before.id());
  queue().Fill(memory(), 9, kBytes);
  queue().LetWait(behind.id());
  STEPNET_CUDA_CALL(cudaMemcpyAsync(seen.raw(kGpu), memory(), kBytes, cudaMemcpyDeviceToDevice, behind.stream()));
  EXPECT_EQ(cudaStreamQuery(behind.stream()), cudaErrorNotReady);
  before.Go();
  STEPNET_CUDA_CALL(cudaStreamSynchronize(behind.stream()));
  EXPECT_EQ(seen.To({}).data<std::uint8_t>()[kBytes - 1], 9);
}

TEST_F(CudaStreams, DefaultStreamsHaveNumbers) {
  for (const StreamId stream : {1, 2}) {
    queue().WaitFor(stream);
    queue().LetWait(stream);
  }
  queue().Wait();
  EXPECT_NE(queue().stream_id(), 0U);
}

TEST_F(CudaStreams, AStreamThatIsCapturedOrdersNothing) {
  cudaStream_t stream = nullptr;
  STEPNET_CUDA_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  STEPNET_CUDA_CALL(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  const char* const text =
      "invalid argument: the stream is being captured into a CUDA graph, of which a run cannot be part: it is played "
      "as "
      "graphs of its own";
  ExpectError([&] { queue().WaitFor(reinterpret_cast<StreamId>(stream)); }, text);
  ExpectError([&] { queue().LetWait(reinterpret_cast<StreamId>(stream)); }, text);
  cudaGraph_t graph = nullptr;
  STEPNET_CUDA_CALL(cudaStreamEndCapture(stream, &graph));
  STEPNET_CUDA_CALL(cudaGraphDestroy(graph));
  STEPNET_CUDA_CALL(cudaStreamDestroy(stream));
  queue().Wait();
}

TEST_F(CudaStreams, TheDeviceThatOthersHaveChosenStays) {
  if (NumCudaDevices() < 2) GTEST_SKIP() << "there is one GPU";
  STEPNET_CUDA_CALL(cudaSetDevice(1));
  STEPNET_CUDA_CALL(cudaFree(nullptr));  // which makes it the thread's
  int current = -1;
  {
    const std::shared_ptr<void> thread = runtime().MakeCurrent();
    STEPNET_CUDA_CALL(cudaGetDevice(&current));
    EXPECT_EQ(current, 0);
    Tensor::Zeros(DType::kUInt8, {kBytes}, kGpu).To({});
  }
  STEPNET_CUDA_CALL(cudaGetDevice(&current));
  EXPECT_EQ(current, 1);
  STEPNET_CUDA_CALL(cudaSetDevice(0));
}

}  // namespace
}  // namespace stepnet
