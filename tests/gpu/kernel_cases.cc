#include "kernel_cases.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "stepnet/core/fault_record.h"
#include "stepnet/core/run_context.h"
#include "stepnet/core/scoped_value.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

class CaseList {
 public:
  // A case of the operator type, whose inputs and arguments follow.
  CaseList& Op(const std::string& type, int num_outputs = 1) {
    cases.push_back({});
    KernelCase& added = cases.back();
    added.def.set_type(type);
    added.def.mutable_device_option()->set_random_seed(7);
    for (int o = 0; o < num_outputs; ++o) added.def.add_output(StrCat("out", o));
    added.name = type;
    return *this;
  }
  CaseList& In(const Tensor& tensor) {
    KernelCase& last = cases.back();
    last.def.add_input(StrCat("in", last.inputs.size()));
    last.name += StrCat(" ", tensor.Description());
    last.inputs.push_back(tensor);
    return *this;
  }
  CaseList& Int(const std::string& name, std::int64_t value) {
    Arg(name, value)->set_i(value);
    return *this;
  }
  CaseList& Float(const std::string& name, float value) {
    Arg(name, value)->set_f(value);
    return *this;
  }
  CaseList& Text(const std::string& name, const std::string& value) {
    Arg(name, value)->set_s(value);
    return *this;
  }
  CaseList& Ints(const std::string& name, const std::vector<std::int64_t>& values) {
    Argument* argument = Arg(name, Join(values, ","));
    for (const std::int64_t value : values) argument->add_ints(value);
    return *this;
  }
  void Near(double tolerance) { cases.back().tolerance = tolerance; }
  void Adds() {
    cases.back().adds = true;
    cases.back().name += " adds";
  }

  std::vector<KernelCase> cases;

 private:
  template <typename T>
  Argument* Arg(const std::string& name, const T& value) {
    cases.back().name += StrCat(" ", name, "=", value);
    Argument* argument = cases.back().def.add_arg();
    argument->set_name(name);
    return argument;
  }
};

constexpr DType kFloats[] = {DType::kFloat, DType::kDouble};
constexpr DType kIndexTypes[] = {DType::kInt32, DType::kInt64};

Tensor Numbers(DType dtype, const Shape& shape, unsigned seed, double low = -1, double high = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  Tensor tensor(dtype, shape);
  for (std::int64_t i = 0; i < shape.size(); ++i) {
    const double value = uniform(random);
    switch (dtype) {
      case DType::kFloat: tensor.data<float>()[i] = static_cast<float>(value); break;
      case DType::kDouble: tensor.data<double>()[i] = value; break;
      case DType::kInt32: tensor.data<std::int32_t>()[i] = static_cast<std::int32_t>(std::floor(value)); break;
      case DType::kInt64: tensor.data<std::int64_t>()[i] = static_cast<std::int64_t>(std::floor(value)); break;
      case DType::kBool: tensor.data<bool>()[i] = value > 0; break;
      case DType::kInt8: tensor.data<std::int8_t>()[i] = static_cast<std::int8_t>(100 * value); break;
      case DType::kUInt16: tensor.data<std::uint16_t>()[i] = static_cast<std::uint16_t>(5000 * std::abs(value)); break;
      default: ADD_FAILURE() << "numbers of " << dtype;
    }
  }
  return tensor;
}

Tensor IntsOf(DType dtype, const std::vector<std::int64_t>& values) {
  Tensor tensor(dtype, {std::ssize(values)});
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    const std::int64_t value = values[static_cast<size_t>(i)];
    if (dtype == DType::kInt32) tensor.data<std::int32_t>()[i] = static_cast<std::int32_t>(value);
    if (dtype == DType::kInt64) tensor.data<std::int64_t>()[i] = value;
  }
  return tensor;
}

void AddRows(CaseList& list) {
  for (const DType index : kIndexTypes) {
    for (const DType dtype : {DType::kFloat, DType::kDouble, DType::kBool, DType::kInt64}) {
      list.Op("Gather").In(Numbers(dtype, {5, 3}, 1)).In(Numbers(index, {2, 4}, 2, 0, 5));
    }
    list.Op("Gather").In(Numbers(DType::kFloat, {700, 130}, 3)).In(Numbers(index, {999}, 4, 0, 700));
    list.Op("Gather").In(Numbers(DType::kFloat, {7}, 3)).In(Numbers(index, {5}, 4, 0, 7));
    list.Op("Gather").In(Numbers(DType::kFloat, {5, 3}, 1)).In(IntsOf(index, {4, 5, -1, 0}));
    list.Op("Gather").In(Numbers(DType::kFloat, {5, 0}, 1)).In(IntsOf(index, {4, 9}));
    list.Op("Gather").In(Numbers(DType::kFloat, {5, 3}, 1)).In(IntsOf(index, {}));
    list.Op("Gather").In(Numbers(DType::kFloat, {0, 3}, 1)).In(IntsOf(index, {0}));
    for (const DType dtype : kFloats) {
      const Tensor like = Numbers(dtype, {40, 33}, 1);
      const auto sparse = [&](const Tensor& indices) {
        list.Op("SparseToDense").In(indices).In(Numbers(dtype, {indices.size(), 33}, 2)).In(like);
        list.Op("SparseToDense").In(indices).In(Numbers(dtype, {indices.size(), 33}, 2)).In(like).Adds();
      };
      sparse(Numbers(index, {700}, 3, 0, 40));
      sparse(IntsOf(index, {3, 3, 3, 0, 39, 3}));
      sparse(IntsOf(index, {1, 41, -7, 1}));
      sparse(IntsOf(index, {}));
    }
    list.Op("SparseToDense").In(IntsOf(index, {5, 1, 5})).In(Numbers(DType::kFloat, {3}, 2));
  }
}

void AddScatter(CaseList& list) {
  struct Sizes {
    Shape data, indices;
    int axis;
  };
  const std::vector<Sizes> all = {{{300}, {700}, 0},         {{5, 3}, {9, 3}, 0}, {{5, 3}, {4, 2}, -1},
                                  {{4, 6, 5}, {3, 9, 5}, 1}, {{5, 3}, {0, 3}, 0}, {{0, 3}, {0, 3}, 0}};
  for (const auto& [shape, of_indices, axis] : all) {
    const auto size = static_cast<double>(shape[shape.CanonicalAxis(axis)]);
    const Tensor indices = Numbers(DType::kInt64, of_indices, 3, -size, size);
    for (const DType dtype : {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64, DType::kBool}) {
      for (const char* reduction : {"none", "add", "mul", "max", "min"}) {
        if (dtype == DType::kBool && std::strcmp(reduction, "none") != 0) continue;
        const Tensor data = Numbers(dtype, shape, 1, -3, 3), updates = Numbers(dtype, of_indices, 2, -3, 3);
        list.Op("ScatterElements").In(data).In(indices).In(updates).Int("axis", axis).Text("reduction", reduction);
        if (dtype != DType::kFloat && dtype != DType::kDouble) continue;
        list.Op("ScatterElementsGradient", 2).In(data).In(indices).In(updates).In(Numbers(dtype, shape, 4));
        list.Int("axis", axis).Text("reduction", reduction);
      }
    }
  }
  for (const DType index : kIndexTypes) {
    const Tensor data = Numbers(DType::kFloat, {5}, 1), updates = Numbers(DType::kFloat, {4}, 2);
    list.Op("ScatterElements").In(data).In(IntsOf(index, {-5, 5, -6, 4})).In(updates);
    list.Op("ScatterElementsGradient", 2).In(data).In(IntsOf(index, {-5, 5, -6, 4})).In(updates).In(data);
  }
}

void AddLabels(CaseList& list) {
  for (const DType dtype : kFloats) {
    const double tolerance = dtype == DType::kFloat ? 1e-6 : 1e-13;
    for (const Shape& shape : {Shape({0, 3}), Shape({1, 1}), Shape({17, 9}), Shape({300, 70}), Shape({3, 5000})}) {
      const Tensor x = Numbers(dtype, shape, 1, 0.01, 1), dy = Numbers(dtype, {shape[0]}, 2);
      const Tensor labels = Numbers(DType::kInt32, {shape[0]}, 3, 0, static_cast<double>(shape[1]));
      list.Op("LabelCrossEntropy").In(x).In(labels).Near(tolerance);
      list.Op("LabelCrossEntropyGradient").In(x).In(labels).In(dy);
      list.Op("Accuracy").In(x).In(labels).Int("top_k", 2);
      list.Op("SoftmaxWithLoss", 2).In(x).In(labels).Float("scale", 0.5f).Near(tolerance * 10);
      const Tensor weights = Numbers(dtype, {shape[0]}, 4, 0, 2);
      list.Op("SoftmaxWithLoss", 2).In(x).In(labels).In(weights).Near(tolerance * 10);
      const Tensor dloss = Numbers(dtype, {}, 5);
      list.Op("SoftmaxWithLossGradient").In(x).In(labels).In(x).In(dloss).Near(tolerance);
      list.Op("SoftmaxWithLossGradient").In(x).In(labels).In(weights).In(x).In(dloss).Near(tolerance);
    }
    Tensor soft(dtype, {4, 4});
    for (std::int64_t i = 0; i < 16; ++i) {
      if (dtype == DType::kFloat) soft.data<float>()[i] = 0.25f;
      if (dtype == DType::kDouble) soft.data<double>()[i] = 0.25;
    }
    const Tensor x = Numbers(dtype, {4, 4}, 6);
    list.Op("SoftmaxWithLoss", 2).In(x).In(soft).Int("label_prob", 1).Near(tolerance);
    list.Op("SoftmaxWithLossGradient")
        .In(x)
        .In(soft)
        .In(x)
        .In(Numbers(dtype, {}, 5))
        .Int("label_prob", 1)
        .Near(tolerance);
    list.Op("SoftmaxWithLoss", 2).In(x).In(Numbers(dtype, {4, 4}, 7, 0, 1)).Int("label_prob", 1).Near(1);
    list.Op("SoftmaxWithLoss", 2).In(x).In(Numbers(dtype, {4, 4}, 7, -1, 1)).Int("label_prob", 1).Near(1);
    const Tensor wrong = IntsOf(DType::kInt64, {1, 4, -1, 0});
    list.Op("LabelCrossEntropy").In(x).In(wrong).Near(1);
    list.Op("LabelCrossEntropyGradient").In(x).In(wrong).In(Numbers(dtype, {4}, 8));
    list.Op("Accuracy").In(x).In(wrong);
    list.Op("SoftmaxWithLoss", 2).In(x).In(wrong).Near(1);
    list.Op("SoftmaxWithLossGradient").In(x).In(wrong).In(x).In(Numbers(dtype, {}, 5)).Near(tolerance);
  }
}

void AddGreatest(CaseList& list) {
  for (const DType dtype : kFloats) {
    Tensor odd = Numbers(dtype, {4, 70, 3}, 1, 0, 5);
    for (std::int64_t i = 0; i < odd.size(); ++i) {  // equal ones, and NaN
      const double value =
          i % 97 == 5 ? NAN
                      : std::floor(Numbers(DType::kDouble, {1}, static_cast<unsigned>(i), 0, 5).data<double>()[0]);
      if (dtype == DType::kFloat) odd.data<float>()[i] = static_cast<float>(value);
      if (dtype == DType::kDouble) odd.data<double>()[i] = value;
    }
    for (const Tensor& x : {odd, Numbers(dtype, {2, 1000}, 2), Numbers(dtype, {1, 1}, 3), Numbers(dtype, {0, 4}, 4)}) {
      for (const int axis : {0, 1, -1}) {
        for (const int k : {1, 3, 80}) list.Op("TopK", 3).In(x).Int("k", k).Int("axis", axis);
        if (x.size() == 0) continue;
        list.Op("ArgMax").In(x).Int("axis", axis);
        list.Op("ArgMin").In(x).Int("axis", axis).Int("keepdims", 0);
      }
    }
    const Tensor indices = IntsOf(DType::kInt64, {0, 2, 3, -1, 1, 1}).Reshaped({2, 3});
    list.Op("TopKGradient").In(Numbers(dtype, {2, 3}, 5)).In(indices).In(Numbers(dtype, {2, 4}, 6)).Int("k", 3);
    const Tensor wrong = IntsOf(DType::kInt64, {0, 2, 4, -1, -2, 1}).Reshaped({2, 3});
    list.Op("TopKGradient").In(Numbers(dtype, {2, 3}, 5)).In(wrong).In(Numbers(dtype, {2, 4}, 6)).Int("k", 3);
  }
}

void AddCopies(CaseList& list) {
  for (const DType dtype : {DType::kFloat, DType::kDouble, DType::kBool, DType::kInt32}) {
    const Tensor x = Numbers(dtype, {7, 5, 9}, 1);
    for (const DType index : kIndexTypes) {
      const Tensor starts = IntsOf(index, {1, 0, 3}), ends = IntsOf(index, {6, -1, -2});
      list.Op("Slice").In(x).In(starts).In(ends);
      list.Op("SliceGradient").In(x).In(starts).In(ends).In(Numbers(dtype, {5, 5, 5}, 2));
      list.Op("SliceGradient").In(x).In(starts).In(ends).In(Numbers(dtype, {5, 5, 4}, 2));
    }
    list.Op("Slice").In(x).Ints("starts", {2}).Ints("ends", {4});
    list.Op("Slice").In(x).Ints("starts", {0, 0, 4}).Ints("ends", {-1, -1, 4});
    list.Op("SliceGradient").In(x).In(Numbers(dtype, {2, 5, 9}, 3)).Ints("starts", {2}).Ints("ends", {4});
    for (const int axis : {0, 1, -1}) list.Op("Tile").In(x).Int("tiles", 3).Int("axis", axis);
    list.Op("Tile").In(x).Int("tiles", 0);
  }
  for (const DType dtype : kFloats) {
    const Tensor x = Numbers(dtype, {3, 4, 5, 6}, 5);
    const auto reduce = [&](const std::vector<std::int64_t>& axes, const Shape& y) {
      for (const char* type : {"ReduceSumGradient", "ReduceMeanGradient"}) {
        list.Op(type).In(Numbers(dtype, y, 6)).In(x).In(Numbers(dtype, y, 7)).Ints("axes", axes);
      }
    };
    reduce({1}, {3, 1, 5, 6});
    reduce({0, 2}, {1, 4, 1, 6});
    reduce({}, {1, 1, 1, 1});
    list.Op("ReduceSumGradient")
        .In(Numbers(dtype, {2, 1, 3, 1, 2}, 6))
        .In(Numbers(dtype, {2, 3, 3, 2, 2}, 7))
        .In(Numbers(dtype, {2, 1, 3, 1, 2}, 8))
        .Ints("axes", {1, 3});
  }
  for (const DType dtype : {DType::kFloat, DType::kInt8, DType::kUInt16}) {
    const Tensor x = Numbers(dtype, {3, 4, 6}, 8), other = Numbers(dtype, {3, 1, 6}, 9);
    list.Op("Concat", 2).In(x).In(other).In(x);
    list.Op("Concat", 2).In(x).In(x).Int("axis", 3).Int("add_axis", 1);
    list.Op("Split", 3).In(x).Int("axis", 2);
    list.Op("Split", 2).In(x).In(IntsOf(DType::kInt32, {3, 1}));
    list.Op("ConcatGradient", 2).In(x).In(Numbers(dtype, {3, 3, 6}, 1)).In(Numbers(dtype, {3, 1, 6}, 2));
    list.Op("Transpose").In(x);
    for (const Tensor& copied : {x, Numbers(dtype, {5}, 11), Numbers(dtype, {0, 3}, 12)}) list.Op("Copy").In(copied);
    list.Op("Transpose").In(Numbers(dtype, {2, 3, 2, 3, 2, 3}, 10)).Ints("axes", {4, 1, 0, 3, 2, 5});
  }
  list.Op("ConstantFill").Ints("shape", {3, 7}).Int("value", (std::int64_t{1} << 60) + 1);
  list.Op("ConstantFill").Ints("shape", {3, 7}).Float("value", 2.5f).Int("dtype", 12);
  list.Op("Shape").In(Numbers(DType::kFloat, {3, 0, 5}, 1));
  list.Op("Shape").In(Numbers(DType::kFloat, {3, 2, 5}, 1)).Ints("axes", {-1, 0, 0, 1, 2, 1, 2, 0, 1, 2});
  list.Op("Size").In(Numbers(DType::kFloat, {3, 2, 5}, 1));
}

void AddSequences(CaseList& list) {
  for (const DType dtype : {DType::kFloat, DType::kInt64}) {
    const Tensor x = Numbers(dtype, {11, 3}, 1), padding = Numbers(dtype, {3}, 2), other = Numbers(dtype, {3}, 3);
    for (const std::vector<std::int64_t>& lengths :
         {std::vector<std::int64_t>{4, 0, 7}, {11}, {0, 0, 11, 0}, {4, 4}, {12, -1}}) {
      const Tensor all = IntsOf(DType::kInt32, lengths);
      list.Op("AddPadding", 2).In(x).In(all).Int("padding_width", 2).Int("end_padding_width", 1);
      list.Op("AddPadding", 2).In(x).In(all).In(padding).In(other);
      list.Op("PackRNNSequence").In(x).In(all).In(Numbers(dtype, {12, std::ssize(lengths), 3}, 4));
    }
    list.Op("AddPadding").In(x);
    list.Op("RemovePadding", 2).In(x).Int("padding_width", 3);
    list.Op("RemovePadding", 2).In(x).In(IntsOf(DType::kInt32, {4, 2, 5}));
    list.Op("RemovePadding", 2).In(x).In(IntsOf(DType::kInt32, {4, 1, 6}));
    list.Op("PackRNNSequence").In(x).In(IntsOf(DType::kInt32, {4, 0, 7}));
    list.Op("UnpackRNNSequence").In(Numbers(dtype, {6, 3, 2}, 5)).In(IntsOf(DType::kInt32, {6, 0, 3}));
    for (const DType index : kIndexTypes) {
      const Tensor batch = Numbers(dtype, {6, 3, 2}, 6);
      list.Op("ReversePackedSegs").In(batch).In(IntsOf(index, {6, 0, 3}));
      list.Op("ReversePackedSegs").In(batch).In(IntsOf(index, {7, 2, -1}));
      list.Op("ReversePackedSegs").In(batch);
    }
  }
  for (const DType dtype : {DType::kFloat, DType::kInt64, DType::kBool}) {
    for (const Shape& shape : {Shape({4, 3, 2}), Shape({2, 5, 1}), Shape({1, 3, 2}), Shape({0, 3}), Shape({2, 0})}) {
      for (const double above : {-1.0, 0.0, 0.7, 1.0}) {  // of the numbers whose rows count
        Tensor mask(DType::kBool, Shape({shape[0], shape[1]}));
        const Tensor chance = Numbers(DType::kDouble, mask.shape(), 8);
        for (std::int64_t i = 0; i < mask.size(); ++i) mask.data<bool>()[i] = chance.data<double>()[i] > above;
        list.Op("FillPadding").In(Numbers(dtype, shape, 9)).In(mask);
        if (dtype == DType::kFloat) list.Op("FillPaddingGradient").In(Numbers(dtype, shape, 9)).In(mask);
      }
    }
  }
  for (const DType dtype : kFloats) {
    for (const int outputs : {1, 2}) {
      const Tensor x = Numbers(dtype, {11, 3}, 7);
      list.Op("GatherPadding", outputs).In(x).In(IntsOf(DType::kInt32, {4, 2, 5}));
      list.Op("GatherPadding", outputs).In(x).Int("padding_width", 2).Int("end_padding_width", 4);
      list.Op("GatherPadding", outputs).In(x).In(IntsOf(DType::kInt32, {4, 1, 6}));
    }
  }
  list.Op("LengthsRangeFill").In(IntsOf(DType::kInt32, {3, 0, 1, 2}));
}

void AddTraining(CaseList& list) {
  const auto policy = [&](const std::string& name) -> CaseList& {
    return list.Op("LearningRate").Float("base_lr", -0.3f).Text("policy", name);
  };
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{4}, std::int64_t{12345}, std::int64_t{-1}}) {
    const Tensor iter = IntsOf(DType::kInt64, {n});
    list.Op("Iter").In(iter);
    policy("fixed").In(iter).Near(1e-7);
    policy("step").In(iter).Float("gamma", 0.9f).Int("stepsize", 10).Near(1e-7);
    policy("exp").In(iter).Float("gamma", 0.99f).Near(1e-7);
    policy("inv").In(iter).Float("gamma", 0.1f).Float("power", 0.75f).Near(1e-7);
    policy("poly").In(iter).Float("power", 2).Int("max_iter", 1000).Near(1e-7);
    policy("cosine").In(iter).Int("period", 7).Float("t_mult", 1.5f).Int("linear_warmup_num_iter", 5).Near(1e-7);
    policy("cosine").In(iter).Int("period", 7).Near(1e-7);
  }
  list.Op("Iter").In(IntsOf(DType::kInt64, {INT64_MAX}));
}

void AddSums(CaseList& list) {
  for (const DType dtype : kFloats) {
    const double tolerance = dtype == DType::kFloat ? 1e-5 : 1e-13;
    for (const Shape& shape : {Shape({0}), Shape({1}), Shape({33, 7}), Shape({40'000})}) {
      for (const int average : {0, 1}) {
        list.Op("SumSqrElements").In(Numbers(dtype, shape, 1)).Int("average", average).Near(tolerance);
      }
      for (const float norm : {0.5f, 1e6f}) {
        list.Op("ClipByGlobalNorm", 3)
            .In(Numbers(dtype, shape, 1))
            .In(Numbers(dtype, {5}, 2))
            .Float("max_norm", norm)
            .Near(tolerance);
      }
    }
    Tensor infinite = Numbers(dtype, {3}, 2);
    if (dtype == DType::kFloat) *infinite.data<float>() = INFINITY;
    if (dtype == DType::kDouble) *infinite.data<double>() = NAN;
    list.Op("ClipByGlobalNorm", 2).In(infinite).Float("max_norm", 1).Near(tolerance);
  }
}

void AddConvolutions(CaseList& list) {
  for (const DType dtype : kFloats) {
    const double tolerance = dtype == DType::kFloat ? 1e-5 : 1e-12;
    for (const bool last : {false, true}) {
      for (const int groups : {1, 2}) {
        const Tensor x = last ? Numbers(dtype, {3, 9, 7, 4}, 1) : Numbers(dtype, {3, 4, 9, 7}, 1);
        const Tensor filter =
            last ? Numbers(dtype, {6, 3, 2, 4 / groups}, 2) : Numbers(dtype, {6, 4 / groups, 3, 2}, 2);
        const Tensor dy = last ? Numbers(dtype, {3, 5, 9, 6}, 3) : Numbers(dtype, {3, 6, 5, 9}, 3);
        const Tensor bias = Numbers(dtype, {6}, 4);
        const auto arguments = [&](CaseList& op) -> CaseList& {
          return op.Text("order", last ? "NHWC" : "NCHW")
              .Ints("kernels", {3, 2})
              .Ints("strides", {2, 1})
              .Ints("pads", {1, 1, 1, 2})
              .Ints("dilations", {1, 1})
              .Int("group", groups);
        };
        arguments(list.Op("Conv").In(x).In(filter)).Near(tolerance);
        arguments(list.Op("Conv").In(x).In(filter).In(bias)).Near(tolerance);
        arguments(list.Op("ConvGradient", 3).In(x).In(filter).In(dy)).Near(tolerance);
        arguments(list.Op("ConvGradient", 2).In(x).In(filter).In(dy)).Int("no_bias", 1).Near(tolerance);
      }
    }
    list.Op("Conv")
        .In(Numbers(dtype, {0, 2, 4, 4}, 1))
        .In(Numbers(dtype, {3, 2, 1, 1}, 2))
        .Int("kernel", 1)
        .Near(tolerance);
    list.Op("ConvGradient", 3)
        .In(Numbers(dtype, {0, 2, 4, 4}, 1))
        .In(Numbers(dtype, {3, 2, 1, 1}, 2))
        .In(Numbers(dtype, {0, 3, 4, 4}, 2))
        .Int("kernel", 1)
        .Near(tolerance);
  }
}

double ValueAt(const Tensor& tensor, std::int64_t i) {
  switch (tensor.dtype()) {
    case DType::kFloat: return tensor.data<float>()[i];
    case DType::kDouble: return tensor.data<double>()[i];
    default: ADD_FAILURE() << tensor.dtype() << " is to be near"; return 0;
  }
}

void ExpectNear(const Tensor& found, const Tensor& expected, double tolerance, const std::string& what) {
  double largest = 0;
  for (std::int64_t i = 0; i < expected.size(); ++i) largest = std::max(largest, std::abs(ValueAt(expected, i)));
  for (std::int64_t i = 0; i < expected.size(); ++i) {
    const double a = ValueAt(found, i), b = ValueAt(expected, i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    ASSERT_NEAR(a, b, tolerance * largest) << what << ", element " << i;
  }
}

}  // namespace

std::vector<KernelCase> KernelCases() {
  CaseList list;
  for (const auto add :
       {AddRows, AddScatter, AddLabels, AddGreatest, AddCopies, AddSequences, AddTraining, AddSums, AddConvolutions}) {
    add(list);
  }
  return std::move(list.cases);
}

KernelResult RunKernel(const KernelCase& test, DeviceKind kind, Device device) {
  const OperatorCall call(test.def);
  std::vector<TensorInfo> infos;
  std::vector<Tensor> inputs, outputs;
  for (const Tensor& input : test.inputs) {
    infos.push_back({.dtype = input.dtype(), .shape = input.shape(), .value = input});
    inputs.push_back(input.To(device));
  }
  const std::vector<TensorInfo> shapes = call.schema().shapes(ShapeQuery(call, infos));
  for (int o = 0; o < call.num_outputs(); ++o) {
    const bool adds = test.adds && o == 0;
    outputs.push_back(adds ? Numbers(shapes[o].dtype, shapes[o].shape, 5).To(device)
                           : Tensor(shapes[o].dtype, shapes[o].shape, device));
  }
  std::vector<TensorView> in, out;
  for (const Tensor& input : inputs) in.push_back(input.View(device));
  for (const Tensor& output : outputs) out.push_back(output.View(device));
  RunContext context;
  context.UseDevice(device);
  FaultRecord faults;
  const ScopedValue<FaultRecord*> noted(context.faults, &faults);
  OpRun run(in, out, context);
  if (test.adds) run.SetAdds(1);
  call.schema().FindKernel(kind)->make(call)(run);
  KernelResult result;
  for (const Tensor& output : outputs) result.outputs.push_back(output.To({}));
  if (const std::optional<Fault> fault = faults.Take()) {
    result.fault = StrCat("element ", fault->place.element, ": ", fault->error.message());
  }
  return result;
}

void ExpectResultOfCpu(const KernelCase& test, const KernelResult& result) {
  const KernelResult expected = RunKernel(test, DeviceKind::kCpu, {});
  EXPECT_EQ(result.fault, expected.fault) << test.name;
  for (size_t o = 0; o < expected.outputs.size(); ++o) {
    const Tensor &a = result.outputs[o], &b = expected.outputs[o];
    const std::string what = StrCat(test.name, ", output ", o);
    if (test.tolerance == 0) {
      if (test.def.type() == "Iter" && !expected.fault.empty()) continue;  // is not written
      EXPECT_EQ(std::memcmp(a.raw(), b.raw(), static_cast<size_t>(b.size_bytes())), 0) << what;
    } else {
      ExpectNear(a, b, test.tolerance, what);
    }
  }
}

}  // namespace stepnet
