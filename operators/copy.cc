// Copy and its relatives: the output is the input, of any type. So they are no formulas, which have no strings.
//
// Caffe2's Alias shares memory with its input. Here it copies: a later operator that works in place on one of them then
// changes that one alone, and step nets keep their planned memory.
#include "stepnet/core/operator.h"

namespace stepnet {
namespace {

std::vector<TensorInfo> LikeFirstInput(const ShapeQuery& query) { return {query.In(0)}; }

RunFn CopyKernel(const OperatorCall&) {
  return [](const OpRun& run) { CopyElements(run.In(0), run.Out(0)); };
}

Operator CopyOperator(const std::string& type, const std::string& doc) {
  Operator op(type);
  op.Doc(doc).Input("x", "any shape and type").Output("y", "the shape and type of x").Shapes(LikeFirstInput);
  return op;
}

const Registration copy =
    CopyOperator("Copy", "y = x.").Gradient("CopyOnDeviceLike", {"dy", "x"}, {"dx"}).Cpu(CopyKernel);

const Registration copy_from_cpu_input =
    CopyOperator("CopyFromCPUInput", "y = x, where x is in the memory of the CPU whatever device the operator is on.")
        .Gradient("EnsureCPUOutput", {"dy"}, {"dx"})
        .Cpu(CopyKernel);

const Registration ensure_cpu_output =
    CopyOperator("EnsureCPUOutput", "y = x, where y is in the memory of the CPU whatever device the operator is on.")
        .Gradient("CopyOnDeviceLike", {"dy", "x"}, {"dx"})
        .Cpu(CopyKernel);

const Registration copy_on_device_like = Operator("CopyOnDeviceLike")
                                             .Doc("y = x, on the device where `like` is.")
                                             .Input("x", "any shape and type")
                                             .Input("like", "any tensor; its elements are not read")
                                             .Output("y", "the shape and type of x")
                                             .Shapes(LikeFirstInput)
                                             .Gradient("CopyOnDeviceLike", {"dy", "x"}, {"dx"})
                                             .Cpu(CopyKernel);

// Without a kernel for the CPU: a net that has them is refused there.
const Registration copy_cpu_to_gpu =
    CopyOperator("CopyCPUToGPU", "y = x, from the CPU to the GPU.").Gradient("CopyGPUToCPU", {"dy"}, {"dx"});

const Registration copy_gpu_to_cpu =
    CopyOperator("CopyGPUToCPU", "y = x, from the GPU to the CPU.").Gradient("CopyCPUToGPU", {"dy"}, {"dx"});

const Registration alias = CopyOperator("Alias", "y = x, another name for the same value.")
                               .InPlace({{0, 0}})
                               .Gradient([](GradientBuilder& g) { g.SetDense(0, g.GO(0)); })
                               .Cpu(CopyKernel);

}  // namespace
}  // namespace stepnet
