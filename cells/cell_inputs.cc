#include "stepnet/cells/cell_inputs.h"

#include <algorithm>
#include <vector>

#include "stepnet/compiler/forward_plan.h"
#include "stepnet/core/error.h"
#include "stepnet/core/printable.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

std::string Quoted(const std::string& name) { return StrCat("\"", name, "\""); }

// Says what Tensor::Description says.
std::string Described(const Tensor& given, DTypeText dtype_text) {
  const std::string text = StrCat(dtype_text(given.dtype()), " ", given.shape());
  return given.device().IsHost() ? text : StrCat(text, " on ", given.device());
}

// "; [1, 1, 16] or [16] is one for all of the batch": shapes of initial states that are repeated over the batch.
std::string OneForAllText(const CellNetInput& input) {
  std::vector<std::int64_t> dims = input.dims;
  std::ranges::replace(dims, CellNetInput::kBatch, 1);
  const bool has_short_form = dims.size() == 3 && dims[0] == 1;
  return StrCat("; [", Join(dims, ", "), "]", has_short_form ? StrCat(" or [", dims[2], "]") : "",
                " is one for all of the batch");
}

// Where steps and batch are taken for each other, a shape would fit the other way round.
std::string ExchangedHint(std::int64_t steps, std::int64_t batch) {
  return StrCat("; it would fit ", Count(batch, "step"), " and a batch of ", steps,
                ": the first input is [T, B, …], with `option batch_major = true` [B, T, …]");
}

}  // namespace

std::string ExpectedShapeText(const CellNetInput& input, std::int64_t steps, std::int64_t batch) {
  std::vector<std::string> dims, means;
  for (const std::int64_t dim : input.dims) {
    dims.push_back(dim == CellNetInput::kSteps ? "T" : dim == CellNetInput::kBatch ? "B" : StrCat(dim));
    if (dim == CellNetInput::kSteps && steps >= 0) means.push_back(Count(steps, "step"));
    if (dim == CellNetInput::kBatch && batch >= 0) means.push_back(StrCat("a batch of ", batch));
  }
  return StrCat("[", Join(dims, ", "), "]", means.empty() ? "" : StrCat(", of ", Join(means, " and ")));
}

std::string OwnDTypeText(DType dtype) { return DTypeName(dtype); }

void CheckCellStart(const CellNetInput& input, const Tensor& given, std::int64_t steps, std::int64_t batch,
                    DTypeText dtype_text) {
  const Shape& shape = given.shape();
  const auto num_item_dims = std::ssize(input.dims) - 2;
  const std::int64_t num_leading = shape.rank() - num_item_dims;
  // Fewer dimensions are read as a vector for each item of the batch, or for all of them, whatever the state is.
  bool fits = num_leading == 2 || (num_item_dims == 1 && (num_leading == 0 || num_leading == 1));
  if (fits && NumInitialRows(shape) != input.dims[0]) {
    throw Error(
        ErrorCode::kShapeMismatch,
        StrCat("the initial state ", Quoted(input.blob), " is ", Described(given, dtype_text), "; steps see ",
               Count(input.dims[0], "row"), " of the state, so it must be ", ExpectedShapeText(input, steps, batch)));
  }
  for (std::int64_t d = 0; fits && d < num_item_dims; ++d) fits = shape[num_leading + d] == input.dims[2 + d];
  const std::int64_t rows = fits && num_leading > 0 ? shape[num_leading - 1] : 1;
  if (fits && (rows == 1 || rows == batch)) return;
  throw Error(ErrorCode::kShapeMismatch,
              StrCat("the initial state ", Quoted(input.blob), " is ", Described(given, dtype_text), "; it must be ",
                     ExpectedShapeText(input, steps, batch), OneForAllText(input),
                     fits && rows == steps ? ExchangedHint(steps, batch) : ""));
}

void CheckCellInput(const CellNetInput& input, const Tensor& given, std::int64_t steps, std::int64_t batch,
                    DTypeText dtype_text) {
  if (input.is_state) return CheckCellStart(input, given, steps, batch, dtype_text);
  const auto fits = [&](std::int64_t of_steps, std::int64_t of_batch) {
    std::vector<std::int64_t> dims = input.dims;
    std::ranges::replace(dims, CellNetInput::kSteps, of_steps);
    std::ranges::replace(dims, CellNetInput::kBatch, of_batch);
    return std::ranges::equal(given.shape().dims(), dims);
  };
  if (fits(steps, batch)) return;
  throw Error(ErrorCode::kShapeMismatch,
              StrCat("the input ", Quoted(input.blob), " is ", Described(given, dtype_text), "; it must be ",
                     ExpectedShapeText(input, steps, batch), fits(batch, steps) ? ExchangedHint(steps, batch) : ""));
}

}  // namespace stepnet
