// Parameters in files, for Python.
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <set>

#include "stepnet/cells/cell.h"
#include "stepnet/cells/parameter_names.h"
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
#include "stepnet/python/src/text_caster.h"

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

[[noreturn]] void ThrowNoPrefix(const std::string& path, const std::string& prefix,
                                const std::set<std::string>& names) {
  constexpr size_t kShown = 10;
  std::vector<std::string> starts;  // "encoder.lstm." of "encoder.lstm.weight_ih_l0"
  for (const std::string& name : names) {
    const size_t end = name.find_last_of("./");
    if (end != std::string::npos) starts.push_back(name.substr(0, end + 1));
  }
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  const std::string meant = DidYouMean(prefix, starts);
  if (starts.size() > kShown) starts.resize(kShown);
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("no parameter in ", path, " has a name that begins with \"", prefix, "\"", meant,
                     starts.empty() ? "" : "; names there begin with ", Join(starts, ", ")));
}

// NumPy's arrays by name, of names that begin with `prefix`: bfloat16 as float32, with `widen` float16, too.
nb::dict LoadParams(const std::string& path, const std::string& prefix, nb::handle widen, nb::handle seed) {
  const bool is_widened = TruthOf("widen", widen);
  const RunRequest request{.seed = SeedOf(seed)};
  const NamedTensors tensors = CallWithoutGil([&] {
    if (!HoldsOnlyTensors(path) && !LooksLikeMiniDb(path) && IsCell(ReadFile(path), path)) {
      throw Error(ErrorCode::kInvalidArgument, StrCat(path, " is a cell; stepnet.cell(…).init() fills its parameters"));
    }
    std::set<std::string> others;
    const NameFilter has_prefix = [&](const std::string& name) {
      return name.starts_with(prefix) || (others.insert(name), false);
    };
    NamedTensors read = ReadParameterTensors(path, has_prefix, MakeRunOptions(request));
    if (read.empty() && !prefix.empty()) ThrowNoPrefix(path, prefix, others);
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
  module.def("load_params", &LoadParams, nb::arg(), nb::arg(), Anything(), Anything());
  module.def("torch_name_of", [](const std::string& parameter) { return TorchNameOf(parameter); });
  module.def("other_names_text", [](const std::vector<std::string>& names, const std::vector<std::string>& parameters) {
    return parameters.empty() ? "" : OtherNamesText(FindOtherNames(names, parameters), parameters.front());
  });
  module.def("prefixes_of", [](const std::vector<std::string>& names, const std::vector<std::string>& parameters) {
    std::vector<std::string> prefixes;
    for (const OtherNames& others : FindOtherNames(names, parameters)) prefixes.push_back(others.prefix);
    return prefixes;
  });
  module.def("save_params", &SaveParams);
  module.def("write_file", [](const std::string& path, const nb::bytes& content) {
    CallWithoutGil([&] { WriteFile(path, {content.c_str(), content.size()}); });
  });
}

}  // namespace stepnet::python
