#include "rnn_case.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>

#include "stepnet/nets/net.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

using Row = std::vector<double>;

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

// One layer in one direction, with its places in the vector of parameters.
struct Cell {
  const RnnCase& rnn;
  const double* i2h;
  const double* h2h;
  const double* h2r;
  const double* i2h_bias;
  const double* h2h_bias;
  std::int64_t inputs;

  static Row Product(const double* matrix, const double* bias, std::int64_t rows, const Row& x) {
    Row y(rows);
    for (std::int64_t i = 0; i < rows; ++i) {
      y[i] = bias == nullptr ? 0 : bias[i];
      for (size_t j = 0; j < x.size(); ++j) y[i] += matrix[i * x.size() + j] * x[j];
    }
    return y;
  }

  double Used(double c) const {
    if (!rnn.has_clip) return c;
    if (std::isnan(c)) return rnn.clips_nan ? rnn.clip_min : c;
    return std::min<double>(std::max<double>(c, rnn.clip_min), rnn.clip_max);
  }

  void Step(const Row& x, Row* h, Row* c) const {
    const std::int64_t n = rnn.state;
    const Row a = Product(i2h, i2h_bias, rnn.gates() * n, x), e = Product(h2h, h2h_bias, rnn.gates() * n, *h);
    const auto gate = [&](std::int64_t k, std::int64_t j) { return Logistic(a[k * n + j] + e[k * n + j]); };
    Row next(n);
    for (std::int64_t j = 0; j < n; ++j) {
      if (rnn.mode == "rnn_relu") next[j] = std::max(0.0, a[j] + e[j]);
      if (rnn.mode == "rnn_tanh") next[j] = std::tanh(a[j] + e[j]);
      if (rnn.mode == "gru") {
        const double proposed = std::tanh(a[2 * n + j] + gate(0, j) * e[2 * n + j]);
        next[j] = (1 - gate(1, j)) * proposed + gate(1, j) * (*h)[j];
      }
      if (rnn.is_lstm()) {
        (*c)[j] = gate(1, j) * Used((*c)[j]) + gate(0, j) * std::tanh(a[2 * n + j] + e[2 * n + j]);
        next[j] = gate(3, j) * std::tanh(Used((*c)[j]));
      }
    }
    *h = rnn.projection > 0 ? Product(h2r, nullptr, rnn.projection, next) : next;
  }

  // h of each step.
  std::vector<Row> Run(const std::vector<Row>& x, bool reverse, Row* h, Row* c) const {
    std::vector<Row> given(x.size());
    for (size_t k = 0; k < x.size(); ++k) {
      const size_t t = reverse ? x.size() - 1 - k : k;
      Step(x[t], h, c);
      given[t] = *h;
    }
    return given;
  }
};

// All weights come first, then all biases.
std::vector<Cell> CellsOf(const RnnCase& rnn, const double* parameters) {
  std::vector<Cell> cells;
  const std::int64_t rows = rnn.gates() * rnn.state;
  for (std::int64_t k = 0; k < rnn.layers * rnn.directions; ++k) {
    Cell cell{.rnn = rnn,
              .i2h = parameters,
              .h2h = nullptr,
              .h2r = nullptr,
              .i2h_bias = nullptr,
              .h2h_bias = nullptr,
              .inputs = k < rnn.directions ? rnn.inputs : rnn.directions * rnn.output()};
    cell.h2h = cell.i2h + rows * cell.inputs;
    cell.h2r = cell.h2h + rows * rnn.output();
    parameters = cell.h2r + rnn.projection * rnn.state;
    cells.push_back(cell);
  }
  for (Cell& cell : cells) {
    cell.i2h_bias = parameters;
    cell.h2h_bias = parameters + rows;
    parameters += 2 * rows;
  }
  return cells;
}

}  // namespace

std::int64_t RnnCase::NumParameters() const {
  const std::int64_t rows = gates() * state, above = directions * output();
  std::int64_t n = 0;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    n += directions * (rows * ((layer == 0 ? inputs : above) + output() + 2) + projection * state);
  }
  return n;
}

std::vector<std::string> RnnCase::Outputs() const {
  std::vector<std::string> outputs = {"y", "h_last"};
  if (is_lstm()) outputs.emplace_back("c_last");
  return outputs;
}

NetDef RnnCase::Net() const {
  NetDef net;
  net.set_name("test");
  std::vector<std::string> read = {"x", "w", "h"};
  if (is_lstm()) read.emplace_back("c");
  if (!lengths.empty()) read.emplace_back("n");
  OpBuilder op = AddOp(&net, "RNN", read, Outputs());
  op.String("mode", mode).Int("state_size", state).Int("num_layers", layers).Int("state_outputs", 1);
  if (directions == 2) op.Int("bidirectional", 1);
  if (projection > 0) op.Int("projection_size", projection);
  if (!lengths.empty()) op.Int("use_sequence_length", 1);
  if (has_clip) op.Float("lstm_state_clip_min", clip_min).Float("lstm_state_clip_max", clip_max);
  if (clips_nan) op.Int("lstm_state_clip_nan", 1);
  if (p > 0) op.Float("p", p);
  return net;
}

Feeds RnnCase::RandomFeeds(unsigned seed, DType dtype) const {
  Feeds feeds = {{"x", Random({steps, batch, inputs}, seed, dtype)},
                 {"w", Random({NumParameters()}, seed + 1, dtype)},
                 {"h", Random({layers * directions, batch, output()}, seed + 2, dtype)}};
  if (is_lstm()) feeds.emplace_back("c", Random({layers * directions, batch, state}, seed + 3, dtype));
  if (!lengths.empty()) feeds.emplace_back("n", Tensor::Of<std::int64_t>({batch}, lengths));
  return feeds;
}

std::vector<std::vector<double>> ExpectedOutputs(const RnnCase& rnn, const Feeds& feeds) {
  const std::int64_t width = rnn.directions * rnn.output(), rows = rnn.layers * rnn.directions;
  const std::vector<Cell> cells = CellsOf(rnn, feeds[1].second.data<double>());
  // Row k of what is b's.
  const auto row_of = [&](const Tensor& tensor, std::int64_t k, std::int64_t b, std::int64_t size) {
    const double* from = tensor.data<double>() + (k * rnn.batch + b) * size;
    return Row(from, from + size);
  };
  Row y(rnn.steps * rnn.batch * width), h_last(rows * rnn.batch * rnn.output()), c_last(rows * rnn.batch * rnn.state);
  const auto put = [&](const Row& values, std::int64_t k, std::int64_t b, Row* to) {
    std::ranges::copy(values, to->begin() + (k * rnn.batch + b) * std::ssize(values));
  };
  for (std::int64_t b = 0; b < rnn.batch; ++b) {
    const std::int64_t length = rnn.lengths.empty() ? rnn.steps : rnn.lengths[b];
    std::vector<Row> sequence;
    for (std::int64_t t = 0; t < length; ++t) sequence.push_back(row_of(feeds[0].second, t, b, rnn.inputs));
    for (std::int64_t layer = 0; layer < rnn.layers; ++layer) {
      std::vector<Row> above(length);
      for (std::int64_t d = 0; d < rnn.directions; ++d) {
        const std::int64_t row = layer * rnn.directions + d;
        Row h = row_of(feeds[2].second, row, b, rnn.output()), c;
        if (rnn.is_lstm()) c = row_of(feeds[3].second, row, b, rnn.state);
        const std::vector<Row> given = cells[row].Run(sequence, /*reverse=*/d == 1, &h, &c);
        for (std::int64_t t = 0; t < length; ++t) above[t].insert(above[t].end(), given[t].begin(), given[t].end());
        put(h, row, b, &h_last);
        put(c, row, b, &c_last);
      }
      sequence = std::move(above);
    }
    for (std::int64_t t = 0; t < length; ++t) put(sequence[t], t, b, &y);
  }
  if (!rnn.is_lstm()) return {y, h_last};
  return {y, h_last, c_last};
}

void Feed(const Feeds& feeds, Workspace& workspace) {
  for (const auto& [name, tensor] : feeds) workspace.SetTensor(name, tensor.Clone());
}

Tensor& Find(Feeds& feeds, const std::string& name) {
  for (auto& [key, tensor] : feeds) {
    if (key == name) return tensor;
  }
  throw std::runtime_error("no feed " + name);
}

void RunFed(const NetDef& net, const Feeds& feeds) {
  Workspace workspace;
  Feed(feeds, workspace);
  RunNetOnce(net, workspace);
}

}  // namespace stepnet
