// KeptOutputs: what an operator of a net computes of constant tensors alone (Tensor::SetConstant) is computed once.
#pragma once

#include <span>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/nets/net_operator.h"

namespace stepnet {

// One operator's, which is bound to blobs; they stay from one run of the net to the next.
class KeptOutputs {
 public:
  // Says of each operator of a net whether its outputs may be kept. Such an operator has inputs, does nothing beside,
  // and nothing else writes to the same blobs.
  static std::vector<bool> MayBe(const NetDef& net);

  explicit KeptOutputs(const NetOperator& op) : op_(op) {}

  // Whether the outputs are what a run would give: those of the last Keep, of the same constants.
  bool Hold() const;
  // After a run without a fault: makes the outputs constants, if all inputs are and the operator gives the same for the
  // same inputs, so that operators behind it can keep theirs.
  void Keep();

 private:
  // What a blob holds, with a number that no other tensor of the process has.
  struct Constant {
    std::uint64_t id = 0;  // 0: none
    const void* address = nullptr;
    DType dtype = DType::kFloat;
    Shape shape = {};

    static Constant Of(const Blob& blob);
    bool operator==(const Constant&) const = default;
  };

  static bool AreAll(const std::vector<Constant>& constants, std::span<Blob* const> blobs);
  bool DependsOnInputsAlone() const;

  const NetOperator& op_;
  std::vector<Constant> inputs_;  // none: nothing is kept
  std::vector<Constant> outputs_;
};

}  // namespace stepnet
