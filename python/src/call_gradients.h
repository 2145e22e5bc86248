// The gradients of one call of a cell or a net, for Python.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "stepnet/python/src/arrays.h"
#include "stepnet/python/src/program.h"

namespace stepnet::python {

class CallGradients {
 public:
  // The cell or net that was called, and what is differentiated by.
  struct Of {
    std::string text;       // for messages
    std::string file = {};  // which they name; "" for none
    Device device = {};     // on which it runs
    std::vector<std::string> outputs = {};
    std::vector<std::string> differentiated = {};
    std::vector<bool> is_parameter = {};  // of each of `differentiated`
    std::vector<int> order = {};          // of what CallInOrder gives, each one's index among them; -1: None
  };

  // `values`: what the call gave, one an output.
  CallGradients(std::shared_ptr<const Of> of, const std::vector<Tensor>& values, std::unique_ptr<Pullback> pullback);

  // Two dictionaries, of gradients of parameters and of inputs, from one of gradients of outputs; those that are
  // missing are zeros. Throws kInvalidArgument for names that no output with a gradient has, kShapeMismatch and
  // kTypeMismatch for gradients that are not as their output is. `sums` are arrays by the names of the gradients that
  // the caller then adds to them, which is not done here: those are on the device where the array and the call's
  // outputs are, and on the host otherwise. Throws kInvalidArgument where one is missing, for other names, and for an
  // array on the device in memory of which the gradients are computed, kShapeMismatch and kTypeMismatch for arrays that
  // are not as the gradient is. Needs the GIL.
  nanobind::tuple Call(const nanobind::dict& output_gradients, const nanobind::dict& sums);

  // The same in an order, that of Of::order, from one for each output or None. `stream` and
  // `exchange` as for PlaceFor.
  nanobind::list CallInOrder(const nanobind::sequence& output_gradients, nanobind::handle stream,
                             const TensorExchange* exchange);

  // What the run was given and has given, on the host, of which the gradients are computed: texts that name it, and
  // arrays over its memory.
  nanobind::list Kept() const;

 private:
  // One an output: nothing for those that are not given.
  using Given = std::vector<nanobind::object>;
  Given FindGradients(const nanobind::dict& by_name) const;
  std::vector<Tensor> TakeGradients(const Given& given, const ArrayPlace& place) const;
  std::vector<bool> CheckSums(const nanobind::dict& given, const ArrayPlace& place) const;
  void CheckIsNotKept(const std::string& name, const Tensor& sum) const;
  nanobind::list Run(const std::vector<Tensor>& output_gradients, const ArrayPlace& place,
                     const std::vector<bool>& adds_there = {});

  const std::shared_ptr<const Of> of_;
  const std::unique_ptr<Pullback> pullback_;
  std::vector<bool> is_floating_;  // of each output
};

// Does what ArrayOf does, for each; errors have their names. By `place.exchange` they are tensors of PyTorch that share
// no memory: of those that do all but the first in memory are copied, since they are written to.
nanobind::list ArraysOf(std::vector<Tensor> tensors, const std::vector<std::string>& names, bool read_only,
                        const ArrayPlace& place = {});

}  // namespace stepnet::python
