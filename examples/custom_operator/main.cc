// Runs a net from a file that uses acme.Clip, and prints what it makes of a short sequence.
//
//   custom_operator NET
#include <cstdio>
#include <exception>

#include "stepnet/core/workspace.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/net.h"
#include "stepnet/proto/net.pb.h"

namespace {

// Reads the net, feeds it x, runs it, prints `output`, which has T rows of two elements.
void Run(const char* file) {
  stepnet::NetDef def;
  stepnet::ReadMessage(file, &def);

  stepnet::Workspace workspace;
  workspace.SetTensor("x", stepnet::Tensor::Of<float>({4, 1, 2}, {1, -1, 1, 0, 1, 1, 1, 2}));  // [T, B, D]
  stepnet::Net::Create(def, workspace)->Run();

  const stepnet::Tensor& output = workspace.GetTensor("output");
  std::printf("output %s\n", output.Description().c_str());
  for (std::int64_t t = 0; t < output.dim(0); ++t) {
    const float* row = output.data<float>() + 2 * t;
    std::printf("  t = %d: %5.2f %5.2f\n", static_cast<int>(t), row[0], row[1]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: custom_operator NET\n");
    return 2;
  }
  try {
    Run(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "custom_operator: %s\n", error.what());
    return 1;
  }
}
