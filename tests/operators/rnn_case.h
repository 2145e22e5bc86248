// RnnCase: a net of one operator RNN with random inputs, and what it gives by its equations, sequence by sequence.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/core/tensor.h"
#include "stepnet/core/workspace.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

using Feeds = std::vector<std::pair<std::string, Tensor>>;

struct RnnCase {
  std::string mode = "lstm";
  std::int64_t steps = 4, batch = 3, inputs = 2, state = 3, layers = 1, directions = 1;
  std::int64_t projection = 0;  // 0: none
  std::vector<std::int64_t> lengths = {};
  bool has_clip = false, clips_nan = false;
  float clip_min = 0, clip_max = 0;
  float p = 0;

  bool is_lstm() const { return mode == "lstm"; }
  std::int64_t gates() const { return is_lstm() ? 4 : mode == "gru" ? 3 : 1; }
  std::int64_t output() const { return projection > 0 ? projection : state; }
  std::int64_t NumParameters() const;

  NetDef Net() const;  // y, h_last[, c_last] = RNN(x, w, h[, c][, n])
  std::vector<std::string> Outputs() const;
  Feeds RandomFeeds(unsigned seed, DType dtype = DType::kDouble) const;
};

// The outputs in the order of Outputs(), in double. `feeds` are those of the case, in double.
// Source of the equations: MXNet 1.9.1's operator RNN as it was measured (tests/golden_mxnet/README.md).
std::vector<std::vector<double>> ExpectedOutputs(const RnnCase& rnn, const Feeds& feeds);

// Puts copies into the workspace.
void Feed(const Feeds& feeds, Workspace& workspace);
Tensor& Find(Feeds& feeds, const std::string& name);
// Runs the net once in a workspace of its own.
void RunFed(const NetDef& net, const Feeds& feeds);

template <typename T>
Tensor LengthsOf(const std::vector<double>& values) {
  Tensor lengths(kDTypeOf<T>, Shape({static_cast<std::int64_t>(values.size())}));
  for (size_t i = 0; i < values.size(); ++i) lengths.data<T>()[i] = static_cast<T>(values[i]);
  return lengths;
}

}  // namespace stepnet
