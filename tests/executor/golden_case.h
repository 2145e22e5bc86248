// Nets that real Caffe2 built, with the inputs that it was given, and those of MXNet's operator RNN: the cases of
// tests/golden and tests/golden_mxnet.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/net.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

struct GoldenCase {
  std::string name;
  NetDef net;
  std::vector<NamedTensors> runs;  // inputs of each
};

const std::vector<GoldenCase>& GoldenCases();
// The same; in a build with sanitizers each third of them, other ones for the next `turn`.
std::vector<const GoldenCase*> GoldenCasesInTurn(size_t turn);

// A workspace in which the runs of the case have been one after the other.
class CaseRun {
 public:
  CaseRun(const GoldenCase& golden, const RunOptions& options) : golden_(golden), options_(options) {}

  const Workspace& Run(size_t r);

 private:
  const GoldenCase& golden_;
  const RunOptions options_;
  Workspace workspace_;
  std::unique_ptr<Net> net_;
};

}  // namespace stepnet
