// Parameters in files, for Python.
#include <nanobind/stl/string.h>

#include "stepnet/cells/cell.h"
#include "stepnet/core/error.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/io/minidb.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/model.h"
#include "stepnet/python/src/arrays.h"
#include "stepnet/python/src/bindings.h"
#include "stepnet/python/src/calls.h"
#include "stepnet/python/src/options.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

// Whether an array may have these sizes: NumPy multiplies them also where one of them is 0.
bool IsSizeOfArray(const Tensor& tensor) {
  std::int64_t bytes = DTypeBytes(tensor.dtype());
  for (const std::int64_t size : tensor.shape().ToVector()) {
    if (size != 0 && __builtin_mul_overflow(bytes, size, &bytes)) return false;
  }
  return true;
}

// NumPy's arrays by name: bfloat16 as float32, with `widen` float16, too.
nb::dict LoadParams(const std::string& path, nb::handle widen, nb::handle seed) {
  const bool is_widened = TruthOf("widen", widen);
  const RunRequest request{.seed = SeedOf(seed)};
  const NamedTensors tensors = CallWithoutGil([&] {
    if (!HoldsOnlyTensors(path) && !LooksLikeMiniDb(path) && IsCell(ReadFile(path), path)) {
      throw Error(ErrorCode::kInvalidArgument, StrCat(path, " is a cell; stepnet.cell(…).init() fills its parameters"));
    }
    NamedTensors read = ReadParameterTensors(path, {}, MakeRunOptions(request));
    for (auto& [name, tensor] : read) {
      if (tensor.dtype() == DType::kString) {
        throw Error(ErrorCode::kTypeMismatch, StrCat(path, " has \"", name, "\", ", tensor.Description(),
                                                     ", and arrays have no strings; `rnn_runner convert --params "
                                                     "--output=NAME,…` writes others alone to a file"));
      }
      if (tensor.dtype() == DType::kBFloat16 || (is_widened && tensor.dtype() == DType::kFloat16))
        tensor = Widened(tensor);
    }
    return read;
  });
  nb::dict params;
  for (const auto& [name, tensor] : tensors) {
    if (!IsSizeOfArray(tensor)) {
      throw Error(ErrorCode::kInputOutput, StrCat(path, " has \"", name, "\", ", tensor.Description(),
                                                  ", without elements, and NumPy has no array of sizes that large"));
    }
    params[StrOf(name)] = ArrayOf(tensor);
  }
  return params;
}

void SaveParams(const nb::dict& params, const std::string& path) {
  NamedTensors tensors;
  for (const auto& [key, array] : params) {
    if (!nb::isinstance<nb::str>(key)) {
      throw Error(ErrorCode::kTypeMismatch, StrCat("a parameter is named ", Utf8Of(key), ", which is no text"));
    }
    // A name that is no text, as half of a pair of surrogates, is no UTF-8: WriteTensors says so.
    const nb::object bytes = nb::steal(PyUnicode_AsEncodedString(key.ptr(), "utf-8", "surrogatepass"));
    if (!bytes.is_valid()) nb::raise_python_error();
    const std::string name(PyBytes_AsString(bytes.ptr()), static_cast<size_t>(PyBytes_Size(bytes.ptr())));
    tensors.emplace_back(name, TensorOf(array, {"parameter", name}));
  }
  CallWithoutGil([&] { WriteTensors(tensors, path); });
}

}  // namespace

void BindParams(nb::module_& module) {
  module.def("load_params", &LoadParams, nb::arg(), Anything(), Anything());
  module.def("save_params", &SaveParams);
}

}  // namespace stepnet::python
