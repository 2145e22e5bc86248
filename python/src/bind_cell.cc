// Cells and their gradients, for Python.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "stepnet/cells/cell_inputs.h"
#include "stepnet/core/error.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/strings.h"
#include "stepnet/python/src/arrays.h"
#include "stepnet/python/src/bindings.h"
#include "stepnet/python/src/calls.h"
#include "stepnet/python/src/cell.h"
#include "stepnet/python/src/operator.h"
#include "stepnet/python/src/options.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

nb::list ArraysOf(const std::vector<Tensor>& tensors, bool read_only) {
  nb::list arrays;
  for (const Tensor& tensor : tensors) arrays.append(ArrayOf(tensor, read_only));
  return arrays;
}

// The gradients of one call of a cell.
class CellGradients {
 public:
  CellGradients(std::shared_ptr<Cell> cell, std::vector<int> arguments, std::unique_ptr<Pullback> pullback,
                const std::vector<Tensor>& outputs)
      : cell_(std::move(cell)), arguments_(std::move(arguments)), pullback_(std::move(pullback)) {
    for (const Tensor& output : outputs) shapes_.push_back(output.shape());
  }

  // Gradients of parameters and of inputs, each by name, from those of outputs.
  nb::tuple Call(const nb::dict& output_gradients) {
    const std::vector<Tensor> given = Take(output_gradients);
    const std::vector<Tensor> gradients = CallWithoutGil([&] { return pullback_->Run(given); });
    nb::dict parameters, inputs;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const Cell::Argument& argument = cell_->arguments()[arguments_[i]];
      (argument.is_parameter ? parameters : inputs)[argument.input.blob.c_str()] = ArrayOf(gradients[i]);
    }
    return nb::make_tuple(parameters, inputs);
  }

 private:
  // One a output, undefined for those that are not given.
  std::vector<Tensor> Take(const nb::dict& given) const {
    const std::vector<std::string>& names = cell_->outputs();
    std::vector<Tensor> gradients(names.size());
    for (const nb::handle item : given.items()) {
      const nb::object key = item[0], value = item[1];
      const std::string name = nb::str(key).c_str();
      const size_t i = static_cast<size_t>(std::ranges::find(names, name) - names.begin());
      if (i == names.size() || !IsFloating(cell_->OutputDType(i))) {
        throw Error(ErrorCode::kInvalidArgument,
                    StrCat(cell_->name(), " has no output \"", name, "\" that has a gradient", DidYouMean(name, names),
                           "; its outputs are ", Join(names, ", ")));
      }
      const Tensor gradient = TensorOf(value, {"gradient of the output", name});
      if (gradient.dtype() != cell_->OutputDType(i) || gradient.shape() != shapes_[i]) {
        const bool is_shape = gradient.dtype() == cell_->OutputDType(i);
        throw Error(
            is_shape ? ErrorCode::kShapeMismatch : ErrorCode::kTypeMismatch,
            StrCat("the gradient of the output \"", name, "\" is ", NumpyName(gradient.dtype()), " ", gradient.shape(),
                   "; it must be ", NumpyName(cell_->OutputDType(i)), " ", shapes_[i], ", as the output is"));
      }
      gradients[i] = gradient;
    }
    return gradients;
  }

  const std::shared_ptr<Cell> cell_;
  const std::vector<int> arguments_;
  const std::unique_ptr<Pullback> pullback_;
  std::vector<Shape> shapes_;
};

std::shared_ptr<Cell> MakeCell(const std::string& text_or_path, bool is_text, const nb::dict& sizes, bool training,
                               bool carry, bool in_double, std::int64_t threads, const std::string& device,
                               std::int64_t opt_level, std::uint64_t seed) {
  CellUse use{.sizes = SizesOf(sizes), .training = training, .carry = carry};
  return CallWithoutGil([&] {
    const RunOptions options = MakeRunOptions(threads, device, opt_level, seed);
    return std::make_shared<Cell>(SourceOf(text_or_path, is_text), use, options, in_double);
  });
}

nb::list Call(Cell& cell, const nb::dict& parameters, const nb::dict& inputs) {
  const std::vector<Tensor> arguments = cell.TakeArguments(parameters, inputs);
  return ArraysOf(CallWithoutGil([&] { return cell.program()->Run(arguments); }), /*read_only=*/false);
}

nb::tuple Vjp(const std::shared_ptr<Cell>& cell, const nb::dict& parameters, const nb::dict& inputs,
              const std::vector<std::string>& wrt, bool read_only) {
  const std::vector<int> indices = cell->IndicesOf(wrt);
  const std::vector<Tensor> arguments = cell->TakeArguments(parameters, inputs);
  auto [outputs, pullback] = CallWithoutGil([&] {
    const std::shared_ptr<Program> program = cell->ProgramWithGradients(indices);
    return program->RunForGradients(arguments);
  });
  auto gradients = std::make_unique<CellGradients>(cell, indices, std::move(pullback), outputs);
  return nb::make_tuple(ArraysOf(outputs, read_only), nb::cast(std::move(gradients)));
}

nb::dict Init(const Cell& cell, std::uint64_t seed) {
  const std::map<std::string, Tensor> parameters = CallWithoutGil([&] { return cell.Init(seed); });
  nb::dict arrays;
  for (const auto& [name, tensor] : parameters) arrays[name.c_str()] = ArrayOf(tensor);
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
    if (is_optional) starts[argument.input.blob.c_str()] = ArrayOf(argument.start, /*read_only=*/true);
  }
  return starts;
}

// Where a tensor over this array begins: where the array does, unless it had to be copied.
std::uintptr_t AddressOf(nb::handle array) {
  const std::string name = "array";
  return reinterpret_cast<std::uintptr_t>(TensorOf(array, {"argument", name}).raw());
}

}  // namespace

void BindCell(nb::module_& module) {
  nb::class_<CellGradients>(module, "CellGradients").def("__call__", &CellGradients::Call);
  nb::class_<Cell>(module, "Cell")
      .def_prop_ro("name", &Cell::name)
      .def_prop_ro("doc", &Cell::doc)
      .def_prop_ro("text", &Cell::text)
      .def_prop_ro("outputs", &Cell::outputs)
      .def("arguments", &Arguments)
      .def("starts", &Starts)
      .def("operators", [](const Cell& cell) { return OperatorsOf(cell.net()); })
      .def("init", &Init)
      .def("call", &Call)
      .def("vjp", &Vjp);
  module.def("make_cell", &MakeCell, nb::arg("text_or_path"), nb::arg("is_text"), nb::arg("sizes"), nb::arg("training"),
             nb::arg("carry"), nb::arg("in_double"), nb::arg("threads"), nb::arg("device"), nb::arg("opt_level"),
             nb::arg("seed"));
  module.def("address_of", &AddressOf);
}

}  // namespace stepnet::python
