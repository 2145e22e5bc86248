#include "stepnet/tools/rnn_runner/cell_file.h"

#include <charconv>
#include <cmath>
#include <iostream>

#include "stepnet/core/minidb.h"
#include "stepnet/core/random.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/tensor_text.h"
#include "stepnet/tools/rnn_runner/text.h"

DEFINE_string(size, "", "sizes of a cell, in place of those that it declares: H=128,D=65");
DEFINE_int64(steps, 5, "steps of the inputs that are generated for a cell");
DEFINE_int64(batch, 3, "batch of the inputs that are generated for a cell");

namespace stepnet::runner {
namespace {

CellSizes SizesFromFlags() {
  CellSizes sizes;
  for (const std::string& item : SplitList(FLAGS_size)) {
    const size_t equals = item.find('=');
    std::int64_t value = 0;
    const char* const end = item.data() + item.size();
    const bool has_value = equals != std::string::npos && equals > 0;
    const auto [rest, fault] =
        has_value ? std::from_chars(item.data() + equals + 1, end, value) : std::from_chars(end, end, value);
    if (fault != std::errc() || rest != end)
      throw UsageError(StrCat("--size has \"", item, "\"; it takes NAME=NUMBER"));
    if (!sizes.emplace(item.substr(0, equals), value).second) {
      throw UsageError(StrCat("--size gives ", item.substr(0, equals), " twice"));
    }
  }
  return sizes;
}

double Element(DType dtype, const RandomStream& random, std::int64_t i) {
  if (dtype == DType::kInt32) return std::floor(random.Uniform(i) * static_cast<double>(FLAGS_steps + 1));
  if (dtype == DType::kBool) return random.Uniform(i) < 0.75F ? 1 : 0;
  return 2.0 * random.Uniform(i) - 1;
}

}  // namespace

FlagUse CellSizeFlag() { return {.name = "size", .value = "NAME=N,…", .is_list = true}; }

std::vector<FlagUse> CellFlags() {
  return {CellSizeFlag(), {.name = "steps", .value = "N"}, {.name = "batch", .value = "N"}};
}

std::optional<CellNet> ExpandCellFile(const std::string& path, CellUse use) {
  if (LooksLikeMiniDb(path)) return std::nullopt;
  const std::string content = ReadFile(path);
  if (!IsShortCell(content) && DetectKindOf(content) != MessageKind::kCellDef) {
    if (FLAGS_size.empty()) return std::nullopt;
    throw UsageError(StrCat("--size is for cells, and ", path, " is none"));
  }
  use.sizes = SizesFromFlags();
  return ExpandCell(ParseCell(content, path), use);
}

AnyMessage ReadNetFile(const std::string& path) {
  std::optional<CellNet> cell = ExpandCellFile(path);
  if (!cell) return ReadAnyMessage(path);
  return {.kind = MessageKind::kNetDef, .message = std::make_unique<NetDef>(std::move(cell->net))};
}

Model CellModel(const CellNet& cell) {
  Model model{.init_net = cell.init_net, .net = cell.net, .parameters = {}, .inputs = {}, .outputs = cell.outputs};
  for (const CellNetInput& input : cell.inputs) model.inputs.push_back(input.blob);
  for (const CarriedState& state : cell.states) model.outputs.push_back(state.last);
  return model;
}

void FeedCellInputs(const CellNet& cell, Workspace& workspace) {
  if (FLAGS_steps < 0 || FLAGS_batch < 0) throw UsageError("--steps and --batch must be at least 0");
  std::uint64_t number = 1'000'000;  // beyond those of --shape
  for (const CellNetInput& input : cell.inputs) {
    ++number;
    const Blob* blob = workspace.FindBlob(input.blob);
    if (blob != nullptr && blob->HasTensor()) continue;
    std::vector<std::int64_t> dims = input.dims;
    for (std::int64_t& dim : dims) {
      if (dim == CellNetInput::kSteps) dim = FLAGS_steps;
      if (dim == CellNetInput::kBatch) dim = FLAGS_batch;
    }
    const RandomStream random(FLAGS_seed, number, /*run=*/0, /*step=*/0);
    Tensor tensor(input.dtype, Shape(dims));
    FillFromNumbers(tensor, [&](std::int64_t i) { return Element(input.dtype, random, i); });
    std::cerr << Printable(StrCat(input.blob, " is random, ", tensor.Description())) << "\n";
    workspace.SetTensor(input.blob, std::move(tensor));
  }
}

}  // namespace stepnet::runner
