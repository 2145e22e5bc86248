#include "stepnet/gpu/cuda/device_program.h"

#include <algorithm>
#include <utility>

#include "stepnet/gpu/cuda/cuda_call.h"
#include "stepnet/gpu/for_floats.h"

namespace stepnet {
namespace {

// out[r, c] = value of x[r, c] and b[c], for matrices that lie by rows.
RegionOperand Matrix(DType dtype, std::int64_t rows, std::int64_t columns) {
  return {.dtype = dtype, .size = rows * columns, .strides = {0, 0, columns, 1}};
}
RegionOperand RepeatedRow(DType dtype, std::int64_t columns) {
  return {.dtype = dtype, .size = columns, .strides = {0, 0, 0, 1}};
}

Region BiasRegion(DType dtype, std::int64_t rows, std::int64_t columns) {
  const RegionOperand matrix = Matrix(dtype, rows, columns);
  return {.sizes = {1, 1, rows, columns},
          .inputs = {matrix, RepeatedRow(dtype, columns)},
          .outputs = {{.value = Expr::Input(0, "x", dtype) + Expr::Input(1, "b", dtype), .memory = matrix}},
          .in_place = {{.input = 0, .output = 0}}};
}

}  // namespace

DeviceProgram::DeviceProgram(const OperatorCall& op, std::span<const TensorInfo> inputs,
                             std::span<const TensorInfo> outputs, std::uint64_t wanted, CudaRuntime& runtime)
    : inputs_(inputs.begin(), inputs.end()), wanted_(wanted), runtime_(runtime) {
  const ShapeQuery query(op, inputs);
  const OperatorSchema& schema = op.schema();
  if (!schema.shape_value_inputs.empty()) outputs_.assign(outputs.begin(), outputs.end());
  if (DeviceRunsFormula(schema)) {
    UseFormula(op, query);
    return;
  }
  const Expansion expansion(query, outputs_);
  AddProducts(op, query, expansion);
  AddSums(expansion);
  for (const RegionPart& part : expansion.parts()) {
    parts_.push_back(part);
    part_kernels_.push_back(std::make_unique<GpuRegion>(part.region, RegionSourceOptions{.name = op.type()}, runtime));
  }
  if (products_.empty() && parts_.empty() && sums_.empty()) UseFormula(op, query);
}

void DeviceProgram::UseFormula(const OperatorCall& op, const ShapeQuery& query) {
  const OperatorSchema& schema = op.schema();
  says_nothing_ = !schema.formula;
  if (says_nothing_) return;
  const std::vector<TensorInfo> outputs = outputs_.empty() ? schema.shapes(query) : outputs_;
  says_nothing_ = !FormulaApplies(query, outputs);
  if (says_nothing_) return;
  formula_ = MakeFormulaRegion(query, outputs, wanted_);
  RegionSourceOptions options{.name = op.type()};
  for (size_t i = 0; i < formula_->inputs.size(); ++i) {
    const int input = formula_->inputs[i];
    if (IsRunValue(input) && input != kNumberOfRun) options.values.push_back(static_cast<int>(i));
  }
  formula_kernel_ = std::make_unique<GpuRegion>(formula_->region, options, runtime_);
}

void DeviceProgram::AddSums(const Expansion& expansion) {
  for (size_t o = 0; o < expansion.sums().size(); ++o) {
    const std::optional<DimSum>& sum = expansion.sums()[o];
    if (!sum || (wanted_ >> o & 1) == 0) continue;
    PlannedSum planned{.input = sum->input, .output = static_cast<int>(o), .dims = {}, .factor = sum->factor};
    int num_kept = 0, num_summed = 0;
    std::int64_t stride = 1;
    for (int d = static_cast<int>(sum->sizes.size()) - 1; d >= 0; --d) {
      const std::int64_t size = sum->sizes[d];
      int& count = sum->summed[d] ? num_summed : num_kept;
      SumGroups& groups = sum->summed[d] ? planned.dims.summed : planned.dims.kept;
      if (size == 1) continue;
      const int place = kMaxSumGroups - 1 - count++;
      groups.sizes[place] = size;
      groups.strides[place] = stride;
      stride *= size;
    }
    const SumGroups& kept = planned.dims.kept;
    planned.is_of_rows = num_summed == 1 && num_kept == 1 && kept.strides[kMaxSumGroups - 1] == 1 && sum->factor == 1;
    sums_.push_back(planned);
  }
}

void DeviceProgram::AddProducts(const OperatorCall& op, const ShapeQuery& query, const Expansion& expansion) {
  for (size_t o = 0; o < expansion.products().size(); ++o) {
    const std::optional<Product>& product = expansion.products()[o];
    if (!product || (wanted_ >> o & 1) == 0) continue;
    PlannedProduct planned{.output = static_cast<int>(o), .product = *product};
    const DType dtype = query.In(product->left.input).dtype;
    const RegionSourceOptions named{.name = op.type()};
    if (product->right) {
      planned.kernel = std::make_unique<ProductKernel>(*product, dtype, op.options().math, runtime_);
      if (product->bias >= 0 && (!planned.kernel->takes_bias() || product->left.columns() == 0)) {
        const std::int64_t columns = product->right->columns();
        const std::int64_t rows = columns == 0 ? 0 : product->NumElements() / columns;
        planned.bias = std::make_unique<GpuRegion>(BiasRegion(dtype, rows, columns), named, runtime_);
      }
    }
    products_.push_back(std::move(planned));
  }
}

bool DeviceProgram::IsFor(const OpRun& run, std::uint64_t wanted) const {
  if (wanted != wanted_) return false;
  for (int i = 0; i < run.num_inputs(); ++i) {
    if (run.In(i).dtype != inputs_[i].dtype || *run.In(i).shape != inputs_[i].shape) return false;
  }
  for (size_t o = 0; o < outputs_.size(); ++o) {
    if (*run.Out(static_cast<int>(o)).shape != outputs_[o].shape) return false;
  }
  return true;
}

void DeviceProgram::Run(const OperatorCall& op, const OpRun& run) const {
  if (formula_) return RunFormula(op, run);
  UseCudaDevice(runtime_.index());
  for (const PlannedProduct& product : products_) RunProduct(product, run);
  const cudaStream_t stream = static_cast<CudaQueue&>(run.queue()).stream();
  for (const PlannedSum& sum : sums_) {
    const TensorView &x = run.In(sum.input), &out = run.Out(sum.output);
    ForFloats(out.dtype, [&](auto zero) {
      using T = decltype(zero);
      const bool adds = run.Adds(sum.output);
      CheckCuda(sum.is_of_rows
                    ? LaunchSumRows(x.As<T>(), sum.dims.summed.size(), sum.dims.kept.size(), out.As<T>(), adds, stream)
                    : LaunchSumDims(sum.dims, x.As<T>(), out.As<T>(), sum.factor, adds, stream),
                "a sum over dimensions");
    });
  }
  const auto operand = [&](int tensor) {
    return (tensor < run.num_inputs() ? run.In(tensor) : run.Out(tensor - run.num_inputs())).data;
  };
  for (size_t k = 0; k < parts_.size(); ++k) {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const int tensor : parts_[k].inputs) inputs.push_back(operand(tensor));
    for (const int tensor : parts_[k].outputs) outputs.push_back(operand(tensor));
    part_kernels_[k]->Run(run, inputs, outputs);
  }
}

void DeviceProgram::RunFormula(const OperatorCall& op, const OpRun& run) const {
  std::optional<RunValues> values;  // those that a recorded kernel keeps
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (const int input : formula_->inputs) {
    if (input == kNumberOfRun) {
      inputs.push_back(run.context().RunNumberOnDevice());
    } else if (IsRunValue(input)) {
      if (!values) values.emplace(op, run, /*with_run_number=*/false);
      inputs.push_back(values->Of(input));
    } else {
      inputs.push_back(run.In(input).data);
    }
  }
  for (const int output : formula_->outputs) outputs.push_back(run.Out(output).data);
  formula_kernel_->Run(run, inputs, outputs);
}

void DeviceProgram::RunProduct(const PlannedProduct& planned, const OpRun& run) const {
  const Product& product = planned.product;
  void* const out = run.Out(planned.output).data;
  const bool adds = run.Adds(planned.output);
  const void* const left = run.In(product.left.input).data;
  auto& queue = static_cast<CudaQueue&>(run.queue());
  if (planned.kernel == nullptr) {
    ForFloats(run.Out(planned.output).dtype, [&](auto zero) {
      using T = decltype(zero);
      CheckCuda(LaunchSumRows(static_cast<const T*>(left), product.left.rows(), product.left.columns(),
                              static_cast<T*>(out), adds, queue.stream()),
                "a sum of rows");
    });
    return;
  }
  const void* const bias = product.bias < 0 ? nullptr : run.In(product.bias).data;
  if (product.left.columns() > 0) {
    const ProductPointers pointers{.left = left,
                                   .right = run.In(product.right->input).data,
                                   .bias = planned.bias == nullptr ? bias : nullptr,
                                   .out = out,
                                   .adds = adds};
    planned.kernel->Run(pointers, run.ScratchOf<char>(ProductKernel::kScratchBytes), queue);
  } else if (!adds) {
    queue.Fill(out, 0, run.Out(planned.output).size_bytes());
  }
  if (planned.bias == nullptr) return;
  const void* const operands[] = {out, bias};
  planned.bias->Run(run, operands, std::span(&out, 1));
}

}  // namespace stepnet
