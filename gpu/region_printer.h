// RegionPrinter: prints the kernels of a region (gpu/region_source.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stepnet/gpu/kernel_text.h"
#include "stepnet/gpu/region_source.h"

namespace stepnet {

inline constexpr int kWarp = 32;
inline constexpr int kWordBytes = 8;  // of shared memory

// The line that declares so many words of shared memory, as `shared`.
std::string SharedMemory(std::int64_t words);

using Nodes = std::vector<const ExprNode*>;

// A part of a region's work, which is a kernel.
struct KernelWork {
  std::string kind;
  std::vector<int> outputs = {};
  bool checks = false;    // requirements
  Nodes to_scratch = {};  // reductions, one after the other
  int threads_of_row = kWarp;
  int kept = 0;  // elements of a row of which each thread keeps what it knows; 0: none
};

// How groups of a region (core/regions/region_groups.h) become blocks of a kernel, one each.
struct GroupBlocks {
  std::int64_t groups = 0;  // 0: the region is no part of such a kernel
  int threads = 0;          // of a block
};

class RegionPrinter {
 public:
  RegionPrinter(const Region& region, const RegionSourceOptions& options, GroupBlocks blocks = {})
      : region_(region), options_(options), blocks_(blocks), nodes_(region) {}

  // Where there are GroupBlocks, the text is a function, and what is given as its launch has parameters alone.
  RegionSource Print();
  std::int64_t shared_words() const { return shared_words_; }  // that the function is to be given

 private:
  std::vector<int> OutputsOf(bool are_sums) const;
  std::vector<std::vector<int>> SumGroups() const;
  // What an element of the work is computed from, but for what is the same for all of a row and is written for it.
  Nodes WantedOf(const KernelWork& work, bool of_elements) const;
  bool HasRows(const KernelWork& work) const;
  std::vector<RegionIndex> StridesOf(const KernelWork& work) const;
  unsigned UsedIndices(const KernelWork& work) const;
  bool IsNarrow(const std::vector<SpaceDim>& space, const KernelWork& work, std::int64_t count) const;
  std::string ScratchOf(KernelText& text, const ExprNode* reduction, const std::string& row) const;

  void PrintMain(const KernelWork& work);
  void PrintElements(const KernelWork& work);
  void PrintElementsOfGroup(KernelText& text, const KernelWork& work, const std::vector<SpaceDim>& space) const;
  void PrintRows(KernelWork work);
  bool TakesBlocks(const Nodes& reductions) const;
  std::vector<Nodes> PhasesOf(const Nodes& reductions) const;
  void KeepElements(KernelText& text, KernelWork& work, const std::vector<Nodes>& phases) const;
  void OpenColumns(KernelText& text, const KernelWork& work) const;
  void ShareMemory(KernelText& text, const KernelWork& work, const std::vector<Nodes>& phases);
  std::int64_t TileSize(const KernelWork& work, const Nodes& reductions) const;
  void OpenTiles(KernelText& text, const KernelWork& work, std::int64_t tile_size) const;
  void PrintReductions(KernelText& text, const KernelWork& work, const Nodes& reductions) const;
  void PrintByWarp(KernelText& text, const KernelWork& work, const Nodes& reductions) const;
  void PrintByBlock(KernelText& text, const KernelWork& work, const Nodes& reductions) const;
  void PrintOfRows(KernelText& text, const KernelWork& work, const Nodes& of_rows) const;
  void PrintColumns(KernelText& text, const KernelWork& work) const;
  void PrintSums(const KernelWork& work);
  void PrintByThread(KernelText& text, const KernelWork& work, const std::vector<SpaceDim>& summed) const;
  void PrintByTiles(KernelText& text, const KernelWork& work, const std::vector<SpaceDim>& summed) const;
  void PrintTerms(KernelText& text, const KernelWork& work) const;
  void Add(KernelText& text, std::int64_t threads_needed, int threads_of_block, bool threads_exchange = false);
  bool IsOfGroups() const { return blocks_.groups > 0; }

  const Region& region_;
  const RegionSourceOptions& options_;
  const GroupBlocks blocks_;
  const RegionNodes nodes_;
  Nodes scratch_;  // reductions that sums read
  std::int64_t shared_words_ = 0;
  RegionSource source_;
};

}  // namespace stepnet
