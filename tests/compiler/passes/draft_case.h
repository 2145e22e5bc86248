// DraftCase: a draft put together in a few lines, for tests that compare its text before and after a pass.
//
//   DraftCase step({"s = MatMul(w, v)"});
//   step.Whole("w", {2, 3}).Whole("v", {3, 2}).AddsTo("sum", "s", {2, 2});
//   EXPECT_EQ(step.Before(), "…");
//   EXPECT_EQ(step.After(FoldSums), "…");
#pragma once

#include <string>
#include <vector>

#include "../../executor/recurrent_case.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/recurrent_plan.h"

namespace stepnet {

class DraftCase {
 public:
  explicit DraftCase(const std::vector<std::string>& ops) {
    net_.set_name("step");
    for (const std::string& op : ops) *net_.add_op() = ParseOp(op);
  }

  // A tensor that all steps see.
  DraftCase& Whole(const std::string& blob, const Shape& shape) {
    request_.bound.push_back(BindWhole(blob, request_.num_bases++, InfoOf(shape)));
    return *this;
  }
  // Row t of a sequence, [T] + row.
  DraftCase& Row(const std::string& blob, const Shape& row) {
    const Link link{.internal = blob, .external = blob + "s"};
    request_.bound.push_back(BindLink(link, request_.num_bases++, DType::kFloat, row));
    return *this;
  }
  DraftCase& AddsTo(const std::string& sum, const std::string& blob, const Shape& shape) {
    return Out(Transfer::Kind::kAddOut, sum, blob, shape);
  }
  DraftCase& CopiesTo(const std::string& copy, const std::string& blob, const Shape& shape) {
    return Out(Transfer::Kind::kCopyOut, copy, blob, shape);
  }

  std::string Before() { return Import().ToString(); }
  std::string After(void (*pass)(StepDraft*)) {
    StepDraft draft = Import();
    pass(&draft);
    return draft.ToString();
  }

 private:
  static TensorInfo InfoOf(const Shape& shape) { return {.dtype = DType::kFloat, .shape = shape}; }

  DraftCase& Out(Transfer::Kind kind, const std::string& outside, const std::string& blob, const Shape& shape) {
    const BoundBlob memory = BindWhole(outside, request_.num_bases++, InfoOf(shape));
    request_.transfers.push_back({.kind = kind, .blob = blob, .outside = memory.slot, .info = memory.info});
    return *this;
  }

  StepDraft Import() {
    request_.net = &net_;
    return ImportStep(request_);
  }

  NetDef net_;
  StepPlanRequest request_;
};

}  // namespace stepnet
