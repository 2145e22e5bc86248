// Kernels of sums over rows.
#include <algorithm>

#include "stepnet/core/regions/region_sums.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/cuda_target.h"
#include "stepnet/gpu/region_printer.h"

namespace stepnet {
namespace {

constexpr int kThreadsOfSums = 64;  // few, because sums are few and take long

// Where sums have many terms, a block takes a warp of sums: all of its threads compute terms, and one thread a sum adds
// them, in their order. Behind the last term a tile holds -0, which changes no sum: an addition that asked first would
// wait for what it loads.
constexpr int kThreadsOfTiles = 256;
constexpr int kTermsOfTile = 64;
constexpr std::int64_t kMaxTileBytes = 48 << 10;  // that every GPU gives a kernel

}  // namespace

void RegionPrinter::PrintTerms(KernelText& text, const KernelWork& work) const {
  const Nodes wanted = WantedOf(work, true);
  const Nodes reductions = nodes_.ReductionsOf(wanted);
  if (!reductions.empty()) {
    std::string row = "0";
    for (const SpaceDim& dim : text.space()) {
      if (dim.dim == 3) continue;
      row = row == "0" ? text.IndexName(dim) : StrCat("(", row, ") * ", text.Size(dim), " + ", text.IndexName(dim));
    }
    text.Line(StrCat("const Index row = ", row, ";"));
    for (const ExprNode* node : reductions) text.DeclareAs(node, ScratchOf(text, node, "row"));
  }
  text.Declare(wanted);
}

void RegionPrinter::PrintByThread(KernelText& text, const KernelWork& work, const std::vector<SpaceDim>& summed) const {
  for (size_t k = 0; k < summed.size(); ++k) {
    if (k + 1 == summed.size()) text.Line("#pragma unroll 4");
    const std::string i = StrCat("i", summed[k].dim);
    text.Open(StrCat("for (Index ", i, " = 0; ", i, " < ", text.Size(summed[k]), "; ++", i, ") {"));
  }
  PrintTerms(text, work);
  for (const int o : work.outputs) {
    text.Line(StrCat("sum", o, " = Add(sum", o, ", ", text.NameOf(region_.outputs[o].value.node()), ");"));
  }
  for (size_t k = 0; k < summed.size(); ++k) text.Close();
}

void RegionPrinter::PrintByTiles(KernelText& text, const KernelWork& work, const std::vector<SpaceDim>& summed) const {
  for (const int o : work.outputs) {
    const char* const type = DeviceTypeName(region_.outputs[o].value.dtype());
    text.Line(StrCat("__shared__ ", type, " tile", o, "[", kTermsOfTile * kWarp, "];"));
  }
  const std::string terms = text.Count("terms", NumIndices(summed));
  text.Open(StrCat("for (Index first = 0; first < ", terms, "; first += ", kTermsOfTile, ") {"));
  text.Line("__syncthreads();");
  text.Line("#pragma unroll");
  text.Open(StrCat("for (int k = part; k < ", kTermsOfTile, "; k += ", kThreadsOfTiles / kWarp, ") {"));
  text.Line("const Index term = first + k;");
  text.Open(StrCat("if (!has_sum || term >= ", terms, ") {"));
  for (const int o : work.outputs) {
    const char* const type = DeviceTypeName(region_.outputs[o].value.dtype());
    text.Line(StrCat("tile", o, "[k * ", kWarp, " + lane] = Cast<", type, ">(-0.0f);"));
  }
  text.Line("continue;");
  text.Close();
  const int mark = text.Mark();
  PrintTerms(text, work);
  for (const int o : work.outputs) {
    text.Line(StrCat("tile", o, "[k * ", kWarp, " + lane] = ", text.NameOf(region_.outputs[o].value.node()), ";"));
  }
  text.InsertIndices(mark, summed, "term");
  text.Close();
  text.Line("__syncthreads();");
  text.Line("if (part != 0) continue;");
  text.Line("#pragma unroll");
  text.Open(StrCat("for (int k = 0; k < ", kTermsOfTile, "; ++k) {"));
  for (const int o : work.outputs) {
    text.Line(StrCat("sum", o, " = Add(sum", o, ", tile", o, "[k * ", kWarp, " + lane]);"));
  }
  text.Close();
  text.Close();
}

void RegionPrinter::PrintSums(const KernelWork& work) {
  KernelText text(region_, options_, nodes_, work.kind);
  const bool has_rows = !nodes_.ReductionsOf(WantedOf(work, true)).empty();
  const unsigned apart = UsedIndices(work) | (has_rows ? 1u << 3 : 0u);
  const bool sums_rows = SumsRows(region_, region_.outputs[work.outputs[0]]);  // or all that elements have
  const std::vector<SpaceDim> space =
      JoinDims(region_.sizes, 0, sums_rows ? kRegionDims - 1 : kRegionDims, StridesOf(work), apart);
  std::vector<SpaceDim> kept, summed;
  for (const SpaceDim& dim : space) {
    (region_.outputs[work.outputs[0]].memory.strides[dim.dim] != 0 ? kept : summed).push_back(dim);
  }
  std::int64_t tile_bytes = 0;
  for (const int o : work.outputs) tile_bytes += kTermsOfTile * kWarp * DTypeBytes(region_.outputs[o].value.dtype());
  const bool by_tiles = NumIndices(summed) >= kCudaRegions.min_block_terms && tile_bytes <= kMaxTileBytes;
  const std::int64_t sums = NumIndices(kept);
  text.SetSpace(space, IsNarrow(space, work, std::max({sums, region_.NumRows(), NumIndices(summed)})));
  if (by_tiles) {
    text.Line(StrCat("const int lane = static_cast<int>(threadIdx.x) % ", kWarp, ";"));
    text.Line(StrCat("const int part = static_cast<int>(threadIdx.x) / ", kWarp, ";"));
    text.Line(StrCat("const Index sum = static_cast<Index>(blockIdx.x) * ", kWarp, " + lane;"));
    text.Line(StrCat("const bool has_sum = sum < ", text.Count("sums", sums), ";"));
  } else {
    text.Line(StrCat("const Index sum = static_cast<Index>(blockIdx.x) * ", kThreadsOfSums,
                     " + static_cast<Index>(threadIdx.x);"));
    text.Line(StrCat("const bool has_sum = sum < ", text.Count("sums", sums), ";"));
    text.Line("if (!has_sum) return;");
  }
  const int mark = text.Mark();
  for (const int o : work.outputs) {
    const RegionOutput& output = region_.outputs[o];
    const char* const type = DeviceTypeName(output.value.dtype());  // a float where it is stored in 16 bits
    text.Line(StrCat(
        type, " sum", o, " = ",
        output.adds ? StrCat("has_sum ? Cast<", type, ">(", text.OutputElement(o), ") : Cast<", type, ">(0)") : "0",
        ";"));
  }
  by_tiles ? PrintByTiles(text, work, summed) : PrintByThread(text, work, summed);
  if (by_tiles) text.Line("if (part != 0 || !has_sum) return;");
  for (const int o : work.outputs) {
    const char* const stored = DeviceTypeName(region_.outputs[o].memory.dtype);
    text.Line(StrCat(text.OutputElement(o), " = Cast<", stored, ">(sum", o, ");"));
  }
  if (sums > 0) text.InsertIndices(mark, kept, "sum");
  const std::int64_t threads = by_tiles ? (sums + kWarp - 1) / kWarp * kThreadsOfTiles : sums;
  Add(text, threads, by_tiles ? kThreadsOfTiles : kThreadsOfSums, /*threads_exchange=*/by_tiles);
}

}  // namespace stepnet
