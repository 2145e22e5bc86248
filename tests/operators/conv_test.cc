#include "op_test.h"

namespace stepnet {
namespace {

using Values = std::vector<std::vector<double>>;

// One convolution, written as a sum over everything.
struct Convolution {
  bool channels_last = false;
  std::int64_t images = 2, channels = 2, outputs = 3, groups = 1;
  std::int64_t h = 5, w = 6, kernel_h = 2, kernel_w = 3;
  std::int64_t stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  std::int64_t pad_t = 0, pad_l = 0, pad_b = 0, pad_r = 0;

  std::int64_t OutH() const { return (h + pad_t + pad_b - dilation_h * (kernel_h - 1) - 1) / stride_h + 1; }
  std::int64_t OutW() const { return (w + pad_l + pad_r - dilation_w * (kernel_w - 1) - 1) / stride_w + 1; }
  Shape Image(std::int64_t n, std::int64_t c, std::int64_t height, std::int64_t width) const {
    return channels_last ? Shape{n, height, width, c} : Shape{n, c, height, width};
  }
  std::int64_t At(const Shape& shape, std::int64_t n, std::int64_t c, std::int64_t y, std::int64_t x) const {
    return channels_last ? ((n * shape[1] + y) * shape[2] + x) * shape[3] + c
                         : ((n * shape[1] + c) * shape[2] + y) * shape[3] + x;
  }

  OpTest Test() const {
    OpTest test("Conv");
    test.Arg("order", channels_last ? "NHWC" : "NCHW").Arg("group", static_cast<int>(groups));
    test.Ints("kernels", {kernel_h, kernel_w}).Ints("strides", {stride_h, stride_w});
    test.Ints("dilations", {dilation_h, dilation_w}).Ints("pads", {pad_t, pad_l, pad_b, pad_r});
    return test.Random("x", Image(images, channels, h, w), 1)
        .Random("filter", Image(outputs, channels / groups, kernel_h, kernel_w), 2)
        .Random("b", {outputs}, 3);
  }

  std::vector<double> operator()(const Values& in) const {
    const Shape x = Image(images, channels, h, w), filter = Image(outputs, channels / groups, kernel_h, kernel_w);
    const Shape y = Image(images, outputs, OutH(), OutW());
    std::vector<double> out(static_cast<size_t>(y.size()));
    for (std::int64_t n = 0; n < images; ++n) {
      for (std::int64_t o = 0; o < outputs; ++o) {
        for (std::int64_t row = 0; row < OutH(); ++row) {
          for (std::int64_t column = 0; column < OutW(); ++column) {
            double sum = in.size() > 2 ? in[2][o] : 0;
            for (std::int64_t c = 0; c < channels / groups; ++c) {
              for (std::int64_t i = 0; i < kernel_h; ++i) {
                for (std::int64_t j = 0; j < kernel_w; ++j) {
                  const std::int64_t from_row = row * stride_h - pad_t + i * dilation_h;
                  const std::int64_t from_column = column * stride_w - pad_l + j * dilation_w;
                  if (from_row < 0 || from_row >= h || from_column < 0 || from_column >= w) continue;
                  const std::int64_t channel = o / (outputs / groups) * (channels / groups) + c;
                  sum += in[0][At(x, n, channel, from_row, from_column)] * in[1][At(filter, o, c, i, j)];
                }
              }
            }
            out[At(y, n, o, row, column)] = sum;
          }
        }
      }
    }
    return out;
  }
};

std::vector<Convolution> Convolutions() {
  std::vector<Convolution> all;
  for (const bool channels_last : {false, true}) {
    all.push_back({.channels_last = channels_last});
    all.push_back({.channels_last = channels_last, .pad_t = 1, .pad_l = 2, .pad_b = 0, .pad_r = 3});
    all.push_back({.channels_last = channels_last, .stride_h = 2, .stride_w = 3, .pad_t = 1});
    all.push_back({.channels_last = channels_last, .dilation_h = 3, .dilation_w = 2, .pad_r = 1});
    all.push_back({.channels_last = channels_last, .channels = 4, .outputs = 6, .groups = 2, .pad_l = 1});
    all.push_back({.channels_last = channels_last, .channels = 4, .outputs = 4, .groups = 4});
    all.push_back({.channels_last = channels_last, .kernel_h = 1, .kernel_w = 1});
    all.push_back(
        {.channels_last = channels_last, .channels = 4, .outputs = 2, .groups = 2, .kernel_h = 1, .kernel_w = 1});
  }
  return all;
}

TEST(Conv, FollowsItsFormula) {
  for (const Convolution& convolution : Convolutions()) {
    const OpTest test = convolution.Test();
    EXPECT_EQ(test.Run()[0].shape(), convolution.Image(2, convolution.outputs, convolution.OutH(), convolution.OutW()));
    test.Follows(convolution);
  }
}

TEST(Conv, GradientMatchesDifferences) {
  for (Convolution convolution : Convolutions()) {
    convolution.h = 4;
    convolution.w = 5;
    convolution.Test().GradientMatches();
  }
}

TEST(Conv, DividesManyImagesIntoProducts) {
  const Convolution large = {.channels_last = true, .images = 9, .channels = 16, .outputs = 2, .h = 26, .w = 28};
  large.Test().Follows(large);
  constexpr int kImages = 9, kH = 26, kW = 28, kChannels = 16, kOutH = 25, kOutW = 26;
  std::vector<double> x(kImages * kH * kW * kChannels), dy(kImages * kOutH * kOutW);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i % 11) - 5;
  for (size_t i = 0; i < dy.size(); ++i) dy[i] = static_cast<double>(i % 7) - 3;
  double first_of_filter = 0, bias = 0;
  for (int n = 0; n < kImages; ++n) {
    for (int i = 0; i < kOutH; ++i) {
      for (int j = 0; j < kOutW; ++j) {
        const double slope = dy[(n * kOutH + i) * kOutW + j];
        first_of_filter += slope * x[((n * kH + i) * kW + j) * kChannels];
        bias += slope;
      }
    }
  }
  const std::vector<Tensor> gradients = OpTest("ConvGradient", 3)
                                            .Arg("order", "NHWC")
                                            .Ints("kernels", {2, 3})
                                            .Input("x", {kImages, kH, kW, kChannels}, x)
                                            .Random("filter", {1, 2, 3, kChannels}, 2)
                                            .Input("dy", {kImages, kOutH, kOutW, 1}, dy)
                                            .Run(DType::kDouble);
  EXPECT_NEAR(ToDoubles(gradients[0])[0], first_of_filter, 1e-9);
  EXPECT_NEAR(ToDoubles(gradients[1])[0], bias, 1e-9);
}

// A convolution of a row by a kernel, in the spellings of Caffe2's arguments.
OpTest RowConv() {
  return OpTest("Conv").Input("x", {1, 1, 1, 4}, {1, 2, 3, 4}).Input("filter", {1, 1, 1, 2}, {1, 10});
}
OpTest SquareConv() {
  return OpTest("Conv").Input("x", {1, 1, 2, 2}, {1, 2, 3, 4}).Input("filter", {1, 1, 2, 2}, {1, 10, 100, 1000});
}

TEST(Conv, ReadsEverySpellingOfItsArguments) {
  RowConv().Arg("kernel_h", 1).Arg("kernel_w", 2).Gives({1, 1, 1, 3}, {21, 32, 43});
  RowConv().Ints("kernels", {1, 2}).Gives({1, 1, 1, 3}, {21, 32, 43});
  RowConv().Arg("kernel_h", 1).Arg("kernel_w", 2).Arg("stride_h", 1).Arg("stride_w", 2).Gives({1, 1, 1, 2}, {21, 43});
  RowConv()
      .Arg("kernel_h", 1)
      .Arg("kernel_w", 2)
      .Arg("dilation_h", 1)
      .Arg("dilation_w", 2)
      .Gives({1, 1, 1, 2}, {31, 42});
  RowConv()
      .Arg("kernel_h", 1)
      .Arg("kernel_w", 2)
      .Arg("pad_t", 0)
      .Arg("pad_l", 1)
      .Arg("pad_b", 0)
      .Arg("pad_r", 0)
      .Gives({1, 1, 1, 4}, {10, 21, 32, 43});
  SquareConv().Arg("kernel", 2).Gives({1, 1, 1, 1}, {4321});
  SquareConv().Arg("kernel", 2).Arg("pad", 1).Arg("stride", 2).Gives({1, 1, 2, 2}, {1000, 200, 30, 4});
  SquareConv().Arg("kernel", 2).Arg("legacy_pad", 1).Gives({1, 1, 1, 1}, {4321});
  SquareConv().Arg("kernel", 2).Arg("legacy_pad", 2).Gives({1, 1, 2, 2}, {4321, 402, 43, 4});
  SquareConv().Arg("kernel", 2).Arg("dilation", 1).Gives({1, 1, 1, 1}, {4321});
}

TEST(Conv, NeedsNoBias) {
  OpTest("Conv").Arg("kernel", 2).Random("x", {2, 2, 3, 3}, 1).Random("filter", {2, 2, 2, 2}, 2).GradientMatches();
  const OpTest test = OpTest("Conv")
                          .Arg("kernel", 1)
                          .Arg("no_gradient_to_input", 1)
                          .Random("x", {1, 1, 2, 2}, 1)
                          .Random("filter", {1, 1, 1, 1}, 2);
  test.GradientMatches({}, {1});
  ExpectError(
      [] {
        OpTest("ConvGradient", 3)
            .Arg("kernel", 1)
            .Arg("no_bias", 1)
            .Random("x", {1, 1, 2, 2}, 1)
            .Random("filter", {1, 1, 1, 1}, 2)
            .Random("dy", {1, 1, 2, 2}, 3)
            .Run();
      },
      "…ConvGradient with no_bias has two outputs, dfilter and dx; here are three");
}

TEST(Conv, AcceptsNoElements) {
  for (const char* order : {"NCHW", "NHWC"}) {
    const OpTest test = OpTest("Conv")
                            .Arg("order", order)
                            .Arg("kernel", 2)
                            .Input("x", {0, 3, 3, 3}, {})
                            .Random("filter", order == std::string("NCHW") ? Shape{2, 3, 2, 2} : Shape{2, 2, 2, 3}, 1)
                            .Random("b", {2}, 2);
    test.Gives(order == std::string("NCHW") ? Shape{0, 2, 2, 2} : Shape{0, 2, 2, 2}, {});
    test.GradientMatches();
  }
}

TEST(Conv, RefusesShapesThatDoNotFit) {
  const auto run = [](const Shape& x, const Shape& filter, const Shape& b) {
    return
        [=] { OpTest("Conv").Arg("kernel", 2).Random("x", x, 1).Random("filter", filter, 2).Random("b", b, 3).Run(); };
  };
  ExpectError(run({1, 3, 4, 4}, {5, 2, 2, 2}, {5}),
              "shape mismatch: Conv needs a filter [5, 3, 2, 2] for these images; x is float [1, 3, 4, 4] and filter "
              "is float [5, 2, 2, 2]\n"
              "  at op 0 `output0 = Conv(x, filter, b)` with x float [1, 3, 4, 4], filter float [5, 2, 2, 2], "
              "b float [5]\n"
              "  in net \"test\"");
  ExpectError(run({3, 4, 4}, {5, 3, 2, 2}, {5}), "…Conv needs images and a filter of rank 4; x is float [3, 4, 4]\n");
  ExpectError(run({1, 3, 4, 4}, {5, 3, 2, 2}, {4}),
              "…Conv needs a bias of 5 elements, one an output; b is float [4]\n");
  ExpectError(run({1, 3, 1, 4}, {5, 3, 2, 2}, {5}),
              "…Conv has a kernel that reaches over more than the padded image; ");
  ExpectError(
      [] {
        OpTest("Conv")
            .Arg("kernel", 1)
            .Arg("group", 2)
            .Random("x", {1, 3, 2, 2}, 1)
            .Random("filter", {2, 1, 1, 1}, 2)
            .Run();
      },
      "…Conv cannot divide 3 channels and 2 outputs into 2 groups; ");
  ExpectError(
      [] {
        OpTest("ConvGradient", 3)
            .Arg("kernel", 1)
            .Random("x", {1, 3, 2, 2}, 1)
            .Random("filter", {2, 3, 1, 1}, 2)
            .Random("dy", {1, 2, 2, 1}, 3)
            .Run();
      },
      "…ConvGradient needs a gradient of the shape of y, [1, 2, 2, 2]; dy is float [1, 2, 2, 1]\n");
}

TEST(Conv, RefusesArgumentsThatDoNotFit) {
  ExpectError([] { RowConv().Arg("kernel", 2).Arg("kernel_h", 1).Arg("kernel_w", 2).Run(); },
              "…Conv has its kernel in two ways: kernel, kernels and kernel_h with its like exclude each other");
  ExpectError([] { RowConv().Arg("kernel_w", 2).Run(); },
              "…Conv has some of the arguments that belong together, but not kernel_h");
  ExpectError([] { RowConv().Run(); }, "…Conv: kernel is 0, must be at least 1 and fit 32 bits");
  ExpectError([] { RowConv().Ints("kernels", {2}).Run(); }, "…Conv: kernels has 1 values; here are 2 needed");
  ExpectError(
      [] {
        RowConv().Ints("kernels", {1, 2}).Arg("stride", 0).Run();
      },
      "…Conv: stride is 0, must be at least 1 and fit 32 bits");
  ExpectError(
      [] {
        RowConv().Ints("kernels", {1, 2}).Arg("pad", -1).Run();
      },
      "…Conv: pad is -1, must be at least 0 and fit 32 bits");
  ExpectError(
      [] {
        RowConv().Ints("kernels", {1, 2}).Arg("pad", 1).Arg("legacy_pad", 2).Run();
      },
      "…Conv: legacy_pad says how to pad, so pads must be 0");
  ExpectError([] { RowConv().Ints("kernels", {1, 2}).Arg("order", "CHWN").Run(); }, "…Conv: order is");
}

}  // namespace
}  // namespace stepnet
