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
  // What to differentiate by.
  struct By {
    std::string name;
    bool is_parameter = false;
  };

  // The cell or net that was called.
  struct Of {
    std::string text;       // for messages
    std::string file = {};  // which they name; "" for none
    Device device = {};     // on which it runs
  };

  // `values`: what the call gave, one an output.
  CallGradients(Of of, std::vector<std::string> outputs, const std::vector<Tensor>& values,
                std::vector<By> differentiated, std::unique_ptr<Pullback> pullback);

  // Two dictionaries, of gradients of parameters and of inputs, from one of gradients of outputs; those that are
  // missing are zeros. Throws kInvalidArgument for names that no output with a gradient has, kShapeMismatch and
  // kTypeMismatch for gradients that are not as their output is. `sums` are arrays by the names of the gradients that
  // the caller then adds to them, which is not done here. Throws kInvalidArgument where one is missing and for other
  // names, kShapeMismatch and kTypeMismatch for arrays that are not as the gradient is. `stream` as for PlaceFor. Needs
  // the GIL.
  nanobind::tuple Call(const nanobind::dict& output_gradients, const nanobind::dict& sums, nanobind::handle stream,
                       const TensorExchange* exchange);

  // What the run was given and has given, on the host, of which the gradients are computed: texts that name it, and
  // arrays over its memory.
  nanobind::list Kept() const;

 private:
  nanobind::tuple Run(const nanobind::dict& output_gradients, const nanobind::dict& sums, const ArrayPlace& place);
  std::vector<Tensor> Take(const nanobind::dict& given, const ArrayPlace& place) const;
  void CheckSums(const nanobind::dict& given) const;

  const Of of_;
  const std::vector<std::string> outputs_;
  const std::vector<By> differentiated_;
  const std::unique_ptr<Pullback> pullback_;
  std::vector<TensorInfo> infos_;  // of the outputs
  std::vector<bool> is_floating_;
};

// Does what ArrayOf does, for each; errors have their names. By `place.exchange` they are tensors of PyTorch that share
// no memory: of those that do all but the first in memory are copied, since they are written to.
nanobind::list ArraysOf(const std::vector<Tensor>& tensors, const std::vector<std::string>& names, bool read_only,
                        const ArrayPlace& place = {});

}  // namespace stepnet::python
