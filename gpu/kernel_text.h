// KernelText: the text of one kernel of a region while it is printed: parameters, indices and expressions.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "stepnet/core/regions/region.h"
#include "stepnet/gpu/kernel_space.h"
#include "stepnet/gpu/region_source.h"

namespace stepnet {

inline bool IsRowReduction(const ExprNode& node) { return node.op == ExprOp::kRowSum || node.op == ExprOp::kRowMax; }
// What a node is computed from here: reductions are done before, and requirements are their condition.
std::span<const ExprNode* const> OperandsHere(const ExprNode& node);
const char* DeviceTypeName(DType dtype);  // of a value

// What the kernels of a region have in common.
struct RegionNodes {
  explicit RegionNodes(const Region& region);

  std::vector<const ExprNode*> all;                 // operands before what uses them
  std::unordered_map<const ExprNode*, int> number;  // in `all`
  std::unordered_map<const ExprNode*, int> phase;   // how many reductions of rows lie one in another in it
  std::unordered_set<const ExprNode*> varying;      // in a row
  std::vector<Expr> requirements;

  bool Varies(const ExprNode* node) const { return varying.contains(node); }
  // All below, with what reductions are computed from; in the order of `all`.
  std::vector<const ExprNode*> Below(std::span<const ExprNode* const> roots) const;
  // The reductions that are computed before `roots` are.
  std::vector<const ExprNode*> ReductionsOf(std::span<const ExprNode* const> roots) const;
  // What loops over a row, which compute these one after the other, need to know of each element so that none of them
  // reads or computes what an earlier one has: inputs, and what a later loop begins with.
  std::vector<const ExprNode*> SharedBy(std::span<const std::vector<const ExprNode*>> loops) const;
};

class KernelText {
 public:
  // `kind` follows the name of the region in the name of the kernel.
  KernelText(const Region& region, const RegionSourceOptions& options, const RegionNodes& nodes,
             const std::string& kind);

  // Dimensions that indices are named after, "i2", and whether 32 bits hold all places and counts. `linear` is the
  // variable that counts all of them, if there is one.
  void SetSpace(std::vector<SpaceDim> dims, bool is_narrow, const std::string& linear = "");
  const std::vector<SpaceDim>& space() const { return space_; }

  // Adds a parameter, unless there is one of that name, and returns how the text reads it.
  std::string Parameter(const std::string& type, const std::string& name, std::uint64_t word);
  std::string Count(const std::string& name, std::int64_t value);  // one that is read as an Index
  std::string Size(const SpaceDim& dim);

  void Line(const std::string& text);
  void Open(const std::string& text);  // a line that ends in a brace, up to Close
  void Close();
  int Mark() const { return static_cast<int>(lines_.size()); }
  // Puts the indices of `dims` that the text uses in front of line `mark`, of `number`, which counts them.
  void InsertIndices(int mark, std::span<const SpaceDim> dims, const std::string& number);
  std::string IndexName(const SpaceDim& dim);

  // Has each thread keep the values of `nodes` for `count` elements: in a loop over `j`, Declare computes one that no
  // loop before has computed, and reads it from then on.
  void Keep(std::span<const ExprNode* const> nodes, int count);
  // Declares what `wanted` need and no brace around has declared: all of it, or what is the same in all of a row.
  void Declare(std::span<const ExprNode* const> wanted, bool of_rows_only = false);
  void DeclareAs(const ExprNode* node, const std::string& value);
  std::string NameOf(const ExprNode* node);

  void Store(int output, const ExprNode* value);
  std::string OutputElement(int output);
  // Notes a fault where an element does not meet a requirement: the first that it does not meet.
  void CheckRequirements(const std::string& element);

  // The text and how it is launched, for so many threads.
  RegionLaunch Finish(std::int64_t threads_needed, int threads_of_block, std::string* text);
  // The text as a function that a kernel calls, with the parameters, and shared memory.
  RegionLaunch FinishFunction(std::string* text);

 private:
  RegionLaunch PrintParameters(std::string* text) const;
  std::string OpeningText() const;
  std::string ElementOf(const std::string& operand, const RegionOperand& memory);
  std::string Place(const std::string& operand, const RegionOperand& memory);
  std::string ConstantText(const ExprNode& node);
  std::string InputText(const ExprNode& node);
  std::string ValueText(const ExprNode& node);
  bool IsDeclared(const ExprNode* node) const;
  bool IsKnown(const ExprNode* node) const;  // from a loop before
  bool IsValue(int input) const;
  void AddOperands();

  struct Member {
    std::string type, name;
    std::vector<std::uint64_t> words;
  };

  const Region& region_;
  const RegionSourceOptions& options_;
  const RegionNodes& nodes_;
  const std::string kernel_;
  std::vector<SpaceDim> space_;
  bool is_narrow_ = true;
  std::string linear_;
  std::vector<Member> members_;
  std::vector<std::string> lines_;
  std::vector<std::set<const ExprNode*>> declared_;  // by open braces
  std::map<const ExprNode*, bool> kept_;             // whether a loop has computed it
  std::set<int> used_dims_;
};

}  // namespace stepnet
