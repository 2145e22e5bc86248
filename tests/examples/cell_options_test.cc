// The options of cells: what they make of steps, by running each sequence alone, turning it around, putting layers on
// each other and directions side by side.
#include <gtest/gtest.h>

#include <cmath>

#include "cell_case.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/core/sanitized.h"

namespace stepnet {
namespace {

struct Variant {
  std::string name;
  std::function<void(CellDef*)> change;
};

void SetInitial(const std::string& initial, CellDef* cell) {
  for (CellState& state : *cell->mutable_state()) state.set_initial(initial);
}

const std::vector<Variant>& Variants() {
  static const std::vector<Variant> kVariants = {
      {"lengths", [](CellDef* cell) { cell->mutable_options()->set_lengths("lengths"); }},
      {"mask", [](CellDef* cell) { cell->mutable_options()->set_mask("mask"); }},
      {"lengths, held",
       [](CellDef* cell) {
         cell->mutable_options()->set_lengths("lengths");
         cell->mutable_options()->set_beyond_length(CellOptions::HELD);
       }},
      {"reverse", [](CellDef* cell) { cell->mutable_options()->set_direction(CellOptions::REVERSE); }},
      {"reverse, lengths",
       [](CellDef* cell) {
         cell->mutable_options()->set_direction(CellOptions::REVERSE);
         cell->mutable_options()->set_lengths("lengths");
       }},
      {"bidirectional", [](CellDef* cell) { cell->mutable_options()->set_direction(CellOptions::BIDIRECTIONAL); }},
      {"bidirectional, mask, batch-major",
       [](CellDef* cell) {
         cell->mutable_options()->set_direction(CellOptions::BIDIRECTIONAL);
         cell->mutable_options()->set_mask("mask");
         cell->mutable_options()->set_batch_major(true);
       }},
      {"two layers", [](CellDef* cell) { cell->mutable_options()->set_layers(2); }},
      {"two layers, bidirectional, lengths",
       [](CellDef* cell) {
         cell->mutable_options()->set_layers(2);
         cell->mutable_options()->set_direction(CellOptions::BIDIRECTIONAL);
         cell->mutable_options()->set_lengths("lengths");
       }},
      {"three layers, residual",
       [](CellDef* cell) {
         cell->mutable_options()->set_layers(3);
         cell->mutable_options()->set_residual(true);
       }},
      {"two layers, batch-major",
       [](CellDef* cell) {
         cell->mutable_options()->set_layers(2);
         cell->mutable_options()->set_batch_major(true);
       }},
      {"two layers, residual, bidirectional, mask, held",
       [](CellDef* cell) {
         cell->mutable_options()->set_layers(2);
         cell->mutable_options()->set_residual(true);
         cell->mutable_options()->set_direction(CellOptions::BIDIRECTIONAL);
         cell->mutable_options()->set_mask("mask");
         cell->mutable_options()->set_beyond_length(CellOptions::HELD);
       }},
      {"zoneout", [](CellDef* cell) { cell->mutable_options()->set_zoneout(0.3F); }},
      {"zoneout of one state, lengths",
       [](CellDef* cell) {
         cell->mutable_state(0)->set_zoneout(0.25F);
         cell->mutable_options()->set_lengths("lengths");
       }},
      {"initial 0.5", [](CellDef* cell) { SetInitial("0.5", cell); }},
      {"initial learned", [](CellDef* cell) { SetInitial("learned", cell); }},
      {"initial given, reverse, mask", [](CellDef* cell) {
         SetInitial("given", cell);
         cell->mutable_options()->set_direction(CellOptions::REVERSE);
         cell->mutable_options()->set_mask("mask");
       }}};
  return kVariants;
}

CellCase Changed(const std::string& name, const Variant& variant, std::int64_t num_steps, std::int64_t batch) {
  CellCase test{.cell = ReadExampleCell(name)};
  variant.change(&test.cell.def);
  test.use.sizes = SmallSizes(test.cell.def);
  test.num_steps = num_steps;
  test.batch = batch;
  test.seed = static_cast<unsigned>(31 * num_steps + batch);
  return test;
}

// Trials are counted along diagonals: a third of them has every variant, cell and number of steps.
TEST(CellOptions, DoWhatTheySayToEveryExample) {
  std::int64_t of_variant = 0;
  for (const Variant& variant : Variants()) {
    std::int64_t of_cell = of_variant++;
    for (const std::string& name : ExampleCells()) {
      std::int64_t trial = of_cell++;
      for (const std::int64_t num_steps : {0, 1, 4}) {
        if (!IsTried(trial++)) continue;
        SCOPED_TRACE(StrCat(name, ", ", variant.name, ", ", num_steps, " steps"));
        ExpectFollowsReference(Changed(name, variant, num_steps, 3), StepOfExample(name));
      }
    }
  }
}

TEST(CellOptions, HaveTheGradientsOfWhatTheySay) {
  std::int64_t of_variant = 0;
  for (const Variant& variant : Variants()) {
    std::int64_t trial = of_variant++;
    for (const std::string name : {"lstm", "gru", "causal_conv", "attention_coverage"}) {
      if (!IsTried(trial++)) continue;
      SCOPED_TRACE(StrCat(name, ", ", variant.name));
      ExpectGradientsOfReference(Changed(name, variant, 3, 2), StepOfExample(name));
    }
  }
}

// Layers read the output of the one below in place of the first input; further inputs are the same for all.
TEST(CellOptions, DoWhatTheySayToCellsOfTwoInputs) {
  const CellSource cell = ParseCell(
      "cell two(x[D], y[E]; h[H]) {\n  size D = 2; size E = 2; size H = 3\n  param w[H, D]\n  param v[H, E]\n"
      "  h = Tanh(x @ w + y @ v - h)\n  size_of_h = h * h\n  output size_of_h\n  output h last\n  output size_of_h "
      "last\n}\n",
      "two");
  const ReferenceStep step = [](const Vectors& given) {
    Vectors next = {{"h", Vector(3)}, {"size_of_h", Vector(3)}};
    for (size_t row = 0; row < 3; ++row) {
      double sum = -given.at("h")[row];
      for (const auto& [input, matrix] : {std::pair("x", "w"), std::pair("y", "v")}) {
        const Vector& values = given.at(input);
        for (size_t i = 0; i < values.size(); ++i) sum += given.at(matrix)[row * values.size() + i] * values[i];
      }
      next["h"][row] = std::tanh(sum);
      next["size_of_h"][row] = next["h"][row] * next["h"][row];
    }
    return next;
  };
  for (const Variant& variant : Variants()) {
    SCOPED_TRACE(variant.name);
    CellCase test{.cell = cell, .use = {}, .num_steps = 4, .batch = 3, .seed = 5};
    variant.change(&test.cell.def);
    ExpectFollowsReference(test, step);
    ExpectGradientsOfReference(test, step);
  }
}

// Rows [begin, end) of the steps of all sequences among the inputs.
Tensors Part(const CellNet& net, const Tensors& given, std::int64_t begin, std::int64_t end) {
  Tensors part = given;
  for (const CellNetInput& input : net.inputs) {
    if (input.dims[0] == CellNetInput::kSteps) part[input.blob] = given.at(input.blob).Slice(begin, end);
  }
  return part;
}

TEST(CellOptions, StatesAreCarriedFromPartToPart) {
  for (const std::string& name : ExampleCells()) {
    for (const int layers : {1, 2}) {
      SCOPED_TRACE(StrCat(name, ", ", layers, " layers"));
      CellCase test = Changed(name, {"", [&](CellDef* cell) { cell->mutable_options()->set_layers(layers); }}, 5, 2);
      test.use.carry = true;
      const CellNet net = test.Expand();
      EXPECT_EQ(net.states.size(), static_cast<size_t>(layers * test.cell.def.state_size()));
      const Tensors given = test.RandomValues(net);
      const Tensors whole = RunCell(net, given);
      const Tensors first = RunCell(net, Part(net, given, 0, 2));
      Tensors rest = Part(net, given, 2, 5);
      for (const CarriedState& state : net.states) rest[state.initial] = first.at(state.last);
      const Tensors second = RunCell(net, rest);
      for (const auto& [blob, tensor] : whole) {
        Tensor joined = tensor;
        if (tensor.dim(0) == 5) {
          joined = Tensor(DType::kDouble, tensor.shape());
          std::copy_n(first.at(blob).data<double>(), first.at(blob).size(), joined.data<double>());
          std::copy_n(second.at(blob).data<double>(), second.at(blob).size(),
                      joined.data<double>() + first.at(blob).size());
        } else {
          joined = second.at(blob);
        }
        ExpectTensorsNear({{blob, joined}}, {{blob, tensor}});
      }
    }
  }
}

// One row, [H], is the same for every sequence.
TEST(CellOptions, GivenStatesMayBeOneRow) {
  const CellCase test = Changed("gru", {"", [](CellDef* cell) { SetInitial("given", cell); }}, 3, 2);
  const CellNet net = test.Expand();
  Tensors given = test.RandomValues(net);
  Tensors one_row = given;
  const double* row = given.at("h_init").data<double>();
  one_row["h_init"] = Tensor::Of<double>({3}, {row[0], row[1], row[2]});
  given["h_init"] = Tensor::Of<double>({1, 2, 3}, {row[0], row[1], row[2], row[0], row[1], row[2]});
  ExpectTensorsNear(RunCell(net, one_row), RunCell(net, given));
}

TEST(CellOptions, CarriedStatesStartFromInputs) {
  CellCase test = Changed("lstm", {"", [](CellDef*) {}}, 3, 2);
  test.use.carry = true;
  test.use.scope = "decoder/";
  test.use.inputs = {{"x", "embedded"}};
  const CellNet net = test.Expand();
  ASSERT_EQ(net.states.size(), 2u);
  EXPECT_EQ(net.states[0].initial, "decoder/h_init");
  EXPECT_EQ(net.states[0].last, "decoder/h_carried");
  EXPECT_EQ(net.states[1].item, Shape({3}));
  EXPECT_EQ(net.parameters, (std::vector<std::string>{"decoder/w", "decoder/u", "decoder/b"}));
  EXPECT_EQ(net.outputs, (std::vector<std::string>{"decoder/h", "decoder/h_last", "decoder/c_last"}));
  EXPECT_EQ(net.inputs[0].blob, "embedded");
}

}  // namespace
}  // namespace stepnet
