// Convolution of images: arguments, sizes, and images as matrices of patches, which make a convolution a product.
#pragma once

#include <cstdint>
#include <vector>

#include "stepnet/core/host_device.h"
#include "stepnet/core/operator.h"

namespace stepnet {

// One dimension of a convolution.
struct Window {
  std::int64_t kernel = 1, stride = 1, dilation = 1;
  std::int64_t pad_before = 0, pad_after = 0;
  std::int64_t in = 0, out = 0;  // sizes of x and y

  // Where tap `tap` of the kernel reads for output `output`: outside [0, in) where there is padding.
  STEPNET_HOST_DEVICE std::int64_t At(std::int64_t output, std::int64_t tap) const {
    return output * stride - pad_before + tap * dilation;
  }
  STEPNET_HOST_DEVICE bool IsInside(std::int64_t at) const { return at >= 0 && at < in; }
  // The output for which a tap reads at `at`, or -1.
  STEPNET_HOST_DEVICE std::int64_t OutputAt(std::int64_t at, std::int64_t tap) const {
    const std::int64_t distance = at + pad_before - tap * dilation;
    return distance >= 0 && distance % stride == 0 && distance / stride < out ? distance / stride : -1;
  }
};

// The arguments of Conv, of which Caffe2 has several spellings, and how they are declared.
struct ConvArguments {
  bool channels_last;  // NHWC
  std::int64_t groups;
  std::int64_t legacy_pad;
  Window h, w;  // without sizes

  // Throws kInvalidArgument when one is missing or given twice.
  explicit ConvArguments(const OperatorCall& op);
  static Operator AddTo(Operator op);
};

// Everything about one convolution. x is [N, C, H, W] or [N, H, W, C]; the filter is [M, C / groups, kernel] or [M,
// kernel, C / groups]; y is like x, with M channels.
struct ConvSizes {
  bool channels_last;
  std::int64_t images, channels, outputs, groups;
  Window h, w;

  // Throws kShapeMismatch when the shapes of inputs 0 (x) and 1 (filter) do not fit the arguments or each other.
  ConvSizes(const ShapeQuery& query, const ConvArguments& arguments);
  ConvSizes(const Shape& x, const Shape& filter, const ConvArguments& arguments);  // once that has been checked

  Shape OutputShape() const;
  STEPNET_HOST_DEVICE std::int64_t channels_of_group() const { return channels / groups; }
  STEPNET_HOST_DEVICE std::int64_t outputs_of_group() const { return outputs / groups; }
  STEPNET_HOST_DEVICE std::int64_t pixels_in() const { return h.in * w.in; }
  STEPNET_HOST_DEVICE std::int64_t pixels_out() const { return h.out * w.out; }
  STEPNET_HOST_DEVICE std::int64_t patch() const {
    return h.kernel * w.kernel * channels_of_group();
  }                           // elements that one output reads
  bool PatchIsPixel() const;  // 1 x 1, nothing skipped or padded: the image is its own matrix of patches
};

// Writes the patches of channels `group` of one image: [pixels_out, patch] for NHWC, [patch, pixels_out] for NCHW, the
// elements of a patch in the order of the filter. Padding is 0.
template <typename T>
void ImageToPatches(const ConvSizes& sizes, std::int64_t group, const T* image, T* patches);
// Adds every element of patches to the element of the image that it was copied from.
template <typename T>
void AddPatchesToImage(const ConvSizes& sizes, std::int64_t group, const T* patches, T* image);

}  // namespace stepnet
