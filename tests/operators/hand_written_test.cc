// Operators that are formulas and have a kernel written by hand for its speed: both compute the same bits.
#include <gtest/gtest.h>

#include <cstring>

#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/regions/region_program.h"
#include "stepnet/core/run_context.h"
#include "stepnet/core/strings.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/core/for_each_target.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/numbered_operator.h"

namespace stepnet {
namespace {

void AddFloat(OperatorDef* def, const std::string& name, float value) {
  Argument* argument = def->add_arg();
  argument->set_name(name);
  argument->set_f(value);
}

std::vector<Tensor> OutputsLike(const std::vector<TensorInfo>& infos) {
  std::vector<Tensor> outputs;
  for (const TensorInfo& info : infos) outputs.emplace_back(info.dtype, info.shape);
  return outputs;
}

// `fault`: what the run of both fails with; "" where it does not.
void ExpectSameBits(const OperatorDef& def, const std::vector<Tensor>& inputs, const std::string& fault = "") {
  const OperatorCall call(def);
  std::vector<TensorInfo> infos;
  std::vector<TensorView> in;
  for (const Tensor& input : inputs) {
    infos.push_back({.dtype = input.dtype(), .shape = input.shape()});
    in.push_back(input.View());
  }
  const ShapeQuery query(call, infos);
  const std::vector<TensorInfo> shapes = call.schema().shapes(query);
  const std::vector<Tensor> by_hand = OutputsLike(shapes), by_formula = OutputsLike(shapes);
  std::vector<TensorView> out;
  for (const Tensor& output : by_hand) out.push_back(output.View());
  FaultRecord record;
  RunContext context;
  context.faults = &record;
  call.schema().FindKernel(DeviceKind::kCpu)->make(call)(OpRun(in, out, context));

  const FormulaRegion formula = MakeFormulaRegion(query, shapes);
  std::vector<const void*> from;
  for (const int i : formula.inputs) from.push_back(in[i].data);
  std::vector<void*> to;
  for (const int o : formula.outputs) to.push_back(by_formula[o].View().data);
  const std::optional<RegionFault> found = RegionProgram(formula.region).Run(from, to);
  EXPECT_EQ(found ? found->message : "", fault);
  EXPECT_EQ(record.any() ? record.Take()->error.message() : "", fault);
  for (size_t o = 0; o < by_hand.size(); ++o) {
    EXPECT_EQ(
        std::memcmp(by_hand[o].View().data, by_formula[o].View().data, static_cast<size_t>(by_hand[o].size_bytes())), 0)
        << call.Text() << " output " << o;
  }
}

Tensor As(DType dtype, const Tensor& doubles, double scale, double shift) {
  Tensor tensor(dtype, doubles.shape());
  for (std::int64_t i = 0; i < doubles.size(); ++i) {
    const double value = doubles.data<double>()[i] * scale + shift;
    if (dtype == DType::kFloat) tensor.data<float>()[i] = static_cast<float>(value);
    if (dtype == DType::kDouble) tensor.data<double>()[i] = value;
  }
  return tensor;
}

TEST(WrittenByHand, OptimizersAreTheirFormulas) {
  const Shape shape({7, 43});
  for (const DType dtype : {DType::kFloat, DType::kDouble}) {
    const auto random = [&](unsigned seed, double shift = 0) { return As(dtype, Random(shape, seed), 1, shift); };
    const Tensor rate = As(dtype, Random({1}, 9), 1e-3, -0.01);
    Tensor iteration(DType::kInt64, {1});
    *iteration.data<std::int64_t>() = 41;
    for (const int option : {0, 1}) {
      OperatorDef adam = NumberedOperator("Adam", 6, 3);
      AddFloat(&adam, "weight_decay", 0.01f);
      AddInt(&adam, "bias_corrected_epsilon", option);
      OperatorDef momentum = NumberedOperator("MomentumSGDUpdate", 4, 3);
      AddFloat(&momentum, "momentum", 0.9f);
      AddFloat(&momentum, "weight_decay", 0.001f);
      AddInt(&momentum, "nesterov", option);
      ForEachTarget([&] {
        ExpectSameBits(adam, {random(1), random(2), random(3, 1), random(4), rate, iteration});
        ExpectSameBits(momentum, {random(5), random(6), rate, random(7)});
      });
    }
  }
}

// Neither takes a step of an iteration number below 0, which both find.
TEST(WrittenByHand, AdamKeepsAllWhereTheIterationIsWrong) {
  Tensor iteration(DType::kInt64, {1});
  *iteration.data<std::int64_t>() = -1;
  const Shape shape({7, 43});
  for (const DType dtype : {DType::kFloat, DType::kDouble}) {
    const auto random = [&](unsigned seed) { return As(dtype, Random(shape, seed), 1, 0); };
    const std::vector<Tensor> inputs = {random(1), random(2), random(3), random(4), As(dtype, Random({1}, 9), 1, 0),
                                        iteration};
    ForEachTarget(
        [&] { ExpectSameBits(NumberedOperator("Adam", 6, 3), inputs, "the iteration number in5 is -1, below 0"); });
  }
}

TEST(WrittenByHand, GradientOfSumSqrElementsIsItsFormula) {
  for (const DType dtype : {DType::kFloat, DType::kDouble}) {
    for (const int average : {0, 1}) {
      OperatorDef def = NumberedOperator("SumSqrElementsGradient", 2, 1);
      AddInt(&def, "average", average);
      ExpectSameBits(def, {As(dtype, Random({7, 43}, 1), 1, 0), As(dtype, Random({1}, 2), 1, 0)});
    }
  }
}

TEST(WrittenByHand, SumsOfRowsAreTheirFormulas) {
  for (const DType dtype : {DType::kFloat, DType::kDouble}) {
    for (const char* type : {"ReduceSum", "ReduceMean"}) {
      for (const Shape& x : {Shape({7, 43}), Shape({3, 5, 200}), Shape({2, 1}), Shape({300}), Shape({})}) {
        for (const int first : {0, 1}) {
          if (first >= std::max(x.rank(), 1)) continue;
          OperatorDef def = NumberedOperator(type, 1, 1);
          std::vector<std::int64_t> axes;
          for (int i = first; i < x.rank(); ++i) axes.push_back(i);
          AddInts(&def, "axes", axes);
          ExpectSameBits(def, {As(dtype, Random(x, 1), 1, 0)});
        }
      }
    }
    OperatorDef whole = NumberedOperator("ReduceSum", 1, 1);
    ExpectSameBits(whole, {As(dtype, Random({1, (1 << 20) + 77}, 1), 1, 0)});
  }
}

TEST(WrittenByHand, CountingIsItsFormula) {
  for (const std::int64_t rows : {0, 1, 3, 300}) {
    for (const int dtype : {1, 13}) {
      OperatorDef range = NumberedOperator("RangeFill", 0, 1);
      AddInts(&range, "shape", {rows, 77});
      AddInt(&range, "dtype", dtype);
      ExpectSameBits(range, {});
    }
  }
}

void AddText(OperatorDef* def, const std::string& name, const std::string& value) {
  Argument* argument = def->add_arg();
  argument->set_name(name);
  argument->set_s(value);
}

Tensor Bools(const Shape& shape, unsigned seed) {
  const Tensor random = Random(shape, seed);
  Tensor tensor(DType::kBool, shape);
  for (std::int64_t i = 0; i < shape.size(); ++i) tensor.data<bool>()[i] = random.data<double>()[i] > 0;
  return tensor;
}

Tensor Lengths(DType dtype, std::int64_t count, std::int64_t limit) {
  Tensor tensor(dtype, {count});
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t length = i * 5 % (limit + 1);
    if (dtype == DType::kInt64) tensor.data<std::int64_t>()[i] = length;
    if (dtype == DType::kInt32) tensor.data<std::int32_t>()[i] = static_cast<std::int32_t>(length);
  }
  return tensor;
}

TEST(WrittenByHand, MasksAreTheirFormulas) {
  for (const DType dtype : {DType::kFloat, DType::kDouble}) {
    const Tensor x = As(dtype, Random({2, 7, 9, 3}, 1), 1, 0);
    for (const char* mode : {"sequence", "window", "upper", "lower", "upperdiag", "lowerdiag"}) {
      const bool has_lengths = mode == std::string("sequence") || mode == std::string("window");
      OperatorDef mask = NumberedOperator("SequenceMask", has_lengths ? 2 : 1, 1);
      AddText(&mask, "mode", mode);
      AddInt(&mask, "axis", 2);
      AddInt(&mask, "batch", 0);
      AddInt(&mask, "radius", 2);
      OperatorDef repeated = mask;
      AddInt(&repeated, "repeat_from_axis", 3);
      for (const auto& [def, columns] : {std::pair(mask, 27), std::pair(repeated, 9)}) {
        std::vector<Tensor> inputs = {x};
        if (has_lengths) inputs.push_back(Lengths(DType::kInt32, 7, columns));
        ExpectSameBits(def, inputs);
      }
    }
    for (const Shape& rows : {Shape({2}), Shape({2, 7}), Shape({2, 7, 9, 3})}) {
      OperatorDef where = NumberedOperator("Where", 3, 1);
      AddInt(&where, "broadcast_on_rows", 1);
      ExpectSameBits(where, {Bools(rows, 3), x, As(dtype, Random({2, 7, 9, 3}, 2), 1, 0)});
      OperatorDef gradient = NumberedOperator("WhereGradient", 2, 2);
      AddInt(&gradient, "broadcast_on_rows", 1);
      ExpectSameBits(gradient, {Bools(rows, 3), x});
    }
  }
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    ExpectSameBits(NumberedOperator("StepMask", 2, 1), {Tensor(DType::kInt8, {9, 6, 2}), Lengths(dtype, 6, 9)});
  }
}

}  // namespace
}  // namespace stepnet
