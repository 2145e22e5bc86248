// What the options of a cell make of its steps: each sequence of a batch alone, layer by layer, one direction at a
// time.
#include "cell_references.h"

#include <algorithm>
#include <charconv>

#include "stepnet/core/exact_number.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

using Rows = std::vector<Vector>;  // of a sequence, one a step

// What one run over a sequence gives.
struct DirectionRun {
  std::map<std::string, Rows> all;  // of each blob that is an output
  Vectors last;
};

const CellState* FindState(const CellDef& cell, const std::string& name) {
  for (const CellState& state : cell.state()) {
    if (state.name() == name) return &state;
  }
  return nullptr;
}

// Item b of a tensor [rows, B, …], or of one that is repeated over the batch, [rows, 1, …].
Vector ItemOf(const Tensor& tensor, std::int64_t row, std::int64_t b) {
  const std::int64_t size = tensor.shape().SizeFrom(2);
  const double* data = tensor.data<double>() + (row * tensor.dim(1) + (tensor.dim(1) == 1 ? 0 : b)) * size;
  return {data, data + size};
}

class SequenceRunner {
 public:
  SequenceRunner(const CellDef& cell, const ReferenceStep& step, const Tensors& given, std::int64_t b)
      : cell_(cell), options_(cell.options()), step_(step), given_(given), b_(b) {}

  // The steps of an input.
  Rows StepsOf(const std::string& input) const {
    const Tensor& x = given_.at(input);
    Rows rows;
    const std::int64_t count = x.dim(options_.batch_major() ? 1 : 0);
    for (std::int64_t t = 0; t < count; ++t) {
      rows.push_back(options_.batch_major() ? ItemOf(x, b_, t) : ItemOf(x, t, b_));
    }
    return rows;
  }

  // Whether step t counts.
  std::vector<bool> ValidSteps(size_t num_steps) const {
    std::vector<bool> valid(num_steps, true);
    for (size_t t = 0; t < num_steps; ++t) {
      const auto step = static_cast<std::int64_t>(t);
      if (options_.has_lengths()) valid[t] = step < given_.at(options_.lengths()).data<std::int32_t>()[b_];
      if (!options_.has_mask()) continue;
      const Tensor& mask = given_.at(options_.mask());
      valid[t] = mask.data<bool>()[options_.batch_major() ? b_ * mask.dim(1) + step : step * mask.dim(1) + b_];
    }
    return valid;
  }

  // The last dimension of a state that is a matrix; 0 of other blobs, which have no other.
  size_t WidthOf(const std::string& blob, const std::string& prefix) const {
    if (FindState(cell_, blob) == nullptr) return 0;
    const Shape& shape = given_.at(prefix + blob + "_init").shape();
    return shape.rank() > 3 ? static_cast<size_t>(shape[-1]) : 0;
  }

  // Runs a layer over `inputs`, the steps of each input, in one direction.
  DirectionRun Run(const std::vector<Rows>& inputs, const std::vector<bool>& valid, const std::string& prefix,
                   bool reverse) const {
    std::vector<size_t> order(valid.size());
    for (size_t t = 0; t < order.size(); ++t) order[t] = t;
    // Sequences with lengths are turned around each for itself; what lies behind them stays where it is.
    const auto num_valid = std::ranges::count(valid, true);
    if (reverse) std::reverse(order.begin(), options_.has_lengths() ? order.begin() + num_valid : order.end());

    Vectors blobs = Shared(prefix);
    Vectors last;
    for (const CellState& state : cell_.state()) blobs[state.name()] = Initial(state, prefix);
    DirectionRun run;
    for (const CellOutput& output : cell_.output()) run.all[output.blob()].resize(valid.size());
    for (const size_t t : order) {
      for (int i = 0; i < cell_.input_size(); ++i) blobs[cell_.input(i).name()] = inputs[i][t];
      Vectors written = step_(blobs);
      for (const CellState& state : cell_.state()) {
        Vector& rows = blobs[state.name()];
        Vector& row = written.at(state.name());
        UpdateState(state, rows, valid[t], &row);
        rows.erase(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(row.size()));
        rows.insert(rows.end(), row.begin(), row.end());
      }
      for (auto& [blob, rows] : run.all) {
        rows[t] = written.at(blob);
        if (valid[t]) {
          last[blob] = rows[t];
        } else if (options_.beyond_length() == CellOptions::ZERO) {
          std::ranges::fill(rows[t], 0);
        } else if (FindState(cell_, blob) == nullptr) {
          rows[t] = last.contains(blob) ? last.at(blob) : Vector(rows[t].size(), 0);
        }
      }
    }
    for (const auto& [blob, rows] : run.all) {
      const CellState* state = FindState(cell_, blob);
      if (state == nullptr) {
        run.last[blob] = last[blob];  // of no elements where no step counts: zeros
      } else {
        const Vector& all = blobs.at(blob);
        run.last[blob] = {all.end() - static_cast<std::ptrdiff_t>(all.size() / state->window()), all.end()};
      }
    }
    return run;
  }

 private:
  // Parameters by the names that the step knows, and what sequence b sees of captured tensors.
  Vectors Shared(const std::string& prefix) const {
    Vectors shared;
    for (const CellParameter& parameter : cell_.parameter()) {
      const Tensor& tensor = given_.at(prefix + parameter.name());
      shared[parameter.name()] = {tensor.data<double>(), tensor.data<double>() + tensor.size()};
    }
    for (const CellCapture& capture : cell_.capture()) {  // [S, B, …]
      const Tensor& tensor = given_.at(capture.name());
      for (std::int64_t s = 0; s < tensor.dim(0); ++s) {
        const Vector item = ItemOf(tensor, s, b_);
        shared[capture.name()].insert(shared[capture.name()].end(), item.begin(), item.end());
      }
    }
    return shared;
  }

  Vector Initial(const CellState& state, const std::string& prefix) const {
    const Tensor& tensor = given_.at(prefix + state.name() + "_init");
    Vector rows;
    for (std::int64_t row = 0; row < tensor.dim(0); ++row) {
      const Vector item = ItemOf(tensor, row, b_);
      rows.insert(rows.end(), item.begin(), item.end());
    }
    double number = 0;
    const auto [end, fault] =
        std::from_chars(state.initial().data(), state.initial().data() + state.initial().size(), number);
    if (fault == std::errc()) std::ranges::fill(rows, number);
    return rows;
  }

  // Keeps of the past `rows` what zoneout is expected to keep, and all of it where the step does not count.
  void UpdateState(const CellState& state, const Vector& rows, bool valid, Vector* row) const {
    const double zoneout = AsWritten(state.has_zoneout() ? state.zoneout() : options_.zoneout());
    for (size_t k = 0; k < row->size(); ++k) {
      const double before = rows[rows.size() - row->size() + k];
      (*row)[k] = valid ? zoneout * before + (1 - zoneout) * (*row)[k] : before;
    }
  }

  const CellDef& cell_;
  const CellOptions& options_;
  const ReferenceStep& step_;
  const Tensors& given_;
  const std::int64_t b_;
};

// Collects the rows of a batch into tensors.
class Collector {
 public:
  Collector(std::int64_t batch, bool batch_major) : batch_(batch), batch_major_(batch_major) {}

  void Set(const std::string& name, std::int64_t b, const Rows& rows, bool is_last) {
    if (!rows_.contains(name)) rows_[name].resize(batch_);
    rows_[name][b] = rows;
    is_last_[name] = is_last;
  }

  Tensors Finish() const {
    Tensors tensors;
    for (const auto& [name, items] : rows_) {
      const auto count = static_cast<std::int64_t>(items[0].size());
      size_t width = 0;
      for (const Rows& rows : items) {
        for (const Vector& row : rows) width = std::max(width, row.size());
      }
      const bool batch_first = batch_major_ && !is_last_.at(name);
      Tensor tensor =
          Tensor::Zeros(DType::kDouble, batch_first ? Shape({batch_, count, static_cast<std::int64_t>(width)})
                                                    : Shape({count, batch_, static_cast<std::int64_t>(width)}));
      for (std::int64_t b = 0; b < batch_; ++b) {
        for (std::int64_t t = 0; t < count; ++t) {
          const auto place = static_cast<size_t>(batch_first ? b * count + t : t * batch_ + b) * width;
          std::ranges::copy(items[b][t], tensor.data<double>() + place);
        }
      }
      tensors[name] = tensor;
    }
    return tensors;
  }

 private:
  std::int64_t batch_;
  bool batch_major_;
  std::map<std::string, std::vector<Rows>> rows_;
  std::map<std::string, bool> is_last_;
};

// Both side by side along the last dimension, which has `width` elements in each, or with 0 all of them.
Vector Joined(const Vector& a, const Vector& b, size_t width) {
  if (width == 0) width = a.size();
  Vector joined;
  for (size_t at = 0; at < a.size(); at += width) {
    for (const Vector* of : {&a, &b}) joined.insert(joined.end(), of->begin() + at, of->begin() + at + width);
  }
  return joined;
}

std::string NameOfLayer(const CellDef& cell, std::int64_t layer) {
  return cell.options().layers() > 1 ? StrCat("layer", layer, "/") : "";
}

}  // namespace

Tensors RunReference(const CellDef& cell, const ReferenceStep& step, const Tensors& given) {
  const CellOptions& options = cell.options();
  const bool both = options.direction() == CellOptions::BIDIRECTIONAL;
  const Tensor& x = given.at(cell.input(0).name());
  const std::int64_t batch = x.dim(options.batch_major() ? 0 : 1);
  Collector collected(batch, options.batch_major());
  for (std::int64_t b = 0; b < batch; ++b) {
    const SequenceRunner runner(cell, step, given, b);
    std::vector<Rows> inputs;
    for (const CellInput& input : cell.input()) inputs.push_back(runner.StepsOf(input.name()));
    const std::vector<bool> valid = runner.ValidSteps(inputs[0].size());
    for (std::int64_t layer = 0; layer < options.layers(); ++layer) {
      const bool is_top = layer + 1 == options.layers();
      const std::string prefix = NameOfLayer(cell, layer);
      DirectionRun run = runner.Run(inputs, valid, prefix, options.direction() == CellOptions::REVERSE);
      if (both) {
        const DirectionRun other = runner.Run(inputs, valid, prefix + "reverse/", /*reverse=*/true);
        for (auto& [blob, rows] : run.all) {
          const size_t width = runner.WidthOf(blob, prefix);
          for (size_t t = 0; t < rows.size(); ++t) rows[t] = Joined(rows[t], other.all.at(blob)[t], width);
          run.last[blob] = Joined(run.last[blob], other.last.at(blob), width);
        }
      }
      Rows& first = run.all.at(cell.output(0).blob());
      Rows added = first;
      for (size_t t = 0; layer > 0 && options.residual() && t < added.size(); ++t) {
        for (size_t k = 0; k < added[t].size(); ++k) added[t][k] += inputs[0][t][k];
      }
      for (int k = 0; k < cell.output_size(); ++k) {
        const CellOutput& output = cell.output(k);
        if (k == 0 && !is_top) continue;
        const Rows rows = output.last() ? Rows{run.last.at(output.blob())} : k == 0 ? added : run.all.at(output.blob());
        collected.Set((is_top ? "" : prefix) + NameOf(output), b, rows, output.last());
      }
      inputs[0] = added;
    }
  }
  return collected.Finish();
}

}  // namespace stepnet
