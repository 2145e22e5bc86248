// What tests of nets that a device records have in common.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "tested_devices.h"

namespace stepnet {

class RecordedNetsOnEveryDevice : public OnEveryDevice {
 protected:
  // How many recordings the poison device has played; those of others are not counted.
  std::int64_t NumPlayed() const { return CountsOfPoisonDevice().played; }
  bool IsCounted() const { return GetParam() == kPoisonDevice; }
};

// A net on a device, and on the CPU, in workspaces of their own.
class Twins {
 public:
  explicit Twins(RunOptions options) : options_(std::move(options)) {}

  void Add(const NetDef& def) {
    nets_.push_back({Net::Create(def, there_, options_), Net::Create(def, on_cpu_, Reference())});
  }
  void Feed(const std::string& blob, const Tensor& tensor) {
    there_.SetTensor(blob, tensor.Clone());
    on_cpu_.SetTensor(blob, tensor.Clone());
  }
  // Runs net k on both, which end in the same way and leave the same blobs.
  void Run(const std::string& what, size_t k = 0) {
    const std::string expected = ErrorOf([&] { nets_[k].on_cpu->Run(); });
    const std::string found = ErrorOf([&] {
      nets_[k].there->Run();
      nets_[k].there->Wait();
    });
    EXPECT_EQ(found.substr(0, found.find(" with ")), expected.substr(0, expected.find(" with "))) << what;
    ExpectNearBlobs(there_, on_cpu_, ToleranceOf(options_.device()), what);
  }
  // The same of a run that ends with a fault, of which `kept` alone is what it was before.
  void RunWithFault(const std::string& kept) {
    const std::string expected = ErrorOf([&] { nets_[0].on_cpu->Run(); });
    const std::string found = ErrorOf([&] { nets_[0].there->Run(); });
    EXPECT_NE(expected, "no error");
    EXPECT_EQ(found.substr(0, found.find(" with ")), expected.substr(0, expected.find(" with ")));
    ExpectNearTensor(there_.GetTensor(kept), on_cpu_.GetTensor(kept), ToleranceOf(options_.device()), kept);
  }
  void RunOnCpu() { nets_[0].on_cpu->Run(); }
  Net& there(size_t k = 0) { return *nets_[k].there; }
  Workspace& workspace() { return there_; }
  Workspace& on_cpu() { return on_cpu_; }

 private:
  struct Twin {
    std::unique_ptr<Net> there, on_cpu;
  };
  const RunOptions options_;
  Workspace there_, on_cpu_;
  std::vector<Twin> nets_;
};

inline NetDef NetOf(const std::vector<std::string>& ops) {
  NetDef net;
  for (const std::string& op : ops) *net.add_op() = ParseOp(op);
  return net;
}

inline Tensor Values(std::initializer_list<float> values) {
  return Tensor::Of<float>({static_cast<std::int64_t>(values.size())}, values);
}

}  // namespace stepnet
