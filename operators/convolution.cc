#include "stepnet/operators/convolution.h"

#include <algorithm>
#include <limits>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/input_checks.h"

namespace stepnet {
namespace {

constexpr std::int64_t kLegacyPadNone = 0;
constexpr std::int64_t kLegacyPadSame = 2;

// The values for height and width of an argument that is written as one number for both, as a list, or dimension by
// dimension.
std::vector<std::int64_t> Values(const OperatorCall& op, const std::string& name, const std::string& list,
                                 const std::vector<std::string>& single, std::int64_t default_value) {
  const size_t count = single.size();
  const bool any_single = std::ranges::any_of(single, [&](const std::string& each) { return op.HasArg(each); });
  const bool has_list = op.HasArg(list) && !op.Ints(list).empty();
  if (op.HasArg(name) + has_list + any_single > 1) {
    throw Error(ErrorCode::kInvalidArgument, StrCat(op.type(), " has its ", name, " in two ways: ", name, ", ", list,
                                                    " and ", single[0], " with its like exclude each other"));
  }
  if (op.HasArg(name)) return std::vector<std::int64_t>(count, op.Int(name));
  std::vector<std::int64_t> values(count, default_value);
  if (has_list) {
    values = op.Ints(list);
    if (values.size() != count) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat(op.type(), ": ", list, " has ", values.size(), " values; here are ", count, " needed"));
    }
  }
  for (size_t i = 0; any_single && i < count; ++i) {
    if (!op.HasArg(single[i])) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat(op.type(), " has some of the arguments that belong together, but not ", single[i]));
    }
    values[i] = op.Int(single[i]);
  }
  return values;
}

void CheckRange(const OperatorCall& op, const char* what, const std::vector<std::int64_t>& values, std::int64_t low) {
  for (const std::int64_t value : values) {
    if (value >= low && value <= std::numeric_limits<std::int32_t>::max()) continue;
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(op.type(), ": ", what, " is ", value, ", must be at least ", low, " and fit 32 bits"));
  }
}

// Fills in the sizes. Where the kernel does not fit into the padded image, or the image is so large (and empty, in
// another dimension) that the sums below would overflow, there is no output.
void SetSizes(std::int64_t in, std::int64_t legacy_pad, Window* window) {
  constexpr std::int64_t kMaxSize = std::int64_t{1} << 60;
  window->in = in;
  if (in > kMaxSize) return;
  const std::int64_t reach = (window->kernel - 1) * window->dilation + 1;
  if (legacy_pad == kLegacyPadSame) {
    window->out = (in + window->stride - 1) / window->stride;
    const std::int64_t pad = std::max<std::int64_t>((window->out - 1) * window->stride + reach - in, 0);
    window->pad_before = pad / 2;
    window->pad_after = pad - pad / 2;
    return;
  }
  const std::int64_t padded = in + window->pad_before + window->pad_after;
  if (padded >= reach) window->out = (padded - reach) / window->stride + 1;
}

}  // namespace

ConvArguments::ConvArguments(const OperatorCall& op)
    : channels_last(op.String("order") == "NHWC"), groups(op.Int("group")), legacy_pad(op.Int("legacy_pad")) {
  const auto kernel = Values(op, "kernel", "kernels", {"kernel_h", "kernel_w"}, 0);
  const auto stride = Values(op, "stride", "strides", {"stride_h", "stride_w"}, 1);
  const auto dilation = Values(op, "dilation", "dilations", {"dilation_h", "dilation_w"}, 1);
  const auto pads = Values(op, "pad", "pads", {"pad_t", "pad_l", "pad_b", "pad_r"}, 0);
  CheckRange(op, "kernel", kernel, 1);
  CheckRange(op, "stride", stride, 1);
  CheckRange(op, "dilation", dilation, 1);
  CheckRange(op, "pad", pads, 0);
  if (legacy_pad != kLegacyPadNone && std::ranges::any_of(pads, [](std::int64_t pad) { return pad != 0; })) {
    throw Error(ErrorCode::kInvalidArgument, StrCat(op.type(), ": legacy_pad says how to pad, so pads must be 0"));
  }
  h = {.kernel = kernel[0], .stride = stride[0], .dilation = dilation[0], .pad_before = pads[0], .pad_after = pads[2]};
  w = {.kernel = kernel[1], .stride = stride[1], .dilation = dilation[1], .pad_before = pads[1], .pad_after = pads[3]};
}

Operator ConvArguments::AddTo(Operator op) {
  const std::vector<std::int64_t> none;
  return std::move(
      op.Arg("order", "NCHW", "how images lie in memory", OneOf({"NCHW", "NHWC"}))
          .Arg("kernel", 0, "height and width of the kernel")
          .Arg("kernel_h", 0, "height of the kernel, with kernel_w")
          .Arg("kernel_w", 0, "width of the kernel, with kernel_h")
          .Arg("kernels", none, "height and width of the kernel")
          .Arg("stride", 1, "step between outputs, in both directions")
          .Arg("stride_h", 1, "step between rows of outputs, with stride_w")
          .Arg("stride_w", 1, "step between columns of outputs, with stride_h")
          .Arg("strides", none, "the steps between rows and columns of outputs")
          .Arg("dilation", 1, "step between elements that the kernel reads, in both directions")
          .Arg("dilation_h", 1, "step between rows that the kernel reads, with dilation_w")
          .Arg("dilation_w", 1, "step between columns that the kernel reads, with dilation_h")
          .Arg("dilations", none, "the steps between rows and columns that the kernel reads")
          .Arg("pad", 0, "zeros on every side")
          .Arg("pad_t", 0, "rows of zeros at the top, with pad_l, pad_b and pad_r")
          .Arg("pad_l", 0, "columns of zeros on the left, with pad_t, pad_b and pad_r")
          .Arg("pad_b", 0, "rows of zeros at the bottom, with pad_t, pad_l and pad_r")
          .Arg("pad_r", 0, "columns of zeros on the right, with pad_t, pad_l and pad_b")
          .Arg("pads", none, "zeros at the top, on the left, at the bottom, on the right")
          .Arg("legacy_pad", 0, "0: pads as given; 1: none; 2: such that y has a pixel for every stride of x",
               Between(0, 2))
          .Arg("group", 1, "channels and outputs form so many groups, each convolved by itself", AtLeast(1)));
}

ConvSizes::ConvSizes(const Shape& x, const Shape& filter, const ConvArguments& arguments)
    : channels_last(arguments.channels_last),
      images(x[0]),
      channels(arguments.channels_last ? x[3] : x[1]),
      outputs(filter[0]),
      groups(arguments.groups),
      h(arguments.h),
      w(arguments.w) {
  SetSizes(x[channels_last ? 1 : 2], arguments.legacy_pad, &h);
  SetSizes(x[channels_last ? 2 : 3], arguments.legacy_pad, &w);
}

namespace {

// Throws unless both have the rank of images, so that sizes can be taken from them.
const Shape& Checked(const ShapeQuery& query, int i) {
  if (query.In(i).shape.rank() != 4) {
    throw WrongInputs(query, {i}, "needs images and a filter of rank 4");
  }
  return query.In(i).shape;
}

}  // namespace

ConvSizes::ConvSizes(const ShapeQuery& query, const ConvArguments& arguments)
    : ConvSizes(Checked(query, 0), Checked(query, 1), arguments) {
  const std::string found = StrCat(InputText(query, 0), " and ", InputText(query, 1));
  if (channels % groups != 0 || outputs % groups != 0) {
    throw Error(ErrorCode::kShapeMismatch, StrCat(query.op().type(), " cannot divide ", channels, " channels and ",
                                                  outputs, " outputs into ", groups, " groups; ", found));
  }
  const Shape wanted = channels_last ? Shape{outputs, h.kernel, w.kernel, channels_of_group()}
                                     : Shape{outputs, channels_of_group(), h.kernel, w.kernel};
  if (query.In(1).shape != wanted) {
    throw Error(ErrorCode::kShapeMismatch,
                StrCat(query.op().type(), " needs a filter ", wanted, " for these images; ", found));
  }
  Shape{h.out, w.out, h.kernel, w.kernel, channels_of_group()};  // throws when an image has too many patches
  for (const Window* window : {&h, &w}) {
    if (window->out == 0 && window->in > 0) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat(query.op().type(), " has a kernel that reaches over more than the padded image; ", found));
    }
  }
}

Shape ConvSizes::OutputShape() const {
  return channels_last ? Shape{images, h.out, w.out, outputs} : Shape{images, outputs, h.out, w.out};
}

bool ConvSizes::PatchIsPixel() const {
  const auto is_plain = [](const Window& window) {
    return window.kernel == 1 && window.stride == 1 && window.pad_before == 0 && window.pad_after == 0;
  };
  return is_plain(h) && is_plain(w);
}

namespace {

// Calls fn(patch element or first of them, pixel of the image or -1 for padding) for an NHWC image: a patch element at
// a time stands for all channels of the group.
template <typename Fn>
void ForTapsChannelsLast(const ConvSizes& sizes, const Fn& fn) {
  std::int64_t tap = 0;
  for (std::int64_t y = 0; y < sizes.h.out; ++y) {
    for (std::int64_t x = 0; x < sizes.w.out; ++x) {
      for (std::int64_t i = 0; i < sizes.h.kernel; ++i) {
        const std::int64_t row = sizes.h.At(y, i);
        CountWork(sizes.w.kernel * sizes.channels_of_group());
        for (std::int64_t j = 0; j < sizes.w.kernel; ++j, ++tap) {
          const std::int64_t column = sizes.w.At(x, j);
          const bool is_inside = sizes.h.IsInside(row) && sizes.w.IsInside(column);
          fn(tap, is_inside ? row * sizes.w.in + column : -1);
        }
      }
    }
  }
}

// As above for NCHW, where the patches of one channel and tap lie together: fn(patch element, pixel or -1).
template <typename Fn>
void ForTapsChannelsFirst(const ConvSizes& sizes, const Fn& fn) {
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < sizes.h.kernel; ++i) {
    for (std::int64_t j = 0; j < sizes.w.kernel; ++j) {
      for (std::int64_t y = 0; y < sizes.h.out; ++y) {
        const std::int64_t row = sizes.h.At(y, i);
        CountWork(sizes.w.out);
        for (std::int64_t x = 0; x < sizes.w.out; ++x, ++at) {
          const std::int64_t column = sizes.w.At(x, j);
          const bool is_inside = sizes.h.IsInside(row) && sizes.w.IsInside(column);
          fn(at, is_inside ? row * sizes.w.in + column : -1);
        }
      }
    }
  }
}

}  // namespace

template <typename T>
void ImageToPatches(const ConvSizes& sizes, std::int64_t group, const T* image, T* patches) {
  const std::int64_t channels = sizes.channels_of_group();
  if (sizes.channels_last) {
    const T* first = image + group * channels;
    ForTapsChannelsLast(sizes, [&](std::int64_t tap, std::int64_t pixel) {
      T* to = patches + tap * channels;
      if (pixel < 0) {
        std::fill_n(to, channels, T{0});
      } else {
        std::copy_n(first + pixel * sizes.channels, channels, to);
      }
    });
    return;
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    const T* plane = image + (group * channels + c) * sizes.pixels_in();
    T* to = patches + c * sizes.h.kernel * sizes.w.kernel * sizes.pixels_out();
    ForTapsChannelsFirst(sizes, [&](std::int64_t at, std::int64_t pixel) { to[at] = pixel < 0 ? T{0} : plane[pixel]; });
  }
}

template <typename T>
void AddPatchesToImage(const ConvSizes& sizes, std::int64_t group, const T* patches, T* image) {
  const std::int64_t channels = sizes.channels_of_group();
  if (sizes.channels_last) {
    T* first = image + group * channels;
    ForTapsChannelsLast(sizes, [&](std::int64_t tap, std::int64_t pixel) {
      if (pixel < 0) return;
      const T* from = patches + tap * channels;
      T* to = first + pixel * sizes.channels;
      for (std::int64_t c = 0; c < channels; ++c) to[c] += from[c];
    });
    return;
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    T* plane = image + (group * channels + c) * sizes.pixels_in();
    const T* from = patches + c * sizes.h.kernel * sizes.w.kernel * sizes.pixels_out();
    ForTapsChannelsFirst(sizes, [&](std::int64_t at, std::int64_t pixel) {
      if (pixel >= 0) plane[pixel] += from[at];
    });
  }
}

template void ImageToPatches(const ConvSizes&, std::int64_t, const float*, float*);
template void ImageToPatches(const ConvSizes&, std::int64_t, const double*, double*);
template void AddPatchesToImage(const ConvSizes&, std::int64_t, const float*, float*);
template void AddPatchesToImage(const ConvSizes&, std::int64_t, const double*, double*);

}  // namespace stepnet
