// Kernels of what reads or gives reductions of rows.
#include <algorithm>
#include <bit>
#include <iterator>

#include "stepnet/core/strings.h"
#include "stepnet/gpu/cuda_target.h"
#include "stepnet/gpu/region_printer.h"

namespace stepnet {
namespace {

// Sizes of blocks are how kernels are written: what a block shares is declared by them.
constexpr int kThreadsOfRows = 128;                              // a warp a row
constexpr int kThreadsOfLongRow = 256, kThreadsOfFewRows = 512;  // a block a row
// Bytes of a long row that a block computes before they are added (RowTile), and how many such fit into shared memory.
constexpr int kTileBytes = 8 << 10;
constexpr int kMaxTiles = 4;
// A block takes one of its group's long rows after the other while there are few; warps take them at the same time.
constexpr std::int64_t kMaxRowsOfGroup = 2;
// What a thread keeps of a row is in registers, of which a thread of the largest block has 128.
constexpr std::int64_t kMaxKeptElements = 8, kMaxKeptWords = 64;

// Additions wait for each other, loads need not.
constexpr const char* kUnroll = "#pragma unroll 4";

// What partial results of a reduction start from, and how an element comes to them.
std::string FirstPart(const ExprNode& node) {
  return node.op == ExprOp::kRowSum ? "0" : StrCat("Lowest<", DeviceTypeName(node.dtype), ">()");
}
std::string WithPart(const ExprNode& node, const std::string& part, const std::string& value) {
  return StrCat(part, " = ", node.op == ExprOp::kRowSum ? "Add(" : "Max(", part, ", ", value, ");");
}

Nodes OperandsOf(const Nodes& reductions) {
  Nodes operands;
  for (const ExprNode* node : reductions) operands.push_back(node->operands[0]);
  return operands;
}

}  // namespace

// Whether a block takes a row.
bool RegionPrinter::TakesBlocks(const Nodes& reductions) const {
  if (reductions.empty() || std::ssize(reductions) > kMaxTiles) return false;
  if (region_.sizes[3] < kCudaRegions.block_row) return false;
  if (IsOfGroups()) return region_.NumRows() / blocks_.groups <= kMaxRowsOfGroup;
  return region_.NumRows() < kCudaRegions.max_block_rows;
}

// By phase: those before are computed when a phase begins.
std::vector<Nodes> RegionPrinter::PhasesOf(const Nodes& reductions) const {
  std::vector<Nodes> phases;
  for (const ExprNode* node : reductions) {
    const auto is_same = [&](const Nodes& phase) { return nodes_.phase.at(phase[0]) == nodes_.phase.at(node); };
    const auto found = std::ranges::find_if(phases, is_same);
    (found != phases.end() ? *found : phases.emplace_back()).push_back(node);
  }
  std::ranges::sort(phases, {}, [&](const Nodes& phase) { return nodes_.phase.at(phase[0]); });
  return phases;
}

// Short rows are read once, all of it before the first reduction waits, and what several loops over a row need is
// computed once.
void RegionPrinter::KeepElements(KernelText& text, KernelWork& work, const std::vector<Nodes>& phases) const {
  std::vector<Nodes> loops;
  for (const Nodes& phase : phases) loops.push_back(OperandsOf(phase));
  if (const Nodes wanted = WantedOf(work, true); !wanted.empty()) loops.push_back(wanted);
  const std::int64_t elements = (region_.sizes[3] + work.threads_of_row - 1) / work.threads_of_row;
  if (loops.size() < 2 || elements < 1 || elements > kMaxKeptElements || !nodes_.requirements.empty()) return;
  const auto kept = static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(elements)));
  const Nodes nodes = nodes_.SharedBy(loops);
  std::int64_t words = 0;
  for (const ExprNode* node : nodes) words += kept * std::max<std::int64_t>(DTypeBytes(node->dtype) / 4, 1);
  if (words > kMaxKeptWords) return;

  work.kept = kept;
  text.Keep(nodes, kept);
  Nodes inputs;
  std::ranges::copy_if(nodes, std::back_inserter(inputs),
                       [](const ExprNode* node) { return node->op == ExprOp::kInput; });
  OpenColumns(text, work);
  text.Declare(inputs);
  text.Close();
}

// A loop over the elements of a row that a thread has, i3.
void RegionPrinter::OpenColumns(KernelText& text, const KernelWork& work) const {
  const std::string columns = text.Count("columns", region_.sizes[3]);
  if (work.kept == 0) {
    return text.Open(StrCat("for (Index i3 = lane; i3 < ", columns, "; i3 += ", work.threads_of_row, ") {"));
  }
  text.Line("#pragma unroll");
  text.Open(StrCat("for (int j = 0; j < ", work.kept, "; ++j) {"));
  text.Line(StrCat("const Index i3 = lane + ", work.threads_of_row, " * j;"));
  text.Line(StrCat("if (i3 >= ", columns, ") continue;"));
}

// Prints one phase; those before it are done.
void RegionPrinter::PrintReductions(KernelText& text, const KernelWork& work, const Nodes& reductions) const {
  text.Declare(OperandsOf(reductions), /*of_rows_only=*/true);
  work.threads_of_row == kWarp ? PrintByWarp(text, work, reductions) : PrintByBlock(text, work, reductions);
}

void RegionPrinter::PrintByWarp(KernelText& text, const KernelWork& work, const Nodes& reductions) const {
  const auto parts = [&](const ExprNode* node) { return StrCat(text.NameOf(node), "_parts"); };
  for (const ExprNode* node : reductions) {
    const std::string first = FirstPart(*node);
    text.Line(StrCat(DeviceTypeName(node->dtype), " ", parts(node), "[2] = {", first, ", ", first, "};"));
  }
  const bool keeps = work.kept > 0;
  if (keeps) {
    OpenColumns(text, work);
  } else {
    const std::string columns = text.Count("columns", region_.sizes[3]);
    text.Line(kUnroll);
    text.Open(StrCat("for (Index first = lane; first < ", columns, "; first += ", 2 * kWarp, ") {"));
    text.Line("#pragma unroll");
    text.Open("for (int half = 0; half < 2; ++half) {");
    text.Line(StrCat("const Index i3 = first + ", kWarp, " * half;"));
    text.Line(StrCat("if (i3 >= ", columns, ") continue;"));
  }
  text.Declare(OperandsOf(reductions));
  for (const ExprNode* node : reductions) {
    text.Line(WithPart(*node, StrCat(parts(node), keeps ? "[j % 2]" : "[half]"), text.NameOf(node->operands[0])));
  }
  text.Close();
  if (!keeps) text.Close();
  for (const ExprNode* node : reductions) {
    const char* const reduce = node->op == ExprOp::kRowSum ? "RowSum(" : "RowMax(";
    text.DeclareAs(node, StrCat(reduce, parts(node), "[0], ", parts(node), "[1])"));
  }
}

// All threads compute elements, and 64 add them, each its own in their order.
void RegionPrinter::PrintByBlock(KernelText& text, const KernelWork& work, const Nodes& reductions) const {
  const auto part = [&](const ExprNode* node) { return StrCat(text.NameOf(node), "_part"); };
  const auto parts = [&](const ExprNode* node) { return StrCat(text.NameOf(node), "_parts"); };
  const auto tile = [&](const ExprNode* node) { return StrCat(text.NameOf(node), "_tile"); };
  std::int64_t bytes = 0;  // of an element
  for (int k = 0; k < std::ssize(reductions); ++k) {
    const ExprNode* node = reductions[k];
    const char* const type = DeviceTypeName(node->dtype);
    text.Line(StrCat(type, "* const ", tile(node), " = reinterpret_cast<", type, "*>(tiles[", k, "].elements);"));
    text.Line(StrCat(type, "* const ", parts(node), " = reinterpret_cast<", type, "*>(tiles[", k, "].parts);"));
    text.Line(StrCat(type, " ", part(node), " = ", FirstPart(*node), ";"));
    bytes = std::max(bytes, DTypeBytes(node->dtype));
  }
  const std::int64_t tile_size = OpenTiles(text, work, kTileBytes / bytes);
  text.Declare(OperandsOf(reductions));
  for (const ExprNode* node : reductions) {
    text.Line(StrCat(tile(node), "[i3 - first] = ", text.NameOf(node->operands[0]), ";"));
  }
  text.Close();
  text.Line("__syncthreads();");
  text.Line(StrCat("if (lane >= ", kExprPartials, ") continue;"));
  text.Line("#pragma unroll");  // additions wait for each other, loads need not
  text.Open(StrCat("for (int k = 0; k < ", tile_size, "; k += ", kExprPartials, ") {"));
  text.Line(StrCat("if (first + k + lane >= ", text.Count("columns", region_.sizes[3]), ") continue;"));
  for (const ExprNode* node : reductions) text.Line(WithPart(*node, part(node), StrCat(tile(node), "[k + lane]")));
  text.Close();
  text.Close();
  text.Open(StrCat("if (lane < ", kExprPartials, ") {"));
  for (const ExprNode* node : reductions) text.Line(StrCat(parts(node), "[lane] = ", part(node), ";"));
  text.Close();
  text.Line("__syncthreads();");
  for (const ExprNode* node : reductions) {
    const char* const reduce = node->op == ExprOp::kRowSum ? "SumOfParts(" : "MaxOfParts(";
    text.DeclareAs(node, StrCat(reduce, parts(node), ")"));
  }
}

// A loop over the tiles of a row, which begin at `first`, and one over a thread's elements of a tile, i3. Returns how
// many elements a tile has.
std::int64_t RegionPrinter::OpenTiles(KernelText& text, const KernelWork& work, std::int64_t max_size) const {
  const std::string columns = text.Count("columns", region_.sizes[3]);
  const std::int64_t parts = std::min<std::int64_t>(work.kept, max_size / work.threads_of_row);
  if (work.kept > 0) {
    text.Line("#pragma unroll");
    text.Open(StrCat("for (int part = 0; part < ", work.kept, "; part += ", parts, ") {"));
    text.Line(StrCat("const int first = ", work.threads_of_row, " * part;"));
  } else {
    text.Open(StrCat("for (Index first = 0; first < ", columns, "; first += ", max_size, ") {"));
  }
  text.Line("if (first > 0) __syncthreads();");  // what was in the tiles has been read
  text.Line("#pragma unroll");
  if (work.kept > 0) {
    text.Open(StrCat("for (int k = 0; k < ", parts, "; ++k) {"));
    text.Line("const int j = part + k;");
    text.Line(StrCat("const Index i3 = lane + ", work.threads_of_row, " * j;"));
  } else {
    text.Open(StrCat("for (int k = lane; k < ", max_size, "; k += ", work.threads_of_row, ") {"));
    text.Line("const Index i3 = first + k;");
  }
  text.Line(StrCat("if (i3 >= ", columns, ") continue;"));
  return work.kept > 0 ? parts * work.threads_of_row : max_size;
}

// What is written once a row.
void RegionPrinter::PrintOfRows(KernelText& text, const KernelWork& work, const Nodes& of_rows) const {
  if (of_rows.empty()) return;
  text.Declare(of_rows);
  text.Open("if (lane == 0) {");
  for (const ExprNode* node : work.to_scratch) {
    text.Line(StrCat(ScratchOf(text, node, "row"), " = ", text.NameOf(node), ";"));
  }
  for (const int o : work.outputs) {
    if (region_.outputs[o].kind == RegionOutputKind::kRows) text.Store(o, region_.outputs[o].value.node());
  }
  text.Close();
}

// What is written and checked for each element of a row.
void RegionPrinter::PrintColumns(KernelText& text, const KernelWork& work) const {
  const Nodes wanted = WantedOf(work, true);
  if (wanted.empty()) return;
  text.Declare(wanted, /*of_rows_only=*/true);
  OpenColumns(text, work);
  text.Declare(wanted);
  if (work.checks) text.CheckRequirements("static_cast<long long>(row) * p.columns + i3");
  for (const int o : work.outputs) {
    if (region_.outputs[o].kind == RegionOutputKind::kElements) text.Store(o, region_.outputs[o].value.node());
  }
  text.Close();
}

void RegionPrinter::PrintRows(KernelWork work) {
  const Nodes of_rows = WantedOf(work, false);
  Nodes wanted = of_rows;
  std::ranges::copy(WantedOf(work, true), std::back_inserter(wanted));
  Nodes reductions = nodes_.Below(wanted);
  std::erase_if(reductions, [](const ExprNode* node) { return !IsRowReduction(*node); });
  if (TakesBlocks(reductions)) {
    const bool are_few = region_.NumRows() <= kCudaRegions.few_block_rows;
    work.threads_of_row = IsOfGroups() ? blocks_.threads : are_few ? kThreadsOfFewRows : kThreadsOfLongRow;
  }

  KernelText text(region_, options_, nodes_, work.kind);
  const std::vector<SpaceDim> rows = JoinDims(region_.sizes, 0, 3, StridesOf(work), UsedIndices(work));
  std::vector<SpaceDim> space = rows;
  space.push_back({.dim = 3, .size = region_.sizes[3]});
  const std::int64_t threads = region_.NumRows() * work.threads_of_row;
  const int threads_of_block = std::max(kThreadsOfRows, work.threads_of_row);
  text.SetSpace(space, IsNarrow(space, work, threads));
  if (work.threads_of_row > kWarp) num_tiles_ = static_cast<int>(reductions.size());
  if (num_tiles_ > 0 && !IsOfGroups()) text.Line(StrCat("__shared__ RowTile tiles[", num_tiles_, "];"));
  text.Line(StrCat("const int lane = static_cast<int>(threadIdx.x) % ", work.threads_of_row, ";"));
  if (IsOfGroups()) {
    const std::string of_group = text.Count("rows_of_group", region_.NumRows() / blocks_.groups);
    text.Open(StrCat("for (Index k = threadIdx.x / ", work.threads_of_row, "; k < ", of_group,
                     "; k += ", blocks_.threads / work.threads_of_row, ") {"));
    text.Line(StrCat("const Index row = static_cast<Index>(blockIdx.x) * ", of_group, " + k;"));
  } else {
    text.Line(StrCat("const Index row = static_cast<Index>(blockIdx.x) * ", threads_of_block / work.threads_of_row,
                     " + static_cast<Index>(threadIdx.x) / ", work.threads_of_row, ";"));
    text.Line(StrCat("if (row >= ", text.Count("rows", region_.NumRows()), ") return;"));
  }
  const int mark = text.Mark();
  const std::vector<Nodes> phases = PhasesOf(reductions);
  KeepElements(text, work, phases);
  for (const Nodes& phase : phases) PrintReductions(text, work, phase);
  PrintOfRows(text, work, of_rows);
  PrintColumns(text, work);
  if (threads > 0) text.InsertIndices(mark, rows, "row");
  if (IsOfGroups()) text.Close();
  Add(text, threads, threads_of_block, /*threads_exchange=*/true);
}

}  // namespace stepnet
