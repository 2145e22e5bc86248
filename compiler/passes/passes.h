// Passes: each makes of a StepGraph another one that computes the same, within rounding, and from which a better plan
// follows. A pass is a file of this folder and a line in the list of passes.cc; its test compares texts before and
// after.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

struct Pass {
  const char* name;               // of its file
  int opt_level;                  // from which on it runs; 1: results keep their bits
  bool required = false;          // plans would be wrong without it
  bool (*run)(StepGraph* graph);  // returns whether it has changed the graph
};

// In the order in which they run.
std::span<const Pass> Passes();

// Throws kInvalidArgument, with what there is, for a pass that does not exist or is required.
void CheckDisabledPasses(const std::set<std::string>& names);

// Runs those of the options' opt_level that are not disabled. Verifies the graph before the first one and after each
// that has changed it, and tells on_pass of it; before the first one as of a pass "import". Throws as
// CheckDisabledPasses and VerifyGraph.
void RunPasses(const RunOptions& options, StepGraph* graph);

// An operator that sums a gradient until it has the shape of an input (OperatorSchema::sum_like) becomes a move where
// it has that shape already. A gradient rule knows no shapes: it writes such a sum for each input that may be repeated.
bool CopyEqualSums(StepGraph* graph);

// A move in the step goes where nobody needs both the value and its copy: the operator before it gives the copy, also
// to memory outside, or the operators behind it read the value. It stays where both are seen from outside, or one of
// them is overwritten while the other is read. Sums of gradients in which nothing is summed, and outputs of steps, are
// such moves. Rounds otherwise where an operator comes to add its term to a sum.
bool DropMoves(StepGraph* graph);

// Operators that have a formula or only copy and fill become regions, one each, which passes may join
// (compiler/region_nodes.h), and those that say which products they are made of (FC, MatMul; core/expansion.h)
// products. Others stay calls.
bool Expand(StepGraph* graph);

// Values of one blob that are not made of each other get homes of their own: a name that is used again orders nothing,
// and what a step leaves in it alone lives where it is seen later.
bool SplitHomes(StepGraph* graph);

// Where operators do the same with the same values, the first one computes what all give: products that a cell writes
// twice, as the h @ u of Tanh(h @ u) and Sigmoid(h @ u). Random numbers stay those of each operator; bits stay the
// same.
bool MergeEqual(StepGraph* graph);

// Where an operator adds up its inputs, as its formula says, only for that to be added to memory outside, each of them
// is added there: outside += Sum(a, b) becomes outside += a and outside += b, the same within rounding. So each of
// several operators that use one weight may add to its gradient itself, and need not wait for the others in the same
// step.
bool AddTerms(StepGraph* graph);

// A term that is 0, as a formula says, is not added to memory outside.
bool DropZeros(StepGraph* graph);

// Where a row of memory outside is zeros until a step of a backward run adds a term, and that is the only one, the
// operator that gives the term writes it there.
bool WriteOnlyTerms(StepGraph* graph);

// Operators that can (Kernel::can_add) add to memory outside what would otherwise be moved there, and what nothing else
// reads: this saves a copy of each term of a sum over the steps. Rounds otherwise: a product may begin with the sum.
bool FoldSums(StepGraph* graph);

// Takes away what nobody reads, in the step or outside, and what was made for that alone: moves, and operators of which
// a formula or an expansion says all that they do. Others may throw or have an effect, and stay. Runs behind what adds
// terms, which counts readers: results keep their bits.
bool Simplify(StepGraph* graph);

// Takes away the outputs that nothing reads, in the step or outside, of operators which compute only those of their
// outputs that they are asked for (Kernel::can_leave_out): the gradient of weights that nobody trains.
bool DropOutputs(StepGraph* graph);

// A bias that all steps share, and which an operator adds to each row of a product or of a sum with products, is added
// by one of the products, where that can have one; rather by one that no step waits for. Rounds otherwise.
bool FoldBiases(StepGraph* graph);

// Where an operator adds up two values, and the later of them comes from one that can add, that adds to the other where
// the sum is to be, which rounds otherwise. Behind what takes away unread values: nothing reads the first one any more.
// Where the other is of a sequence from outside, on targets that take copies of many steps at once, it is copied there.
// It does not where a product that may run for many steps at once would come into the loop, nor where it would keep
// products of one value from becoming one (merge_products).
bool AddInPlace(StepGraph* graph);

// Kernels read and write in any order. Where links show an operator the same rows as an input and as an output, or rows
// that overlap, and it may not work in place there, it reads a copy of the input.
bool CopyInputs(StepGraph* graph);

// What the caller has lent (StepGraph::lent) and nodes write to is copied before the first step: steps change the copy.
bool CopyLent(StepGraph* graph);

// What follows from what is the same in all steps, as from parameters alone, is computed once, before the first step.
// Bits stay the same. The gradient's steps read what it was kept for there, too.
bool Hoist(StepGraph* graph);

// Products of one value become one where their weights, which all steps share, are small: these are laid side by side,
// once for all steps, and what was a product is a part of the columns. So do products that are added up, if all of them
// are of the same values: x u + h v and x w + h z. Rounds otherwise: a product of more columns may add up in another
// order.
bool MergeProducts(StepGraph* graph);

// A product that MergeProducts leaves alone beside others of the same value.
struct ProductApart {
  int op_index = -1;  // of its node
  std::string value;  // blob
  std::string why;    // "one has a bias, and one has none"
};
// Those of a graph as MergeProducts finds it.
std::vector<ProductApart> FindProductsApart(StepGraph graph);

// Finds the stages of a step (compiler/find_stages.h). An operator that gives sums over the steps and rows becomes two
// nodes, which give each a part of its outputs, where these come to be in different stages. What one stage gives to
// another is kept. Rounds otherwise: a product of many rows adds up in another order.
bool FormStages(StepGraph* graph);

// Operators of loops read weights in the form that their kernel likes best (Kernel::packing), made once before the
// first step where nothing writes to them. Rounds otherwise: kernels of another form add up in another order.
bool PackWeights(StepGraph* graph);

// Where the first operator that adds to memory which would be zeros (Home::starts_at_zero) runs once for all steps, it
// writes instead, and the memory is cleared only in runs of no steps.
bool WriteFirstTerms(StepGraph* graph);

// Regions of a loop of which one reads what the other gives become one, with the same bits: values that only they use
// are in no memory, and a step has fewer instructions. Nodes between them are put before or behind them, where bytes
// allow that.
bool FuseRegions(StepGraph* graph);

// Runs behind the other passes for every plan that is made while the object lives, on any thread: for tests of what
// passes may leave behind. One at a time.
class ExtraPass {
 public:
  explicit ExtraPass(std::function<void(StepGraph*)> run);
  ExtraPass(const ExtraPass&) = delete;
  ExtraPass& operator=(const ExtraPass&) = delete;
  ~ExtraPass();
};

}  // namespace stepnet
