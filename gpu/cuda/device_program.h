// DeviceProgram: what an operator does on a GPU for inputs of some shapes: products and generated kernels, one after
// the other.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <vector>

#include "stepnet/core/expansion.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/gpu/cuda/cuda_runtime.h"
#include "stepnet/gpu/cuda/product_kernel.h"
#include "stepnet/gpu/cuda/region_kernel.h"
#include "stepnet/gpu/cuda/sum_dims.h"

namespace stepnet {

// Whether it is the formula that programs of the type run: sums that the operator is made of as well are added by more
// threads than a row of a formula has. In 16 bits, in which expansions say nothing, it is the formula all the same.
inline bool DeviceRunsFormula(const OperatorSchema& schema) { return schema.formula && !schema.expansion; }

// Immutable; any number of threads may run it at once.
class DeviceProgram {
 public:
  // `outputs`: as the run has them; `wanted`: bit i for output i, others are not computed. Throws as formulas do.
  DeviceProgram(const OperatorCall& op, std::span<const TensorInfo> inputs, std::span<const TensorInfo> outputs,
                std::uint64_t wanted, CudaRuntime& runtime);

  // Whether it computes such a run, for these outputs.
  bool IsFor(const OpRun& run, std::uint64_t wanted) const;
  // The operator says nothing of such inputs: this is no program.
  bool says_nothing() const { return says_nothing_; }
  // REQUIRES: it is one.
  void Run(const OperatorCall& op, const OpRun& run) const;

 private:
  struct PlannedProduct {
    int output = 0;
    Product product;
    std::unique_ptr<ProductKernel> kernel;  // null: the sum over the rows of `left`
    std::unique_ptr<GpuRegion> bias;        // behind a product that takes none
  };
  struct PlannedSum {
    int input = 0;
    int output = 0;
    SumDims dims;
    double factor = 1;
    bool is_of_rows = false;  // of a matrix, and of nothing else
  };
  void UseFormula(const OperatorCall& op, const ShapeQuery& query);
  void AddSums(const Expansion& expansion);
  void AddProducts(const OperatorCall& op, const ShapeQuery& query, const Expansion& expansion);
  void RunProduct(const PlannedProduct& planned, const OpRun& run) const;
  void RunFormula(const OperatorCall& op, const OpRun& run) const;

  std::vector<TensorInfo> inputs_;
  std::vector<TensorInfo> outputs_;  // those that follow from values of inputs, else empty
  const std::uint64_t wanted_;
  CudaRuntime& runtime_;
  bool says_nothing_ = false;
  std::optional<FormulaRegion> formula_;
  std::unique_ptr<GpuRegion> formula_kernel_;
  std::vector<RegionPart> parts_;
  std::vector<std::unique_ptr<GpuRegion>> part_kernels_;
  std::vector<PlannedProduct> products_;
  std::vector<PlannedSum> sums_;
};

}  // namespace stepnet
