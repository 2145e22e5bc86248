// Several steps of an operator that updates parameters, against a formula in double.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "op_test.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/net.h"

namespace stepnet {

using Steps = std::vector<std::vector<double>>;  // the gradient of each step

// Runs the operator, given as text, for six steps in float and in double. It updates p (of n elements) in place from
// the gradient g and the rate lr, a float; m and v start as zeros, iter counts the steps that are done. After each
// step, `formula` says from the first p and the gradients so far what p should be.
inline void ExpectTraining(const std::string& op, std::int64_t n, double rate,
                           const std::function<std::vector<double>(std::vector<double> p, const Steps&)>& formula) {
  NetDef net;
  ParseMessageText("op { " + op + R"( } op { type: "Iter" input: "iter" output: "iter" })", "the test", &net);
  for (const DType dtype : {DType::kFloat, DType::kDouble}) {
    const auto random = [&](int seed) { return OpTest("Copy").Random("x", {n}, seed).Run(dtype)[0]; };
    Workspace workspace;
    workspace.SetTensor("p", random(1));
    workspace.SetTensor("m", Tensor::Zeros(dtype, {n}));
    workspace.SetTensor("v", Tensor::Zeros(dtype, {n}));
    workspace.SetTensor("lr", Tensor::Of<float>({1}, {static_cast<float>(rate)}));
    workspace.SetTensor("iter", Tensor::Of<std::int64_t>({1}, {0}));
    const std::vector<double> start = ToDoubles(workspace.GetTensor("p"));
    Steps gradients;
    for (int step = 0; step < 6; ++step) {
      workspace.SetTensor("g", random(2 + step));
      gradients.push_back(ToDoubles(workspace.GetTensor("g")));
      RunNetOnce(net, workspace);
      const std::vector<double> expected = formula(start, gradients);
      const std::vector<double> got = ToDoubles(workspace.GetTensor("p"));
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(got[i], expected[i], (dtype == DType::kFloat ? 1e-6 : 1e-13) * (1 + std::abs(expected[i])))
            << dtype << ", step " << step << ", element " << i << " of " << n;
      }
    }
  }
}

}  // namespace stepnet
