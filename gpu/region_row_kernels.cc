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
// Elements of long rows that a block computes before they are added, in bytes of shared memory: of rows that threads
// keep, all of them at once as far as there is room, and of others a part of each.
constexpr std::int64_t kSharedBytes = 32 << 10;
constexpr std::int64_t kTileBytes = 8 << 10;
constexpr int kMaxTiles = 4;
constexpr std::int64_t kWordsOfParts = kMaxTiles * kExprPartials;
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

// What a warp makes of partial results, of which a lane brings two.
std::string Reduced(const ExprNode& node, const std::string& low, const std::string& high) {
  return StrCat(node.op == ExprOp::kRowSum ? "RowSum(" : "RowMax(", low, ", ", high, ")");
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

// They are sorted by phase: those before are computed when a phase begins.
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

// Short rows are read once, all of it before the first reduction waits: first what that needs, so that the rest arrives
// while it goes on. What several loops over a row need is computed once.
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
  Nodes left;
  std::ranges::copy_if(nodes, std::back_inserter(left),
                       [](const ExprNode* node) { return node->op == ExprOp::kInput; });
  for (const Nodes& wanted : loops) {
    const Nodes below = nodes_.Below(wanted);
    const auto is_needed = [&](const ExprNode* input) { return std::ranges::find(below, input) != below.end(); };
    const auto rest = std::ranges::stable_partition(left, is_needed);
    const Nodes now(left.begin(), rest.begin());
    left.erase(left.begin(), rest.begin());
    if (now.empty()) continue;
    OpenColumns(text, work);
    text.Declare(now);
    text.Close();
  }
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
    text.DeclareAs(node, Reduced(*node, StrCat(parts(node), "[0]"), StrCat(parts(node), "[1]")));
  }
}

// All threads compute elements, and 64 add them, each its own in their order. Behind the last element a tile holds what
// changes no result: an addition that asked first would wait for what it loads.
void RegionPrinter::PrintByBlock(KernelText& text, const KernelWork& work, const Nodes& reductions) const {
  const auto part = [&](const ExprNode* node) { return StrCat(text.NameOf(node), "_part"); };
  const auto parts = [&](const ExprNode* node) { return StrCat(text.NameOf(node), "_parts"); };
  const auto tile = [&](const ExprNode* node) { return StrCat(text.NameOf(node), "_tile"); };
  const std::int64_t tile_size = TileSize(work, reductions);
  std::int64_t word_of_parts = 0, word_of_tile = kWordsOfParts;
  for (const ExprNode* node : reductions) {
    const std::string type = DeviceTypeName(node->dtype),
                      of_shared = StrCat(" = reinterpret_cast<", type, "*>(shared + ");
    text.Line(StrCat(type, "* const ", parts(node), of_shared, word_of_parts, ");"));
    text.Line(StrCat(type, "* const ", tile(node), of_shared, word_of_tile, ");"));
    text.Line(StrCat(type, " ", part(node), " = ", FirstPart(*node), ";"));
    word_of_parts += kExprPartials;
    word_of_tile += tile_size * DTypeBytes(node->dtype) / kWordBytes;
  }
  OpenTiles(text, work, tile_size);
  text.Open(StrCat("if (i3 >= ", text.Count("columns", region_.sizes[3]), ") {"));
  for (const ExprNode* node : reductions) text.Line(StrCat(tile(node), "[i3 - first] = ", FirstPart(*node), ";"));
  text.Line("continue;");
  text.Close();
  text.Declare(OperandsOf(reductions));
  for (const ExprNode* node : reductions) {
    text.Line(StrCat(tile(node), "[i3 - first] = ", text.NameOf(node->operands[0]), ";"));
  }
  text.Close();
  text.Line("__syncthreads();");
  text.Line(StrCat("if (lane >= ", kExprPartials, ") continue;"));
  text.Line("#pragma unroll");  // additions wait for each other, loads need not
  text.Open(StrCat("for (int k = 0; k < ", tile_size, "; k += ", kExprPartials, ") {"));
  for (const ExprNode* node : reductions) text.Line(WithPart(*node, part(node), StrCat(tile(node), "[k + lane]")));
  text.Close();
  text.Close();
  text.Open(StrCat("if (lane < ", kExprPartials, ") {"));
  for (const ExprNode* node : reductions) text.Line(StrCat(parts(node), "[lane] = ", part(node), ";"));
  text.Close();
  text.Line("__syncthreads();");
  for (const ExprNode* node : reductions) {
    const std::string low = StrCat(parts(node), "[lane % ", kWarp), high = StrCat(low, " + ", kWarp);
    text.DeclareAs(node, Reduced(*node, StrCat(low, "]"), StrCat(high, "]")));
  }
}

// How many elements of a row are in shared memory at once, of each reduction: a multiple of the threads of a row.
std::int64_t RegionPrinter::TileSize(const KernelWork& work, const Nodes& reductions) const {
  std::int64_t bytes = 0;  // of an element
  for (const ExprNode* node : reductions) bytes = std::max<std::int64_t>(bytes, DTypeBytes(node->dtype));
  if (work.kept == 0) return kTileBytes / bytes;
  const auto room = static_cast<std::uint64_t>(kSharedBytes / (bytes * std::ssize(reductions)));
  return std::min<std::int64_t>(work.kept * work.threads_of_row, std::bit_floor(room));
}

// A loop over the tiles of a row, which begin at `first`, and one over a thread's elements of a tile, i3.
void RegionPrinter::OpenTiles(KernelText& text, const KernelWork& work, std::int64_t tile_size) const {
  if (work.kept > 0) {
    text.Line("#pragma unroll");
    text.Open(StrCat("for (int first = 0; first < ", work.kept * work.threads_of_row, "; first += ", tile_size, ") {"));
  } else {
    const std::string columns = text.Count("columns", region_.sizes[3]);
    text.Open(StrCat("for (Index first = 0; first < ", columns, "; first += ", tile_size, ") {"));
  }
  text.Line("if (first > 0) __syncthreads();");  // what was in the tiles has been read
  text.Line("#pragma unroll");
  text.Open(StrCat("for (int k = 0; k < ", tile_size / work.threads_of_row, "; ++k) {"));
  if (work.kept > 0) text.Line(StrCat("const int j = first / ", work.threads_of_row, " + k;"));
  text.Line(StrCat("const Index i3 = lane + ", work.threads_of_row, work.kept > 0 ? " * j;" : " * k + first;"));
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

// Memory that the threads of a block share: partial results, and behind them the tiles of one phase after the other. So
// a phase writes its elements while threads still read the results of the last one.
void RegionPrinter::ShareMemory(KernelText& text, const KernelWork& work, const std::vector<Nodes>& phases) {
  for (const Nodes& phase : phases) {
    std::int64_t bytes = 0;
    for (const ExprNode* node : phase) bytes += TileSize(work, phase) * DTypeBytes(node->dtype);
    shared_words_ = std::max(shared_words_, kWordsOfParts + bytes / kWordBytes);
  }
  if (!IsOfGroups()) text.Line(SharedMemory(shared_words_));
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
  if (work.threads_of_row > kWarp) ShareMemory(text, work, phases);
  for (const Nodes& phase : phases) PrintReductions(text, work, phase);
  PrintOfRows(text, work, of_rows);
  PrintColumns(text, work);
  if (threads > 0) text.InsertIndices(mark, rows, "row");
  if (IsOfGroups()) text.Close();
  Add(text, threads, threads_of_block, /*threads_exchange=*/true);
}

}  // namespace stepnet
