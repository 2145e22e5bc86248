// Conv and its gradient on a GPU: the patches of many images are rows of a matrix for each group, so that each is one
// product, whatever the order of the images.
#include "stepnet/gpu/cuda/kernels/elements.cuh"
#include "stepnet/gpu/cuda/kernels/matrix_products.cuh"
#include "stepnet/operators/convolution.h"

namespace stepnet {
namespace {

// Where element `e` of a patch comes from, as the filter lies.
struct Tap {
  std::int64_t channel, i, j;  // of the group; of the kernel

  __device__ Tap(const ConvSizes& sizes, std::int64_t e) {
    if (sizes.channels_last) {
      channel = e % sizes.channels_of_group();
      j = e / sizes.channels_of_group() % sizes.w.kernel;
      i = e / sizes.channels_of_group() / sizes.w.kernel;
    } else {
      j = e % sizes.w.kernel;
      i = e / sizes.w.kernel % sizes.h.kernel;
      channel = e / sizes.w.kernel / sizes.h.kernel;
    }
  }
  __device__ static std::int64_t ElementOf(const ConvSizes& sizes, std::int64_t channel, std::int64_t i,
                                           std::int64_t j) {
    if (sizes.channels_last) return (i * sizes.w.kernel + j) * sizes.channels_of_group() + channel;
    return (channel * sizes.h.kernel + i) * sizes.w.kernel + j;
  }
};

// Element of a tensor of images, of `channels` channels and so many pixels.
__device__ inline std::int64_t ImageAt(bool channels_last, std::int64_t channels, std::int64_t pixels,
                                       std::int64_t image, std::int64_t channel, std::int64_t pixel) {
  return channels_last ? (image * pixels + pixel) * channels + channel : (image * channels + channel) * pixels + pixel;
}

// patches [groups, images * pixels_out, patch]
template <typename T>
struct PatchElement {
  ConvSizes sizes;  // of the images at hand
  const T* x;
  T* patches;

  __device__ void operator()(std::int64_t at) const {
    const std::int64_t patch = sizes.patch(), rows = sizes.images * sizes.pixels_out();
    const Tap tap(sizes, at % patch);
    const std::int64_t row = at / patch % rows, group = at / patch / rows;
    const std::int64_t image = row / sizes.pixels_out(), pixel = row % sizes.pixels_out();
    const std::int64_t y_in = sizes.h.At(pixel / sizes.w.out, tap.i), x_in = sizes.w.At(pixel % sizes.w.out, tap.j);
    const bool is_inside = sizes.h.IsInside(y_in) && sizes.w.IsInside(x_in);
    const std::int64_t channel = group * sizes.channels_of_group() + tap.channel;
    patches[at] = is_inside ? x[ImageAt(sizes.channels_last, sizes.channels, sizes.pixels_in(), image, channel,
                                        y_in * sizes.w.in + x_in)]
                            : T{0};
  }
};

// Where an element of y is in [groups, images * pixels_out, outputs of a group].
struct OutputPlace {
  std::int64_t output, at;

  __device__ OutputPlace(const ConvSizes& sizes, std::int64_t i) {
    const std::int64_t pixels = sizes.pixels_out();
    output = sizes.channels_last ? i % sizes.outputs : i / pixels % sizes.outputs;
    const std::int64_t row = sizes.channels_last ? i / sizes.outputs : i / pixels / sizes.outputs * pixels + i % pixels;
    const std::int64_t of_group = sizes.outputs_of_group();
    at = (output / of_group * sizes.images * pixels + row) * of_group + output % of_group;
  }
};
template <typename T>
struct OutputElement {
  ConvSizes sizes;
  const T* products;
  const T* bias;  // null: none
  T* y;

  __device__ void operator()(std::int64_t i) const {
    const OutputPlace place(sizes, i);
    y[i] = products[place.at] + (bias == nullptr ? T{0} : bias[place.output]);
  }
};
template <typename T>
struct OutputGradientElement {
  ConvSizes sizes;
  const T* dy;
  T* rows;

  __device__ void operator()(std::int64_t i) const { rows[OutputPlace(sizes, i).at] = dy[i]; }
};

// dx: the sum of what all patches that hold the element get.
template <typename T>
struct ImageGradientElement {
  ConvSizes sizes;
  const T* dpatches;
  T* dx;

  __device__ void operator()(std::int64_t at) const {
    const std::int64_t pixels = sizes.pixels_in();
    const std::int64_t channel = sizes.channels_last ? at % sizes.channels : at / pixels % sizes.channels;
    const std::int64_t pixel = sizes.channels_last ? at / sizes.channels % pixels : at % pixels;
    const std::int64_t image = at / pixels / sizes.channels;
    const std::int64_t group = channel / sizes.channels_of_group(), of_group = channel % sizes.channels_of_group();
    const T* rows = dpatches + (group * sizes.images + image) * sizes.pixels_out() * sizes.patch();
    T sum = 0;
    for (std::int64_t i = 0; i < sizes.h.kernel; ++i) {
      const std::int64_t y = sizes.h.OutputAt(pixel / sizes.w.in, i);
      if (y < 0) continue;
      for (std::int64_t j = 0; j < sizes.w.kernel; ++j) {
        const std::int64_t x = sizes.w.OutputAt(pixel % sizes.w.in, j);
        if (x >= 0) sum += rows[(y * sizes.w.out + x) * sizes.patch() + Tap::ElementOf(sizes, of_group, i, j)];
      }
    }
    dx[at] = sum;
  }
};

// Memory for the images that are at hand, which others use after them.
template <typename T>
struct ConvMemory {
  T* patches;  // [groups, images * pixels_out, patch]
  T* outputs;  // [groups, images * pixels_out, outputs of a group]
  void* of_products;

  ConvMemory(const OpRun& run, const ConvSizes& sizes)
      : patches(run.ScratchOf<T>(sizes.groups * sizes.images * sizes.pixels_out() * sizes.patch())),
        outputs(run.ScratchOf<T>(sizes.images * sizes.pixels_out() * sizes.outputs)),
        of_products(MatrixProducts::ScratchOf(run)) {}
};

// Calls fn(sizes of some images, the first of them, memory) for all images: as many at once as keep the patches small.
template <typename T, typename Fn>
void ForImages(const OpRun& run, const ConvSizes& all, const Fn& fn) {
  constexpr std::int64_t kPatchElements = 1 << 26;  // it decides how sums over images round: no figure of a Target
  const std::int64_t of_image = std::max<std::int64_t>(all.pixels_out() * all.patch() * all.groups, 1);
  const std::int64_t at_once = std::max<std::int64_t>(kPatchElements / of_image, 1);
  ConvSizes some = all;
  some.images = std::min(at_once, all.images);
  const ConvMemory<T> memory(run, some);
  for (std::int64_t first = 0; first < all.images; first += at_once) {
    some.images = std::min(at_once, all.images - first);
    fn(some, first, memory);
  }
}

template <typename T>
void MakePatches(const OpRun& run, const ConvSizes& sizes, const T* x, T* patches) {
  const std::int64_t count = sizes.groups * sizes.images * sizes.pixels_out() * sizes.patch();
  ForEach(run, count, PatchElement<T>{sizes, x, patches});
}

ProductFactor Factor(const ConvSizes& sizes, std::int64_t rows, std::int64_t columns, bool transposed = false) {
  return {.shape = {sizes.groups, rows, columns}, .transposed = transposed};
}

template <typename T>
void Convolve(const OpRun& run, const ConvSizes& all, MatrixProducts& products) {
  const T* bias = run.num_inputs() == 3 ? run.In(2).As<T>() : nullptr;
  ForImages<T>(run, all, [&](const ConvSizes& sizes, std::int64_t first, const ConvMemory<T>& memory) {
    const std::int64_t rows = sizes.images * sizes.pixels_out();
    MakePatches(run, sizes, run.In(0).As<T>() + first * sizes.channels * sizes.pixels_in(), memory.patches);
    products.Run<T>(run,
                    {.left = Factor(sizes, rows, sizes.patch()),
                     .right = Factor(sizes, sizes.outputs_of_group(), sizes.patch(), true)},
                    memory.patches, run.In(1).As<T>(), memory.outputs, false, memory.of_products);
    T* y = run.Out(0).As<T>() + first * sizes.outputs * sizes.pixels_out();
    ForEach(run, rows * sizes.outputs, OutputElement<T>{sizes, memory.outputs, bias, y});
  });
}

template <typename T>
struct OutputGradient {
  ConvSizes sizes;
  const T* dy;

  // The gradient of one output at pixel `pixel` of all images.
  __device__ double operator()(std::int64_t output, std::int64_t pixel) const {
    return dy[ImageAt(sizes.channels_last, sizes.outputs, sizes.pixels_out(), pixel / sizes.pixels_out(), output,
                      pixel % sizes.pixels_out())];
  }
};
template <typename T>
struct Rounded {
  const double* from;
  T* to;
  __device__ void operator()(std::int64_t i) const { to[i] = static_cast<T>(from[i]); }
};

// Outputs: dfilter, then db unless no_bias, then perhaps dx.
template <typename T>
void ConvolveBackward(const OpRun& run, const ConvSizes& all, bool no_bias, MatrixProducts& products) {
  const int outputs = run.num_outputs();
  T* dx = outputs > (no_bias ? 1 : 2) ? run.Out(outputs - 1).As<T>() : nullptr;
  if (!no_bias && outputs > 1) {
    const double* sums =
        SumsOf(run, all.outputs, all.images * all.pixels_out(), OutputGradient<T>{all, run.In(2).As<T>()});
    ForEach(run, all.outputs, Rounded<T>{sums, run.Out(1).As<T>()});
  }
  if (all.images == 0) ClearOutput(run, 0);
  ForImages<T>(run, all, [&](const ConvSizes& sizes, std::int64_t first, const ConvMemory<T>& memory) {
    const std::int64_t rows = sizes.images * sizes.pixels_out(), image = sizes.channels * sizes.pixels_in();
    const std::int64_t of_group = sizes.outputs_of_group(), patch = sizes.patch();
    MakePatches(run, sizes, run.In(0).As<T>() + first * image, memory.patches);
    ForEach(run, rows * sizes.outputs,
            OutputGradientElement<T>{sizes, run.In(2).As<T>() + first * sizes.outputs * sizes.pixels_out(),
                                     memory.outputs});
    products.Run<T>(run, {.left = Factor(sizes, rows, of_group, true), .right = Factor(sizes, rows, patch)},
                    memory.outputs, memory.patches, run.Out(0).As<T>(), first > 0, memory.of_products);
    if (dx == nullptr) return;
    products.Run<T>(run, {.left = Factor(sizes, rows, of_group), .right = Factor(sizes, of_group, patch)},
                    memory.outputs, run.In(1).As<T>(), memory.patches, false, memory.of_products);
    ForEach(run, sizes.images * image, ImageGradientElement<T>{sizes, memory.patches, dx + first * image});
  });
}

KernelFactory MakeConv(bool is_gradient) {
  return [is_gradient](const OperatorCall& op) -> RunFn {
    const bool no_bias = is_gradient && op.Bool("no_bias");
    return [arguments = ConvArguments(op), no_bias, is_gradient,
            products = std::make_shared<MatrixProducts>(op.options().math)](const OpRun& run) {
      const ConvSizes sizes(*run.In(0).shape, *run.In(1).shape, arguments);
      ForFloats(run.Out(0).dtype, [&](auto zero) {
        using T = decltype(zero);
        is_gradient ? ConvolveBackward<T>(run, sizes, no_bias, *products) : Convolve<T>(run, sizes, *products);
      });
    };
  };
}

const GpuKernel conv("Conv", {.make = MakeConv(false)});
const GpuKernel conv_gradient("ConvGradient", {.make = MakeConv(true)});

}  // namespace
}  // namespace stepnet
