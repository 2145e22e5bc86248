// FormulaProgram: what the formula of an operator says for inputs of some shapes, and the program that computes it.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "stepnet/core/formulas/column_programs.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/regions/region_code.h"
#include "stepnet/core/regions/region_program.h"
#include "stepnet/core/regions/region_split.h"

namespace stepnet {

// Immutable; any number of threads may use it at once.
class FormulaProgram {
 public:
  // `wanted` says what it does for MakeFormulaRegion.
  FormulaProgram(const ShapeQuery& query, std::uint64_t wanted, FormulaRegion formula);

  const FormulaRegion& formula() const { return formula_; }
  // The operations of an element, whatever they are.
  int num_operations() const { return num_operations_; }
  // Into how many parts a run of these shapes may be cut.
  int max_parts() const;

  // Makes the program, which shape rules do not need.
  void Prepare() const;
  // Whether the program computes such a run, for these outputs: of inputs of the shapes that it was made for or, where
  // each input has as many elements as each output, of any. Here and below, REQUIRES: Prepare has returned.
  bool IsFor(const OpRun& run, std::uint64_t wanted) const {
    if (wanted_ != wanted) return false;
    // It has no branch for each input: small operators take no longer than some of them.
    std::uint64_t differs = 0;
    const Input* expected = inputs_.data();
    if (is_flat_) {
      const std::int64_t size = run.Out(first_output_).size();
      for (const TensorView& in : run.inputs()) {
        differs |= static_cast<std::uint64_t>(in.shape->size() ^ size) | DiffersIn(in.dtype, expected++->dtype);
      }
      return differs == 0;
    }
    for (const TensorView& in : run.inputs()) {
      differs |= (in.shape->key() ^ expected->key) | DiffersIn(in.dtype, expected->dtype);
      ++expected;
    }
    return differs == 0 && (have_keys_ || HasShapesOf(run));
  }
  void Run(const OperatorCall& op, const OpRun& run) const;

 private:
  struct Input {
    std::uint64_t key = 0;  // of its shape
    DType dtype = {};
  };

  static std::uint64_t DiffersIn(DType a, DType b) {
    return static_cast<std::uint64_t>(static_cast<int>(a) ^ static_cast<int>(b));
  }
  bool HasShapesOf(const OpRun& run) const;

  void UseDirect(const RegionDirect& direct) const;
  void UseSimple(const RegionSimple* simple) const;
  // REQUIRES simple_.
  void RunSimple(const OpRun& run) const;
  void RunAny(const OperatorCall& op, const OpRun& run) const;
  void RunOn(const OperatorCall& op, const OpRun& run, void** pointers) const;

  // What every run reads stands together, in few lines of the cache.
  const std::uint64_t wanted_;
  std::vector<Input> inputs_;
  const int first_output_;
  mutable bool is_flat_ = false;                  // the program is one for any number of elements
  mutable const RegionSimple* simple_ = nullptr;  // null: the program is not, or reads values of the run
  // Which rows of the operator's inputs it splits; none where that is not by one test.
  mutable std::optional<RowTest> test_;
  mutable RegionDirect direct_;  // that one instruction, with the operator's inputs and output; no kernel: it has more
  std::vector<Shape> shapes_;    // of the inputs
  bool have_keys_ = true;        // which tell apart all shapes that it was made for
  const FormulaRegion formula_;
  const bool may_be_flat_;
  const bool reads_run_values_;
  int num_operations_ = 0;
  mutable std::once_flag once_;
  mutable std::optional<RegionProgram> program_;
  mutable ColumnPrograms column_programs_;
};

}  // namespace stepnet
