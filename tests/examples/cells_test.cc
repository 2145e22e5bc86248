// The cells of examples/cells against their equations, evaluated in double.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "stepnet/core/workspace.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/core/source_path.h"

namespace stepnet {
namespace {

using Vector = std::vector<double>;

constexpr int kSize = 2;  // of the input and of the state of every cell

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Runs examples/cells/<name>.prototxt on a sequence of steps [T][B * kSize].
class Cell {
 public:
  explicit Cell(const std::string& name) { ReadMessage(SourcePath("examples/cells/") + name + ".prototxt", &net_); }

  // The values of a blob after the net has run on the sequence of examples/cells/x.prototxt, and those of its
  // parameters.
  void Run() {
    for (auto& [name, tensor] : ReadTensors(SourcePath("examples/cells/x.prototxt"))) {
      workspace_.SetTensor(name, tensor);
    }
    EXPECT_TRUE(CheckNet(net_).empty());
    Net::Create(net_, workspace_)->Run();
  }
  Vector Values(const std::string& blob) const {
    const Tensor& tensor = workspace_.GetTensor(blob);
    return {tensor.data<float>(), tensor.data<float>() + tensor.size()};
  }
  std::vector<Vector> Steps(const std::string& blob, int width) const {
    const Vector values = Values(blob);
    std::vector<Vector> steps;
    for (size_t t = 0; t < values.size() / width; ++t) {
      steps.emplace_back(values.begin() + t * width, values.begin() + (t + 1) * width);
    }
    return steps;
  }
  // Row `row` of the product of matrix `blob` with v.
  double Product(const std::string& blob, int row, const Vector& v) const {
    const Vector matrix = Values(blob);
    double sum = 0;
    for (size_t i = 0; i < v.size(); ++i) sum += matrix[row * v.size() + i] * v[i];
    return sum;
  }

 private:
  NetDef net_;
  Workspace workspace_;
};

void ExpectNear(const Vector& got, const Vector& wanted, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-6) << what << ", element " << i;
}

TEST(ExampleCells, ElmanFollowsItsEquations) {
  Cell cell("elman");
  cell.Run();
  const std::vector<Vector> x = cell.Steps("x", kSize);
  ASSERT_EQ(x.size(), 3u);
  Vector h(kSize);
  for (size_t t = 0; t < x.size(); ++t) {
    Vector next(kSize);
    for (int k = 0; k < kSize; ++k) {
      next[k] = std::tanh(cell.Product("W", k, x[t]) + cell.Product("U", k, h) + cell.Values("b")[k]);
    }
    h = next;
    ExpectNear(cell.Steps("hidden_all", kSize)[t], h, "hidden of step " + std::to_string(t));
    ExpectNear(cell.Steps("y", 1)[t], {cell.Product("V", 0, h) + cell.Values("c")[0]}, "y of " + std::to_string(t));
  }
}

TEST(ExampleCells, LstmFollowsItsEquations) {
  Cell cell("lstm");
  cell.Run();
  const std::vector<Vector> x = cell.Steps("x", kSize);
  Vector h(kSize);
  Vector c(kSize);
  for (size_t t = 0; t < x.size(); ++t) {
    Vector next_h(kSize);
    for (int k = 0; k < kSize; ++k) {
      const auto gate = [&](int index) {
        const int row = index * kSize + k;
        return cell.Product("W", row, x[t]) + cell.Product("U", row, h) + cell.Values("b")[row];
      };
      const double i = Sigmoid(gate(0));
      const double f = Sigmoid(gate(1));
      const double o = Sigmoid(gate(2));
      const double g = std::tanh(gate(3));
      c[k] = f * c[k] + i * g;
      next_h[k] = o * std::tanh(c[k]);
    }
    h = next_h;
    ExpectNear(cell.Steps("hidden_all", kSize)[t], h, "hidden of step " + std::to_string(t));
  }
  ExpectNear(cell.Values("hidden_last"), h, "hidden_last");
  ExpectNear(cell.Values("cell_last"), c, "cell_last");
}

TEST(ExampleCells, GruFollowsItsEquations) {
  Cell cell("gru");
  cell.Run();
  const std::vector<Vector> x = cell.Steps("x", kSize);
  Vector h(kSize);
  for (size_t t = 0; t < x.size(); ++t) {
    const auto projected = [&](int row) { return cell.Product("W", row, x[t]) + cell.Values("b")[row]; };
    Vector remembered(kSize);
    Vector u(kSize);
    for (int k = 0; k < kSize; ++k) {
      remembered[k] = Sigmoid(projected(k) + cell.Product("U_ru", k, h)) * h[k];
      u[k] = Sigmoid(projected(kSize + k) + cell.Product("U_ru", kSize + k, h));
    }
    Vector next(kSize);
    for (int k = 0; k < kSize; ++k) {
      const double n = std::tanh(projected(2 * kSize + k) + cell.Product("U_n", k, remembered));
      next[k] = u[k] * h[k] + (1 - u[k]) * n;
    }
    h = next;
    ExpectNear(cell.Steps("hidden_all", kSize)[t], h, "hidden of step " + std::to_string(t));
  }
  ExpectNear(cell.Values("hidden_last"), h, "hidden_last");
}

}  // namespace
}  // namespace stepnet
