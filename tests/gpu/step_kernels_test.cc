// Step nets hold no copies between devices: a GPU has a kernel for each of their operators. No GPU is needed to know.
#include <gtest/gtest.h>

#include <filesystem>

#include "stepnet/io/proto_io.h"
#include "stepnet/nets/completion.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/tests/core/source_path.h"

namespace stepnet {
namespace {

namespace fs = std::filesystem;

TEST(StepKernels, EveryGoldenStepNetCanRunOnTheGpu) {
  if (FindDeviceSpec(DeviceKind::kCuda) == nullptr) GTEST_SKIP() << "built without CUDA";
  const NetCheckOptions options{.run = OnDevice({}, {.kind = DeviceKind::kCuda}),
                                .blob_exists = [](const std::string&) { return true; }};
  std::map<std::string, int> problems;
  int nets = 0;
  for (const auto& entry : fs::directory_iterator(SourcePath("tests/golden"))) {
    const fs::path file = entry.path() / "net.pb";
    if (!fs::exists(file)) continue;
    NetDef net;
    ReadMessage(file.string(), &net);
    for (const NetProblem& problem : CheckNet(*Completed(net), options)) ++problems[problem.message];
    ++nets;
  }
  EXPECT_GT(nets, 150);
  EXPECT_EQ(problems, (std::map<std::string, int>()));
}

}  // namespace
}  // namespace stepnet
