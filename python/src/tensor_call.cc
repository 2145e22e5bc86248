// Cells as stepnet.torch calls them, again and again: with tensors in one order, found by name once.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/python/src/arrays.h"
#include "stepnet/python/src/bindings.h"
#include "stepnet/python/src/call_gradients.h"
#include "stepnet/python/src/cell.h"
#include "stepnet/python/src/device_calls.h"
#include "stepnet/python/src/exchange.h"
#include "stepnet/python/src/text_caster.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

class TensorCall {
 public:
  // The tensors are these parameters, then these inputs; `needed`: by which of them gradients are wanted. Throws
  // kInvalidArgument for names that are missing, unknown or have no gradient. Needs the GIL.
  TensorCall(std::shared_ptr<Cell> cell, const std::vector<std::string>& parameters,
             const std::vector<std::string>& inputs, const std::vector<std::string>& needed);

  // Tensors or arrays, one for each output. `stream` and `exchange` as for PlaceFor, `draw` as for Program::Run. Needs
  // the GIL.
  nb::list Run(const nb::sequence& tensors, nb::handle stream, const TensorExchange* exchange,
               std::optional<std::uint64_t> draw) const;
  // These, and what gives the gradients, in the order of the tensors. REQUIRES that any are needed. Needs the GIL.
  std::pair<nb::list, std::unique_ptr<CallGradients>> RunForGradients(const nb::sequence& tensors, nb::handle stream,
                                                                      const TensorExchange* exchange,
                                                                      std::optional<std::uint64_t> draw) const;

 private:
  std::vector<Tensor> Take(const nb::sequence& tensors, const ArrayPlace& place) const;

  const std::shared_ptr<Cell> cell_;
  std::vector<int> index_;   // of each argument's tensor; -1: it starts as the cell says
  std::vector<int> needed_;  // indices of arguments
  std::shared_ptr<const CallGradients::Of> of_;
};

TensorCall::TensorCall(std::shared_ptr<Cell> cell, const std::vector<std::string>& parameters,
                       const std::vector<std::string>& inputs, const std::vector<std::string>& needed)
    : cell_(std::move(cell)) {
  nb::dict by_parameter, by_input;
  int count = 0;
  for (const std::string& name : parameters) by_parameter[StrOf(name)] = count++;
  for (const std::string& name : inputs) by_input[StrOf(name)] = count++;
  for (const nb::object& index : cell_->FindArguments(by_parameter, by_input)) {
    index_.push_back(index.is_valid() ? nb::cast<int>(index) : -1);
  }
  if (needed.empty()) return;
  needed_ = cell_->IndicesOf(needed);
  CallGradients::Of of = cell_->OfGradients(needed_);
  of.order.assign(count, -1);
  for (size_t i = 0; i < needed_.size(); ++i) of.order[index_[needed_[i]]] = static_cast<int>(i);
  of_ = std::make_shared<CallGradients::Of>(std::move(of));
}

nb::list TensorCall::Run(const nb::sequence& tensors, nb::handle stream, const TensorExchange* exchange,
                         std::optional<std::uint64_t> draw) const {
  const ArrayPlace place = cell_->PlaceOf(stream, exchange);
  const std::vector<Tensor> arguments = Take(tensors, place);
  return ArraysOf(CallOnDevice(place, [&] { return cell_->program()->Run(arguments, draw); }), cell_->outputs(),
                  /*read_only=*/false, place);
}

std::pair<nb::list, std::unique_ptr<CallGradients>> TensorCall::RunForGradients(
    const nb::sequence& tensors, nb::handle stream, const TensorExchange* exchange,
    std::optional<std::uint64_t> draw) const {
  const ArrayPlace place = cell_->PlaceOf(stream, exchange);
  const std::vector<Tensor> arguments = Take(tensors, place);
  auto [outputs, pullback] =
      CallOnDevice(place, [&] { return cell_->ProgramWithGradients(needed_)->RunForGradients(arguments, draw); });
  auto gradients = std::make_unique<CallGradients>(of_, outputs, std::move(pullback));
  return {ArraysOf(std::move(outputs), cell_->outputs(), /*read_only=*/false, place), std::move(gradients)};
}

std::vector<Tensor> TensorCall::Take(const nb::sequence& tensors, const ArrayPlace& place) const {
  Cell::Given given;
  given.reserve(index_.size());
  for (const int i : index_) given.push_back(i < 0 ? nb::object() : nb::object(tensors[i]));
  return cell_->TakeArguments(given, place);
}

}  // namespace

void BindTensorCall(nb::module_& module) {
  nb::class_<TensorCall>(module, "TensorCall")
      .def(nb::init<std::shared_ptr<Cell>, const std::vector<std::string>&, const std::vector<std::string>&,
                    const std::vector<std::string>&>())
      .def("run", &TensorCall::Run, nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg().none())
      .def("run_for_gradients", &TensorCall::RunForGradients, nb::arg(), nb::arg().none(), nb::arg().none(),
           nb::arg().none());
}

}  // namespace stepnet::python
