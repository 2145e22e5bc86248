// Copy and its relatives: the output is the input, of any type. So they are no formulas, which have no strings.
//
// Caffe2's Alias shares memory with its input. Here it copies: a later operator that works in place on one of them then
// changes that one alone, and step nets keep their planned memory.
#include <memory>
#include <vector>

#include "stepnet/core/expansion.h"
#include "stepnet/core/move.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/tensor_home.h"

namespace stepnet {
namespace {

std::vector<TensorInfo> LikeFirstInput(const ShapeQuery& query) { return {query.In(0)}; }

// Copies that may go from one device to another. What is no tensor stays what it is, where it is.
Kernel CopyTo(bool to_host) {
  return {.make = [to_host](const OperatorCall& op) -> RunFn {
            const Device device = to_host ? Device{} : op.options().device();
            return [device, home = std::make_shared<TensorHome>(device)](const OpRun& run) {
              const Blob& x = run.host().Input(0);
              Blob& y = run.host().Output(0);
              if (&x == &y) {
                if (x.HasTensor() && x.GetTensor().device() != device) y.SetTensor(home->CopyOf(x.GetTensor()));
                return;
              }
              const Tensor copy = x.GetTensor().To(device);
              y.SetTensor(copy.SharesStorageWith(x.GetTensor()) ? copy.Clone() : copy);
            };
          },
          .takes_blobs = true,
          .host_inputs = {0},
          .host_outputs = to_host ? std::vector<int>{0} : std::vector<int>{}};
}

Operator CopyOperator(const std::string& type, const std::string& doc) {
  Operator op(type);
  op.Doc(doc).Input("x", "any shape and type").Output("y", "the shape and type of x").Shapes(LikeFirstInput);
  return op;
}

const Registration copy = CopyOperator("Copy", "y = x.")
                              .Expands(ExpandCopy)
                              .Gradient("CopyOnDeviceLike", {"dy", "x"}, {"dx"})
                              .Cpu(CopyKernel());

const Registration copy_from_cpu_input =
    CopyOperator("CopyFromCPUInput", "y = x, where x is in the memory of the CPU whatever device the operator is on.")
        .Gradient("EnsureCPUOutput", {"dy"}, {"dx"})
        .InPlace({{0, 0}})
        .OnEveryDevice(CopyTo(/*to_host=*/false))
        .Cpu(CopyKernel());

const Registration ensure_cpu_output =
    CopyOperator("EnsureCPUOutput", "y = x, where y is in the memory of the CPU whatever device the operator is on.")
        .Gradient("CopyOnDeviceLike", {"dy", "x"}, {"dx"})
        .OnEveryDevice(CopyTo(/*to_host=*/true))
        .Cpu(CopyKernel());

const Registration copy_on_device_like = Operator("CopyOnDeviceLike")
                                             .Doc("y = x, on the device where `like` is.")
                                             .Input("x", "any shape and type")
                                             .Input("like", "any tensor; its elements are not read")
                                             .Output("y", "the shape and type of x")
                                             .Shapes(LikeFirstInput)
                                             .ReadsShapes({1})
                                             .Expands(ExpandCopy)
                                             .Gradient("CopyOnDeviceLike", {"dy", "x"}, {"dx"})
                                             .OnEveryDevice(CopyKernel());

// They have no kernel for the CPU: a net that has them is refused there.
const Registration copy_cpu_to_gpu = CopyOperator("CopyCPUToGPU", "y = x, from the CPU to the GPU.")
                                         .Gradient("CopyGPUToCPU", {"dy"}, {"dx"})
                                         .On(DeviceKind::kCuda, CopyTo(/*to_host=*/false));

const Registration copy_gpu_to_cpu = CopyOperator("CopyGPUToCPU", "y = x, from the GPU to the CPU.")
                                         .Gradient("CopyCPUToGPU", {"dy"}, {"dx"})
                                         .On(DeviceKind::kCuda, CopyTo(/*to_host=*/true));

const Registration alias = CopyOperator("Alias", "y = x, another name for the same value.")
                               .InPlace({{0, 0}})
                               .Expands(ExpandCopy)
                               .Gradient([](GradientBuilder& g) { g.SetDense(0, g.GO(0)); })
                               .OnEveryDevice(CopyKernel());

}  // namespace
}  // namespace stepnet
