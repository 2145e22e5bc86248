// Cells and their gradients, for Python.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "stepnet/cells/cell_inputs.h"
#include "stepnet/cells/cell_options.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/python/src/array_reading.h"
#include "stepnet/python/src/arrays.h"
#include "stepnet/python/src/bindings.h"
#include "stepnet/python/src/call_gradients.h"
#include "stepnet/python/src/calls.h"
#include "stepnet/python/src/cell.h"
#include "stepnet/python/src/device_calls.h"
#include "stepnet/python/src/exchange.h"
#include "stepnet/python/src/explain.h"
#include "stepnet/python/src/operator.h"
#include "stepnet/python/src/options.h"
#include "stepnet/python/src/text_caster.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

std::shared_ptr<Cell> MakeCell(const std::string& text_or_path, bool is_text, const nb::dict& named,
                               nb::handle training, nb::handle carry, bool in_double, nb::handle threads,
                               nb::handle device, nb::handle opt_level, const nb::list& disable_pass, nb::handle seed) {
  const CellWords words = CellWordsOf(named);
  CellUse use{.training = TruthOf("training", training), .carry = TruthOf("carry", carry), .in_double = in_double};
  const RunRequest request = RunRequestOf(threads, device, opt_level, disable_pass, seed);
  return CallWithoutGil([&] {
    const RunOptions options = MakeRunOptions(request);
    const InOrderOf device({.device = options.device()});
    CellSource source = SourceOf(text_or_path, is_text);
    use.sizes = TakeWords(words, &source);
    return std::make_shared<Cell>(source, use, options);
  });
}

nb::list Call(Cell& cell, const nb::dict& parameters, const nb::dict& inputs) {
  const ArrayPlace place = cell.PlaceOf(nb::none());
  const std::vector<Tensor> arguments = cell.TakeArguments(cell.FindArguments(parameters, inputs), place);
  return ArraysOf(CallOnDevice(place, [&] { return cell.program()->Run(arguments); }), cell.outputs(),
                  /*read_only=*/false, place);
}

nb::tuple Vjp(Cell& cell, const nb::dict& parameters, const nb::dict& inputs, const nb::list& wrt,
              const nb::dict& gradient_requests) {
  const ArrayPlace place = cell.PlaceOf(nb::none());
  const std::vector<int> indices = cell.IndicesOf(NamesOf("wrt", wrt));
  const GradientRequests requests = RequestsOf(gradient_requests);
  const std::vector<Tensor> arguments = cell.TakeArguments(cell.FindArguments(parameters, inputs), place);
  auto [outputs, pullback] =
      CallOnDevice(place, [&] { return cell.ProgramWithGradients(indices, requests)->RunForGradients(arguments); });
  auto of = std::make_shared<CallGradients::Of>(cell.OfGradients(indices, requests));
  auto gradients = std::make_unique<CallGradients>(std::move(of), outputs, std::move(pullback));
  return nb::make_tuple(ArraysOf(std::move(outputs), cell.outputs(), /*read_only=*/true, place),
                        nb::cast(std::move(gradients)));
}

nb::object ExplainCell(const Cell& cell, const nb::dict& parameters, const nb::dict& inputs, nb::handle gradients,
                       nb::handle format) {
  const bool with_gradients = TruthOf("gradients", gradients);
  const std::string form = TextOf("format", format);
  const ArrayPlace place = cell.PlaceOf(nb::none());
  const std::vector<Tensor> arguments = cell.TakeArguments(cell.FindArguments(parameters, inputs), place);
  const std::vector<int> differentiated = with_gradients ? cell.IndicesOf({}) : std::vector<int>();
  return StrOf(CallOnDevice(
      place, [&] { return ExplanationOf(cell.MakeProgramDef(differentiated), arguments, form, cell.name()); }));
}

nb::dict Init(const Cell& cell, nb::handle seed) {
  const std::uint64_t from = SeedOf(seed);
  const std::map<std::string, Tensor> parameters =
      CallOnDevice(cell.PlaceOf(nb::none()), [&] { return cell.Init(from); });
  nb::dict arrays;
  for (const auto& [name, tensor] : parameters) arrays[StrOf(name)] = ArrayOf(tensor);
  return arrays;
}

// (name, dtype, shape as text) of parameters, or of all else that the cell is given.
nb::list Arguments(const Cell& cell, bool parameters) {
  nb::list list;
  for (const Cell::Argument& argument : cell.arguments()) {
    if (argument.is_parameter != parameters) continue;
    const std::string shape = parameters ? argument.shape.ToString() : ExpectedShapeText(argument.input, -1, -1);
    list.append(nb::make_tuple(argument.input.blob, NumpyName(argument.input.dtype), shape, argument.is_start));
  }
  return list;
}

// What initial states are where a call gives none, by name.
nb::dict Starts(const Cell& cell) {
  nb::dict starts;
  for (const Cell::Argument& argument : cell.arguments()) {
    const bool is_optional = argument.is_start && !argument.is_parameter;
    if (is_optional) starts[StrOf(argument.input.blob)] = ArrayOf(argument.start, /*read_only=*/true);
  }
  return starts;
}

// Where a tensor over this array begins: where the array does, unless it had to be copied.
std::uintptr_t AddressOf(nb::handle array, const std::string& device) {
  const std::string name = "array";
  const Tensor tensor = TensorOf(array, {"argument", name}, {.device = ParseDevice(device)});
  return reinterpret_cast<std::uintptr_t>(tensor.raw(tensor.device()));
}

// The names of the sizes that a cell declares, whatever values they are given.
std::vector<std::string> SizesOfCell(const std::string& text_or_path, bool is_text) {
  const CellSource source = CallWithoutGil([&] { return SourceOf(text_or_path, is_text); });
  std::vector<std::string> names;
  for (const CellSize& size : source.def.size()) names.push_back(size.name());
  return names;
}

}  // namespace

void BindCell(nb::module_& module) {
  nb::class_<CallGradients>(module, "CallGradients")
      .def("kept", &CallGradients::Kept)
      .def("__call__", &CallGradients::Call)
      .def("in_order", &CallGradients::CallInOrder, nb::arg(), nb::arg().none(), nb::arg().none());
  nb::class_<Cell>(module, "Cell")
      .def_prop_ro("name", [](const Cell& cell) { return StrOf(cell.name()); })
      .def_prop_ro("doc", [](const Cell& cell) { return StrOf(cell.doc()); })
      .def_prop_ro("text", [](const Cell& cell) { return StrOf(cell.text()); })
      .def_prop_ro("warnings", [](const Cell& cell) { return ListOf(cell.warnings()); })
      .def_prop_ro("outputs", &Cell::outputs)
      .def("whole_outputs", &Cell::WholeOutputs)
      .def("arguments", &Arguments)
      .def("starts", &Starts)
      .def("operators", [](const Cell& cell) { return OperatorsOf(cell.net()); })
      .def("init", &Init, Anything())
      .def_prop_ro("draws", &Cell::draws)
      .def("advice_on_input", [](const Cell& cell, nb::handle name) { return StrOf(cell.AdviceOnInput(Utf8Of(name))); })
      .def("call", &Call)
      .def("vjp", &Vjp)
      .def("explain", &ExplainCell, nb::arg(), nb::arg(), Anything(), Anything());
  module.def("make_cell", &MakeCell, nb::arg("text_or_path"), nb::arg("is_text"), nb::arg("named"),
             nb::arg("training").none(), nb::arg("carry").none(), nb::arg("in_double"), nb::arg("threads").none(),
             nb::arg("device").none(), nb::arg("opt_level").none(), nb::arg("disable_pass"), nb::arg("seed").none());
  module.def("sizes_of_cell", &SizesOfCell);
  module.def("cell_options", &CellOptionNames);
  module.def("has_tangent", &HasTangent);
  module.def("address_of", &AddressOf, nb::arg(), nb::arg() = "cpu");
}

}  // namespace stepnet::python
