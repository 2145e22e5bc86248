// RecurrentCase: a net with one RecurrentNetwork, and optionally its gradient, put together in a few lines.
//
//   RecurrentCase net;
//   net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Sum(x_t, h_prev)");
//   net.Output("h_all", "h", 1);
//   net.Feed("x", Random({5, 3, 4}, 1)).Feed("h0", Random({3, 4}, 2)).Run();
//   net.Get("h_all");
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stepnet/nets/net.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

// "y, z = Type(a, b)"; "= Type(a)" or "Type(a)" has no outputs.
OperatorDef ParseOp(const std::string& text);
void AddInt(OperatorDef* op, const std::string& name, std::int64_t value);
void AddInts(OperatorDef* op, const std::string& name, const std::vector<std::int64_t>& values);
void AddString(OperatorDef* op, const std::string& name, const std::string& value);
void AddStrings(OperatorDef* op, const std::string& name, const std::vector<std::string>& values);

// A sequence [T, 1, 1] of these doubles, and a tensor [1, 1].
Tensor Column(const std::vector<double>& values);
Tensor One(double value);
// Uniform in [-1, 1).
Tensor Random(const Shape& shape, unsigned seed, DType dtype = DType::kDouble);
std::vector<double> Values(const Tensor& tensor);
// Central differences of `loss` by the elements of `tensor` that a build tries (IsTried), by their numbers. The tensor
// is double, and as it was when this returns.
std::map<std::int64_t, double> Differences(const Tensor& tensor, const std::function<double()>& loss);
// Bit for bit.
void ExpectSame(const Tensor& a, const Tensor& b, const std::string& what);

class RecurrentCase {
 public:
  RecurrentCase();

  // Forward. The first Sequence is input 0; without `internal` the step does not see it.
  RecurrentCase& Sequence(const std::string& blob, const std::string& internal, std::int64_t offset = 0,
                          std::int64_t window = 1);
  RecurrentCase& State(const std::string& name, const std::string& initial, const std::string& prev,
                       const std::string& next, std::int64_t num_initial = 1);
  RecurrentCase& Link(const std::string& internal, const std::string& external, std::int64_t offset,
                      std::int64_t window = 1);
  RecurrentCase& Captured(const std::string& blob);
  RecurrentCase& Step(const std::string& op);
  RecurrentCase& Step(const OperatorDef& op);
  RecurrentCase& Output(const std::string& name, const std::string& state, std::int64_t offset);

  // Backward. BackwardStep("") says that there is a backward step net, an empty one if nothing else is added.
  RecurrentCase& BackwardStep(const std::string& op);
  RecurrentCase& BackwardStep(const OperatorDef& op);
  RecurrentCase& BackwardLink(const std::string& internal, const std::string& external, std::int64_t offset,
                              std::int64_t window = 1);
  RecurrentCase& Param(const std::string& blob, const std::string& gradient);
  // This output has a gradient, fed as "<output>_grad".
  RecurrentCase& OutputGradient(const std::string& output);
  // Adds the gradient operator to the net; its outputs are called "<input>_grad" unless given.
  RecurrentCase& WithGradient(std::vector<std::string> outputs = {});

  // What to change before the net is made.
  OperatorDef& forward() { return forward_; }
  OperatorDef& gradient() { return gradient_; }
  NetDef& step_net() { return step_net_; }
  NetDef Build() const;

  RecurrentCase& Feed(const std::string& blob, const Tensor& tensor);
  // Makes the net, the first time, and runs it.
  RecurrentCase& Run();
  Tensor Get(const std::string& blob) const { return workspace_->GetTensor(blob); }
  Workspace& workspace() { return *workspace_; }
  Net& net();

 private:
  int InputIndex(const std::string& blob);

  struct LinkArgs {
    std::vector<std::string> internal, external;
    std::vector<std::int64_t> offset, window;
  };
  OperatorDef forward_;
  OperatorDef gradient_;
  NetDef step_net_;
  NetDef backward_net_;
  bool has_backward_ = false;
  bool has_gradient_ = false;
  LinkArgs links_;
  LinkArgs backward_links_;
  std::vector<std::string> states_;
  std::vector<std::int64_t> initial_ids_;
  std::vector<std::string> alias_src_, alias_dst_;
  std::vector<std::int64_t> alias_offset_;
  std::vector<std::int64_t> params_;
  std::vector<std::string> param_grads_;
  std::vector<std::int64_t> outputs_with_grads_;
  std::vector<std::string> gradient_outputs_;
  std::unique_ptr<Workspace> workspace_ = std::make_unique<Workspace>();
  std::unique_ptr<Net> net_;
};

// Checks every gradient that the case computes against central differences, in double. `make` gives a fresh case with
// its gradient; `feeds` are its inputs. The loss is the sum of the outputs in `outputs`, each weighted with random
// numbers that are fed as "<output>_grad"; `gradients` maps inputs to the blobs with their gradients, "<input>_grad"
// when empty.
void ExpectGradientsMatch(const std::function<RecurrentCase()>& make,
                          const std::vector<std::pair<std::string, Tensor>>& feeds,
                          const std::vector<std::string>& outputs,
                          std::vector<std::pair<std::string, std::string>> gradients = {});

// Makes backward step nets and gradients of the sum of `outputs`, and compares the gradients of all `feeds` of double,
// zero where none was made, with differences.
void ExpectMadeGradientsMatch(const NetDef& forward, const std::vector<std::string>& outputs,
                              const std::vector<std::pair<std::string, Tensor>>& feeds);

}  // namespace stepnet
