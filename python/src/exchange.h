// Tensors of PyTorch by functions of its own in C, which its class lends (DLPack's exchange API, from PyTorch 2.10 on):
// they are read and made without any of its Python, in a tenth of the time of __dlpack__.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>

#include "stepnet/python/src/arrays.h"

namespace stepnet::python {

class TensorExchange {
 public:
  // `lent`: what the class of the tensors has as __dlpack_c_exchange_api__. `classes`: that class, and those derived
  // from it that add nothing to its memory. Null where nothing is lent in a version that is known.
  static std::unique_ptr<TensorExchange> Make(nanobind::handle lent, const nanobind::tuple& classes);

  // Does what LentOf does, of a tensor in the host's memory whose class is one of the classes, also of one that
  // requires gradients or is the negative of what its memory holds; nothing of all else. Needs the GIL.
  std::optional<LentArray> Lend(nanobind::handle tensor, const ArrayRole& role) const;
  // Does what Lend does, of tensors of PyTorch, where it is imported; nothing also of those that LentOf refuses or
  // reads otherwise: that require gradients, or have a tangent. Needs the GIL.
  static std::optional<LentArray> LendPlain(nanobind::handle array, const ArrayRole& role);
  // A tensor of PyTorch over the memory of one on the host. Needs the GIL.
  nanobind::object Give(const Tensor& tensor) const;

 private:
  struct Functions;
  TensorExchange(const Functions* functions, nanobind::tuple classes)
      : functions_(functions), classes_(std::move(classes)) {}

  const Functions* functions_;  // which live as long as the process
  nanobind::tuple classes_;
};

}  // namespace stepnet::python
