// Conv: every pixel of y is the product of the filter and the patch of x around it, plus the bias. The patches of an
// image are written side by side as a matrix, so that all pixels are one product.
#include <algorithm>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/cost.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/operators/convolution.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/products/gemm.h"

namespace stepnet {
namespace {

// Elements of an image up to the first of a group: of x with its channels, of y with its outputs.
std::int64_t GroupOffset(const ConvSizes& sizes, std::int64_t first_channel, std::int64_t pixels) {
  return sizes.channels_last ? first_channel : first_channel * pixels;
}

// How many images are one product: with NHWC the pixels of several follow each other, and small images alone would make
// small products. It decides how sums over images round, so it is no figure of a Target.
std::int64_t ImagesAtOnce(const ConvSizes& sizes) {
  constexpr std::int64_t kPatchElements = 1 << 18;  // about what a second-level cache holds
  if (!sizes.channels_last) return 1;
  return std::max<std::int64_t>(kPatchElements / std::max<std::int64_t>(sizes.pixels_out() * sizes.patch(), 1), 1);
}

// Calls fn(first image, number of images) for all images.
template <typename Fn>
void ForImages(const ConvSizes& sizes, const Fn& fn) {
  const std::int64_t at_once = ImagesAtOnce(sizes);
  for (std::int64_t i = 0; i < sizes.images; i += at_once) fn(i, std::min(at_once, sizes.images - i));
}

template <typename T>
void ImagesToPatches(const ConvSizes& sizes, std::int64_t group, std::int64_t count, const T* images, T* patches) {
  for (std::int64_t i = 0; i < count; ++i) {
    ImageToPatches(sizes, group, images + i * sizes.channels * sizes.pixels_in(),
                   patches + i * sizes.pixels_out() * sizes.patch());
  }
}

// One group of y for `pixels` pixels, of one image or more. `filter`, `bias` (or null) and `y` begin with the group.
template <typename T>
void ConvolveGroup(const ConvSizes& sizes, std::int64_t pixels, const T* patches, std::int64_t patch_stride,
                   const T* filter, const T* bias, T* y) {
  const std::int64_t outputs = sizes.outputs_of_group(), patch = sizes.patch();
  if (sizes.channels_last) {
    Gemm<T>(pixels, outputs, patch, {patches, patch_stride}, {filter, patch, true}, y, sizes.outputs, false, bias);
    return;
  }
  for (std::int64_t o = 0; bias != nullptr && o < outputs; ++o) std::fill_n(y + o * pixels, pixels, bias[o]);
  Gemm<T>(outputs, pixels, patch, {filter, patch}, {patches, patch_stride}, y, pixels, bias != nullptr);
}

RunFn ConvKernel(const OperatorCall& op) {
  PrepareGemm();
  return FloatKernel(op, [arguments = ConvArguments(op)]<typename T>(const OpRun& run) {
    const ConvSizes sizes(*run.In(0).shape, *run.In(1).shape, arguments);
    const T* filter = run.In(1).As<T>();
    const T* bias = run.num_inputs() == 3 ? run.In(2).As<T>() : nullptr;
    const std::int64_t pixels = sizes.pixels_out(), patch = sizes.patch();
    const bool copies = !sizes.PatchIsPixel();
    T* scratch = copies ? run.ScratchOf<T>(std::min(ImagesAtOnce(sizes), sizes.images) * pixels * patch) : nullptr;
    const std::int64_t stride = !sizes.channels_last ? pixels : copies ? patch : sizes.channels;
    ForImages(sizes, [&](std::int64_t first, std::int64_t count) {
      const T* images = run.In(0).As<T>() + first * sizes.channels * sizes.pixels_in();
      T* y = run.Out(0).As<T>() + first * sizes.outputs * pixels;
      for (std::int64_t g = 0; g < sizes.groups; ++g) {
        if (copies) ImagesToPatches(sizes, g, count, images, scratch);
        const T* patches = copies ? scratch : images + GroupOffset(sizes, g * sizes.channels_of_group(), pixels);
        const std::int64_t output = g * sizes.outputs_of_group();
        ConvolveGroup<T>(sizes, count * pixels, patches, stride, filter + output * patch,
                         bias == nullptr ? nullptr : bias + output, y + GroupOffset(sizes, output, pixels));
      }
    });
  });
}

// dfilter += dy patches^T, and patches = what they get of dy when `wants_dx`, for one group of `pixels` pixels.
template <typename T>
void AddGroupGradients(const ConvSizes& sizes, std::int64_t pixels, const T* filter, const T* dy, bool wants_dx,
                       T* patches, T* dfilter) {
  const std::int64_t outputs = sizes.outputs_of_group(), patch = sizes.patch();
  if (sizes.channels_last) {
    const std::int64_t stride = sizes.outputs;
    Gemm<T>(outputs, patch, pixels, {dy, stride, true}, {patches, patch}, dfilter, patch, true);
    if (wants_dx) Gemm<T>(pixels, patch, outputs, {dy, stride}, {filter, patch}, patches, patch);
  } else {
    Gemm<T>(outputs, patch, pixels, {dy, pixels}, {patches, pixels, true}, dfilter, patch, true);
    if (wants_dx) Gemm<T>(patch, pixels, outputs, {filter, patch, true}, {dy, pixels}, patches, pixels);
  }
}

template <typename T>
void SumOutputs(const ConvSizes& sizes, const T* dy, T* db) {
  const std::int64_t pixels = sizes.pixels_out();
  std::fill_n(db, sizes.outputs, T{0});
  for (std::int64_t i = 0; i < sizes.images; ++i, dy += sizes.outputs * pixels) {
    for (std::int64_t o = 0; o < sizes.outputs; ++o) {
      CountWork(pixels);
      T sum = 0;
      for (std::int64_t p = 0; p < pixels; ++p)
        sum += sizes.channels_last ? dy[p * sizes.outputs + o] : dy[o * pixels + p];
      db[o] += sum;
    }
  }
}

// Outputs of ConvGradient: dfilter, then db unless no_bias, then perhaps dx.
struct GradientOutputs {
  int db, dx;  // -1: not there
  GradientOutputs(bool no_bias, int num_outputs)
      : db(no_bias || num_outputs < 2 ? -1 : 1), dx(num_outputs > (no_bias ? 1 : 2) ? num_outputs - 1 : -1) {}
};

RunFn ConvGradientKernel(const OperatorCall& op) {
  PrepareGemm();
  const GradientOutputs outputs(op.Bool("no_bias"), op.num_outputs());
  return FloatKernel(op, [arguments = ConvArguments(op), outputs]<typename T>(const OpRun& run) {
    const ConvSizes sizes(*run.In(0).shape, *run.In(1).shape, arguments);
    const std::int64_t pixels = sizes.pixels_out(), patch = sizes.patch();
    T* dfilter = run.Out(0).As<T>();
    T* dx = outputs.dx < 0 ? nullptr : run.Out(outputs.dx).As<T>();
    std::fill_n(dfilter, run.Out(0).size(), T{0});
    if (dx != nullptr) std::fill_n(dx, run.Out(outputs.dx).size(), T{0});
    if (outputs.db >= 0) SumOutputs(sizes, run.In(2).As<T>(), run.Out(outputs.db).As<T>());
    T* patches = run.ScratchOf<T>(std::min(ImagesAtOnce(sizes), sizes.images) * pixels * patch);
    ForImages(sizes, [&](std::int64_t first, std::int64_t count) {
      const std::int64_t image_size = sizes.channels * sizes.pixels_in();
      const T* dy = run.In(2).As<T>() + first * sizes.outputs * pixels;
      for (std::int64_t g = 0; g < sizes.groups; ++g) {
        const std::int64_t output = g * sizes.outputs_of_group();
        ImagesToPatches(sizes, g, count, run.In(0).As<T>() + first * image_size, patches);
        AddGroupGradients(sizes, count * pixels, run.In(1).As<T>() + output * patch,
                          dy + GroupOffset(sizes, output, pixels), dx != nullptr, patches, dfilter + output * patch);
        for (std::int64_t i = 0; dx != nullptr && i < count; ++i) {
          AddPatchesToImage(sizes, g, patches + i * pixels * patch, dx + (first + i) * image_size);
        }
      }
    });
  });
}

std::vector<TensorInfo> ConvShapes(const ShapeQuery& query) {
  ExpectFloats(query);
  const ConvSizes sizes(query, ConvArguments(query.op()));
  if (query.num_inputs() == 3 && query.In(2).shape != Shape({sizes.outputs})) {
    throw WrongInputs(query, {2}, StrCat("needs a bias of ", sizes.outputs, " elements, one an output"));
  }
  return {{.dtype = query.In(0).dtype, .shape = sizes.OutputShape()}};
}

std::vector<TensorInfo> ConvGradientShapes(const ShapeQuery& query) {
  ExpectFloats(query);
  const ConvSizes sizes(query, ConvArguments(query.op()));
  if (query.In(2).shape != sizes.OutputShape()) {
    throw WrongInputs(query, {2}, StrCat("needs a gradient of the shape of y, ", sizes.OutputShape()));
  }
  const GradientOutputs places(query.op().Bool("no_bias"), query.op().num_outputs());
  std::vector<TensorInfo> outputs(query.op().num_outputs(), query.In(1));
  if (places.db >= 0) outputs[places.db].shape = Shape({sizes.outputs});
  if (places.dx >= 0) outputs[places.dx].shape = query.In(0).shape;
  return outputs;
}

Cost ConvCost(const ShapeQuery& query, std::span<const TensorInfo> outputs) {
  const ConvSizes sizes(query.In(0).shape, query.In(1).shape, ConvArguments(query.op()));
  const bool is_gradient = query.op().type() == "ConvGradient";
  const double products = !is_gradient ? 1 : outputs.size() > 1 ? 2 : 1;
  return {.flops = products * 2 * static_cast<double>(sizes.OutputShape().size()) * static_cast<double>(sizes.patch()),
          .bytes = BytesMoved(query, outputs)};
}

const auto kCheckArguments = [](const OperatorCall& op) { ConvArguments{op}; };

const Registration conv =
    ConvArguments::AddTo(Operator("Conv"))
        .Doc("Convolution of images by a filter; each output adds its bias.")
        .Input("x", "[N, C, H, W], or [N, H, W, C] with order NHWC")
        .Input("filter", "[M, C / group, kernel_h, kernel_w], or [M, kernel_h, kernel_w, C / group]")
        .OptionalInput("b", "[M]")
        .Output("y", "[N, M, H', W'], or [N, H', W', M]")
        .Arg("no_gradient_to_input", false, "leaves out the gradient of x")
        .Check(CheckBy(kCheckArguments))
        .Shapes(ConvShapes)
        .CostIs(ConvCost)
        .Gradient([](GradientBuilder& g) {
          const bool has_bias = g.op().num_inputs() == 3;
          GradientOp op = {.type = "ConvGradient", .inputs = {g.I(0), g.I(1), g.GO(0)}, .outputs = {g.GI(1)}};
          if (has_bias) op.outputs.push_back(g.GI(2));
          if (!g.op().Bool("no_gradient_to_input")) op.outputs.push_back(g.GI(0));
          if (!has_bias) op.arguments["no_bias"].i = 1;
          g.Add(std::move(op));
        })
        .Cpu(ConvKernel);

const Registration conv_gradient =
    ConvArguments::AddTo(Operator("ConvGradient"))
        .Doc("Gradient of Conv. With no_bias, the second output is dx.")
        .Input("x", "as for Conv")
        .Input("filter", "as for Conv")
        .Input("dy", "the shape of y")
        .Output("dfilter", "the shape of the filter")
        .OptionalOutput("db", "[M]")
        .OptionalOutput("dx", "the shape of x")
        .Arg("no_gradient_to_input", false, "as for Conv")
        .Arg("no_bias", false, "the convolution has no bias")
        .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) {
          CheckBy(kCheckArguments)(op, problems);
          if (op.num_outputs() < 3 || !op.Bool("no_bias")) return;
          problems->push_back({.message = "ConvGradient with no_bias has two outputs, dfilter and dx; here are three"});
        })
        .Shapes(ConvGradientShapes)
        .CostIs(ConvCost)
        .Cpu(ConvGradientKernel);

}  // namespace
}  // namespace stepnet
