// What operators declare about parts and sums: any number of parts gives the bits of one, ranges of elements give those
// of the whole, and what is added is what would have been written.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "numbered_operator.h"
#include "op_test.h"
#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

bool HasKernel(const OperatorSchema& schema) { return schema.FindKernel(DeviceKind::kCpu) != nullptr; }
const Kernel& CpuKernel(const std::string& type) { return *GetOperator(type).FindKernel(DeviceKind::kCpu); }

// One operator with inputs, run as an executor runs it.
class KernelCase {
 public:
  KernelCase(const OperatorDef& def, std::vector<Tensor> inputs) : call_(def), inputs_(std::move(inputs)) {
    for (const Tensor& input : inputs_) infos_.push_back({.dtype = input.dtype(), .shape = input.shape()});
    output_infos_ = call_.schema().shapes(query());
    kernel_ = CpuKernel(call_.type()).make(call_);
  }

  const std::string& type() const { return call_.type(); }
  int MaxParts() const {
    const PartsRule& rule = CpuKernel(call_.type()).max_parts;
    return rule ? rule(query(), output_infos_) : 1;
  }

  std::vector<Tensor> Run(int parts = 1) const {
    const std::vector<Tensor> outputs = Outputs(0);
    for (int part = parts - 1; part >= 0; --part) {  // in whatever order
      RunPart(Views(inputs_), Views(outputs), [&](OpRun& run) { run.SetPart(part, parts); });
    }
    return outputs;
  }

  // Where every element was `start` before.
  std::vector<Tensor> RunAdding(double start, int parts) const {
    const std::vector<Tensor> outputs = Outputs(start);
    std::uint64_t adds = 0;
    for (const int output : CpuKernel(call_.type()).can_add) adds |= std::uint64_t{1} << output;
    for (int part = 0; part < parts; ++part) {
      RunPart(Views(inputs_), Views(outputs), [&](OpRun& run) {
        run.SetPart(part, parts);
        run.SetAdds(adds);
      });
    }
    return outputs;
  }

  // Elements [0, cut) and [cut, n) of all tensors, one after the other.
  std::vector<Tensor> RunByElements(std::int64_t cut) const {
    const std::vector<Tensor> outputs = Outputs(0);
    const std::int64_t size = outputs[0].size();
    for (const auto& [begin, end] : {std::pair{cut, size}, std::pair{std::int64_t{0}, cut}}) {
      const Shape range({end - begin});
      const auto narrowed = [&, begin = begin](const std::vector<Tensor>& tensors) {
        std::vector<TensorView> views = Views(tensors);
        for (TensorView& view : views) {
          view.data = static_cast<std::byte*>(view.data) + begin * DTypeBytes(view.dtype);
          view.shape = &range;
        }
        return views;
      };
      RunPart(narrowed(inputs_), narrowed(outputs), [](OpRun&) {});
    }
    return outputs;
  }

 private:
  ShapeQuery query() const { return {call_, infos_}; }

  std::vector<Tensor> Outputs(double start) const {
    std::vector<Tensor> outputs;
    for (const TensorInfo& info : output_infos_) {
      outputs.push_back(Tensor::Zeros(info.dtype, info.shape));
      for (std::int64_t i = 0; i < outputs.back().size() && start != 0; ++i) outputs.back().data<double>()[i] = start;
    }
    return outputs;
  }

  static std::vector<TensorView> Views(const std::vector<Tensor>& tensors) {
    std::vector<TensorView> views;
    for (const Tensor& tensor : tensors) views.push_back(tensor.View());
    return views;
  }

  template <typename Prepare>
  void RunPart(const std::vector<TensorView>& inputs, const std::vector<TensorView>& outputs,
               const Prepare& prepare) const {
    RunContext context;
    OpRun run(inputs, outputs, context);
    prepare(run);
    kernel_(run);
  }

  OperatorCall call_;
  std::vector<Tensor> inputs_;
  std::vector<TensorInfo> infos_;
  std::vector<TensorInfo> output_infos_;
  RunFn kernel_;
};

// Large enough to be cut, with sizes that no part divides.
std::vector<KernelCase> CasesOfSplitTypes() {
  std::vector<KernelCase> cases;
  const std::int64_t m = 3, k = 1031, n = 1543;
  const Tensor x = Random({m, k}, 1), dy = Random({m, n}, 2), b = Random({n}, 3);
  for (const char* type : {"FC", "FCTransposed"}) {
    const Tensor w = std::string(type) == "FC" ? Random({n, k}, 4) : Random({k, n}, 4);
    cases.emplace_back(NumberedOperator(type, 3, 1), std::vector{x, w, b});
    cases.emplace_back(NumberedOperator(StrCat(type, "Gradient"), 3, 3), std::vector{x, w, dy});
    OperatorDef no_bias = NumberedOperator(StrCat(type, "Gradient"), 3, 2);
    AddInt(&no_bias, "no_bias", 1);
    cases.emplace_back(no_bias, std::vector{x, w, dy});
  }
  cases.emplace_back(NumberedOperator("FCOfParts", 3, 1), std::vector{x, Random({1043, k}, 4), Random({500, k}, 5)});
  cases.emplace_back(NumberedOperator("FCOfPartsWithBias", 4, 1),
                     std::vector{x, b, Random({1043, k}, 4), Random({500, k}, 5)});
  OperatorDef of_parts = NumberedOperator("FCGradientOfParts", 4, 5);
  AddInts(&of_parts, "parts", {1043, 500});
  cases.emplace_back(of_parts, std::vector{x, dy, Random({1043, k}, 4), Random({500, k}, 5)});
  for (const int transposed : {0, 1, 2, 3}) {
    for (const auto& [rows, inner, columns] : {std::tuple{m, k, n}, std::tuple{n, m, k}}) {
      const bool a = (transposed & 1) != 0, b_too = (transposed & 2) != 0;
      OperatorDef def = NumberedOperator("MatMul", 2, 1);
      AddInt(&def, "trans_a", a);
      AddInt(&def, "trans_b", b_too);
      cases.emplace_back(def, std::vector{Random(a ? Shape({inner, rows}) : Shape({rows, inner}), 5),
                                          Random(b_too ? Shape({columns, inner}) : Shape({inner, columns}), 6)});
    }
  }
  return cases;
}

std::set<std::string> TypesWhere(const std::function<bool(const OperatorSchema&)>& is) {
  std::set<std::string> types;
  for (const std::string& type : OperatorTypes()) {
    if (type.starts_with("test.")) continue;
    if (is(GetOperator(type))) types.insert(type);
  }
  return types;
}

TEST(Parts, AnyNumberGivesTheBitsOfOne) {
  std::set<std::string> types;
  for (const KernelCase& kernel : CasesOfSplitTypes()) {
    types.insert(kernel.type());
    ASSERT_GT(kernel.MaxParts(), 1) << kernel.type();
    const std::vector<Tensor> whole = kernel.Run();
    for (int parts = 2; parts <= kernel.MaxParts(); ++parts) {
      const std::vector<Tensor> cut = kernel.Run(parts);
      for (size_t o = 0; o < whole.size(); ++o) {
        ExpectSame(cut[o], whole[o], StrCat(kernel.type(), " output ", o, " in ", parts, " parts"));
      }
    }
  }
  EXPECT_EQ(types, TypesWhere([](const OperatorSchema& schema) {
              // Those of formulas are cut by one program: tests/core/regions/region_program_test.cc.
              return HasKernel(schema) && !schema.formula && CpuKernel(schema.type).max_parts != nullptr;
            }));
}

TEST(Parts, AnyNumberGivesTheBitsOfOneWhereAKernelStandsBesideAFormula) {
  const Tensor x = Random({7, 3}, 1), y = Random({7, 3}, 2);
  const Tensor condition = Tensor::Of<bool>({7}, {true, false, false, true, true, false, true});
  for (const auto& [type, inputs, outputs] :
       {std::tuple("Where", std::vector{condition, x, y}, 1), {"WhereGradient", std::vector{condition, x}, 2}}) {
    OperatorDef def = NumberedOperator(type, static_cast<int>(inputs.size()), outputs);
    AddInt(&def, "broadcast_on_rows", 1);
    const KernelCase kernel(def, inputs);
    EXPECT_EQ(kernel.MaxParts(), 7) << type;
    const std::vector<Tensor> whole = kernel.Run(), cut = kernel.Run(3);
    for (size_t o = 0; o < whole.size(); ++o) ExpectSame(cut[o], whole[o], StrCat(type, " output ", o));
  }
}

TEST(Sums, WhatIsAddedIsWhatWouldHaveBeenWritten) {
  std::set<std::string> types;
  std::vector<KernelCase> cases = CasesOfSplitTypes();
  for (const Shape& like : {Shape({7}), Shape({5, 1}), Shape({3, 5, 7}), Shape({1})}) {
    cases.emplace_back(NumberedOperator("SumReduceLike", 2, 1), std::vector{Random({3, 5, 7}, 1), Random(like, 2)});
  }
  for (const Shape& b : {Shape({2, 5, 4}), Shape({1, 5, 4})}) {  // of the last one all rows of a are one matrix
    OperatorDef def = NumberedOperator("BatchMatMul", 2, 1);
    AddInt(&def, "broadcast", 1);
    cases.emplace_back(def, std::vector{Random({2, 3, 5}, 1), Random(b, 2)});
  }
  // Rows that meet are added up first: 100 + 1e17 - 1e17 would be 96.
  cases.emplace_back(NumberedOperator("SparseToDense", 3, 1),
                     std::vector{Tensor::Of<std::int32_t>({5}, {2, 0, 2, 3, 2}),
                                 Tensor::Of<double>({5, 2}, {1e17, 1, 2, 3, -1e17, 4, 5, 6, 7, 8}), Random({4, 2}, 1)});
  for (const KernelCase& kernel : cases) {
    if (CpuKernel(kernel.type()).can_add.empty()) continue;
    types.insert(kernel.type());
    const double start = 100;
    const std::vector<Tensor> written = kernel.Run();
    const std::vector<Tensor> added = kernel.RunAdding(start, std::min(kernel.MaxParts(), 2));
    for (size_t o = 0; o < written.size(); ++o) {
      const std::vector<double> a = ToDoubles(written[o]), b = ToDoubles(added[o]);
      for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_NEAR(b[i], start + a[i], 1e-10) << kernel.type() << " output " << o << " element " << i;
      }
    }
  }
  EXPECT_EQ(types, TypesWhere([](const OperatorSchema& schema) {
              return HasKernel(schema) && !CpuKernel(schema.type).can_add.empty();
            }));
}

// Every type that says so, with whatever dtype it takes.
TEST(Elementwise, RangesOfElementsGiveTheBitsOfTheWhole) {
  const Shape shape({5, 37});
  for (const std::string& type : TypesWhere([](const OperatorSchema& schema) { return IsElementwise(schema); })) {
    const OperatorSchema& schema = GetOperator(type);
    int ran = 0;
    for (const DType dtype : {DType::kFloat, DType::kDouble, DType::kInt32, DType::kBool}) {
      const bool is_masked = type == "DropoutGrad";  // by an optional input
      OperatorDef def = NumberedOperator(type, is_masked ? 2 : std::max(schema.min_inputs(), 1), schema.min_outputs());
      if (type == "Cast") AddInt(&def, "to", 1);
      if (type == "Pow" || type == "PowGradient") AddInt(&def, "exponent", 2);
      std::vector<Tensor> inputs;
      for (int i = 0; i < def.input_size(); ++i) {
        const Tensor values = Random(shape, 20 + static_cast<unsigned>(i));
        const bool is_condition = (is_masked && i == 1) || (type == "WhereGradient" && i == 0);
        const DType of_input = is_condition ? DType::kBool : dtype;
        const Tensor input(of_input, shape);
        for (std::int64_t k = 0; k < values.size(); ++k) {
          const double value = values.data<double>()[k];
          if (of_input == DType::kFloat) input.data<float>()[k] = static_cast<float>(value);
          if (of_input == DType::kDouble) input.data<double>()[k] = value;
          if (of_input == DType::kInt32) input.data<std::int32_t>()[k] = value < 0 ? -3 : 7;
          if (of_input == DType::kBool) input.data<bool>()[k] = value < 0;
        }
        inputs.push_back(input);
      }
      try {
        const KernelCase kernel(def, inputs);
        const std::vector<Tensor> whole = kernel.Run();
        for (const std::int64_t cut : {16, 96, 112}) {
          const std::vector<Tensor> ranges = kernel.RunByElements(cut);
          for (size_t o = 0; o < whole.size(); ++o) {
            ExpectSame(ranges[o], whole[o], StrCat(type, " of ", dtype, " cut at ", cut));
          }
        }
        ++ran;
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ErrorCode::kTypeMismatch) << type << ": " << error.what();
      }
    }
    EXPECT_GT(ran, 0) << type;
  }
}

}  // namespace
}  // namespace stepnet
