#include "stepnet/executor/recurrent_record.h"

#include <algorithm>
#include <bit>

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

Tensor TimestepNumbers(std::int64_t num_steps, const Tensor& old) {
  if (old.defined() && old.size() >= num_steps) return old;
  Tensor numbers(DType::kInt32, Shape({num_steps}));
  std::int32_t* data = numbers.data<std::int32_t>();
  for (std::int64_t t = 0; t < num_steps; ++t) data[t] = static_cast<std::int32_t>(t);
  return numbers;
}

BoundBlob BindLink(const Link& link, int base, DType dtype, const Shape& row) {
  const std::int64_t row_bytes = row.size() * DTypeBytes(dtype);
  return {.slot = {.blob = link.internal,
                   .storage_class = StorageClass::kLinked,
                   .base = base,
                   .offset = link.offset,
                   .row_bytes = row_bytes,
                   .bytes = row_bytes * link.window,
                   .dtype = dtype},
          .info = {.dtype = dtype, .shape = row.Inserted(0, link.window)}};
}

BoundBlob BindWhole(const std::string& blob, int base, const TensorInfo& info) {
  return {.slot = {.blob = blob,
                   .storage_class = StorageClass::kShared,
                   .base = base,
                   .bytes = info.shape.size() * DTypeBytes(info.dtype),
                   .dtype = info.dtype},
          .info = info};
}

int BaseOfInput(int input, std::vector<std::pair<int, int>>* bases, int* num_bases) {
  for (const auto& [known, base] : *bases) {
    if (known == input) return base;
  }
  bases->emplace_back(input, *num_bases);
  return (*num_bases)++;
}

void CheckLinkInBounds(const Link& link, std::int64_t num_rows, std::int64_t num_steps) {
  if (num_steps == 0 || num_steps - 1 + link.offset + link.window <= num_rows) return;
  throw Error(ErrorCode::kShapeMismatch,
              StrCat("step ", num_steps - 1, " of ", num_steps, " would see rows [", num_steps - 1 + link.offset, ", ",
                     num_steps - 1 + link.offset + link.window, ") of \"", link.external, "\" as \"", link.internal,
                     "\" (link offset ", link.offset, ", window ", link.window, "), which has ", num_rows, " rows"));
}

void CheckSequence(const std::vector<Link>& links, const std::string& name, const Tensor& tensor,
                   std::int64_t num_steps) {
  for (const Link& link : links) {
    if (link.external != name) continue;
    if (tensor.shape().rank() == 0) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("\"", name, "\" is linked as a sequence and is ", tensor.Description()));
    }
    if (link.offset == 0 && link.window == 1 && tensor.dim(0) != num_steps) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("the sequence \"", name, "\" is ", tensor.Description(), " and has ", tensor.dim(0),
                         " steps where the first input has ", num_steps));
    }
    CheckLinkInBounds(link, tensor.dim(0), num_steps);
  }
}

std::vector<bool> SeenByRows(const std::vector<std::string>& inputs, const std::vector<Link>& links,
                             const NetDef& step_net) {
  const std::vector<std::string> captured = BlobsReadFirst(step_net);
  std::vector<bool> seen_by_rows;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_linked = std::ranges::count(links, inputs[i], &Link::external) > 0;
    const bool is_captured = std::ranges::count(captured, inputs[i]) > 0;
    seen_by_rows.push_back((is_linked || i == 0) && !is_captured);
  }
  return seen_by_rows;
}

std::vector<TensorInfo> PlanKey(std::vector<TensorInfo> inputs, const std::vector<bool>& seen_by_rows) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (seen_by_rows[i] && inputs[i].shape.rank() > 0) inputs[i].shape = inputs[i].shape.With(0, 0);
  }
  return inputs;
}

std::int64_t RingRows(const RecurrentSpec& spec) {
  constexpr int kUsual = 4;  // as Caffe2's executor
  if (spec.options.executor != "parallel") return 1;
  return std::bit_ceil(static_cast<std::uint64_t>(spec.num_workspaces > 0 ? spec.num_workspaces : kUsual));
}

}  // namespace stepnet
