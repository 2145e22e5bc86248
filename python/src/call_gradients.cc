#include "stepnet/python/src/call_gradients.h"

#include <algorithm>

#include "stepnet/core/error.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/memory_for.h"
#include "stepnet/core/strings.h"
#include "stepnet/python/src/arrays.h"
#include "stepnet/python/src/device_calls.h"
#include "stepnet/python/src/exchange.h"
#include "stepnet/python/src/options.h"
#include "stepnet/python/src/with_file.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

// Each with memory of its own: of those that show the same memory all but the first in it are copied.
std::vector<Tensor> Apart(std::vector<Tensor> tensors, const std::vector<std::string>& names) {
  std::vector<size_t> in_memory;
  in_memory.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].defined()) in_memory.push_back(i);
  }
  const auto begin_of = [&](size_t i) { return static_cast<const char*>(tensors[i].raw()); };
  std::ranges::sort(in_memory, {}, [&](size_t i) { return std::pair(begin_of(i), -tensors[i].size_bytes()); });
  const char* taken_to = nullptr;
  for (const size_t i : in_memory) {
    const char* const begin = begin_of(i);
    const char* const end = begin + tensors[i].size_bytes();
    if (begin < taken_to) tensors[i] = WithMemoryFor("a copy of", names[i], [&] { return tensors[i].Clone(); });
    taken_to = std::max(taken_to, end);
  }
  return tensors;
}

bool IsNumpys(const Tensor& tensor) {
  return tensor.defined() && tensor.device().IsHost() && tensor.dtype() != DType::kString &&
         tensor.dtype() != DType::kBFloat16;
}

}  // namespace

CallGradients::CallGradients(std::shared_ptr<const Of> of, const std::vector<Tensor>& values,
                             std::unique_ptr<Pullback> pullback)
    : of_(std::move(of)), pullback_(std::move(pullback)) {
  for (const Tensor& value : values) is_floating_.push_back(value.defined() && IsFloating(value.dtype()));
}

nb::tuple CallGradients::Call(const nb::dict& output_gradients, const nb::dict& sums) {
  const ArrayPlace place = PlaceFor(of_->device, nb::none());
  return WithFile(of_->file, [&] {
    const std::vector<Tensor> given = TakeGradients(FindGradients(output_gradients), place);
    const std::vector<bool> adds_there = CheckSums(sums, place);
    const nb::list arrays = Run(given, place, adds_there);
    nb::dict parameters, inputs;
    for (size_t i = 0; i < of_->differentiated.size(); ++i) {
      (of_->is_parameter[i] ? parameters : inputs)[StrOf(of_->differentiated[i])] = arrays[i];
    }
    return nb::make_tuple(parameters, inputs);
  });
}

nb::list CallGradients::CallInOrder(const nb::sequence& output_gradients, nb::handle stream,
                                    const TensorExchange* exchange) {
  const ArrayPlace place = PlaceFor(of_->device, stream, exchange);
  return WithFile(of_->file, [&] {
    Given given;
    for (const nb::handle each : output_gradients) given.push_back(each.is_none() ? nb::object() : nb::borrow(each));
    const nb::list gradients = Run(TakeGradients(given, place), place);
    nb::list ordered;
    for (const int i : of_->order) ordered.append(i < 0 ? nb::none() : nb::object(gradients[i]));
    return ordered;
  });
}

nb::list CallGradients::Kept() const {
  nb::list kept;
  for (const auto& [what, tensor] : pullback_->Kept()) {
    if (IsNumpys(tensor)) kept.append(nb::make_tuple(StrOf(what), ArrayOf(tensor, /*read_only=*/true)));
  }
  return kept;
}

nb::list CallGradients::Run(const std::vector<Tensor>& output_gradients, const ArrayPlace& place,
                            const std::vector<bool>& adds_there) {
  return ArraysOf(CallOnDevice(place, [&] { return pullback_->Run(output_gradients, adds_there); }),
                  of_->differentiated, /*read_only=*/false, place);
}

CallGradients::Given CallGradients::FindGradients(const nb::dict& by_name) const {
  const std::vector<std::string>& outputs = of_->outputs;
  Given given(outputs.size());
  for (const nb::handle item : by_name.items()) {
    const std::string name = Utf8Of(item[0]);
    const size_t i = static_cast<size_t>(std::ranges::find(outputs, name) - outputs.begin());
    if (i == outputs.size() || !is_floating_[i]) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat(of_->text, " has no output \"", name, "\" that has a gradient", DidYouMean(name, outputs),
                         "; its outputs are ", Join(outputs, ", ")));
    }
    given[i] = item[1];
  }
  return given;
}

// One an output, undefined for those that are not given.
std::vector<Tensor> CallGradients::TakeGradients(const Given& given, const ArrayPlace& place) const {
  std::vector<Tensor> gradients(given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    if (!given[i].is_valid()) continue;
    const std::string& name = of_->outputs[i];
    const ArrayRole role{"gradient of the output", name};
    const LentArray lent = LentOf(given[i], role, place);
    const Tensor& gradient = lent.tensor;
    const TensorInfo& output = pullback_->InfoOfOutput(i);
    if (gradient.dtype() != output.dtype || gradient.shape() != output.shape) {
      const bool is_shape = gradient.dtype() == output.dtype;
      throw Error(
          is_shape ? ErrorCode::kShapeMismatch : ErrorCode::kTypeMismatch,
          StrCat("the gradient of the output \"", name, "\" is ", NumpyName(gradient.dtype()), " ", gradient.shape(),
                 "; it must be ", NumpyName(output.dtype), " ", output.shape, ", as the output is"));
    }
    gradients[i] = Contiguous(lent, role, place);
  }
  return gradients;
}

// There is an array for each gradient that is added, and it is as that is. Says which of them are on the device, of
// each gradient.
std::vector<bool> CallGradients::CheckSums(const nb::dict& given, const ArrayPlace& place) const {
  const std::vector<std::string>& differentiated = of_->differentiated;
  std::vector<std::string> added;
  for (size_t i = 0; i < differentiated.size(); ++i) {
    if (pullback_->IsAdded(i)) added.push_back(differentiated[i]);
  }
  std::vector<bool> is_there(differentiated.size());
  for (const nb::handle item : given.items()) {
    const nb::object key = item[0], value = item[1];
    const std::string name = Utf8Of(key);
    if (std::ranges::count(added, name) == 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("into names \"", name, "\", for which gradient_requests does not say add",
                         DidYouMean(name, added), "; it says so for ", added.empty() ? "nothing" : Join(added, ", ")));
    }
    const size_t i = static_cast<size_t>(std::ranges::find(differentiated, name) - differentiated.begin());
    const Tensor given_sum = LentOf(value, {"array of into", name}, place).tensor;
    const TensorInfo& info = pullback_->InfoOf(i);
    is_there[i] = IsOnDevice(given_sum);
    if (is_there[i]) CheckIsNotKept(name, given_sum);
    if (given_sum.dtype() == info.dtype && given_sum.shape() == info.shape) continue;
    const bool is_shape = given_sum.dtype() == info.dtype;
    throw Error(is_shape ? ErrorCode::kShapeMismatch : ErrorCode::kTypeMismatch,
                StrCat("into has for \"", name, "\" ", NumpyName(given_sum.dtype()), " ", given_sum.shape(),
                       "; it must be ", NumpyName(info.dtype), " ", info.shape, ", as the gradient is"));
  }
  for (const std::string& name : added) {
    if (given.contains(StrOf(name))) continue;
    throw Error(ErrorCode::kInvalidArgument, StrCat("gradient_requests says add for \"", name,
                                                    "\", and into has nothing for it to be added to; give an array, of "
                                                    "zeros for a new sum"));
  }
  return is_there;
}

// The next call of the pullback would compute gradients of the sum. On the host gradients.py looks for it.
void CallGradients::CheckIsNotKept(const std::string& name, const Tensor& sum) const {
  const auto begin_of = [](const Tensor& tensor) { return static_cast<const char*>(tensor.raw(tensor.device())); };
  const auto end_of = [&](const Tensor& tensor) { return begin_of(tensor) + tensor.size_bytes(); };
  for (const auto& [what, kept] : pullback_->Kept()) {
    const bool is_apart =
        kept.device() != sum.device() || end_of(sum) <= begin_of(kept) || end_of(kept) <= begin_of(sum);
    if (is_apart) continue;
    throw Error(ErrorCode::kInvalidArgument, StrCat("into has for '", name, "' an array in the memory of ", what,
                                                    ", of which gradients are computed; give a copy"));
  }
}

nb::list ArraysOf(std::vector<Tensor> tensors, const std::vector<std::string>& names, bool read_only,
                  const ArrayPlace& place) {
  nb::list arrays;
  if (place.exchange != nullptr) {
    for (const Tensor& tensor : Apart(std::move(tensors), names)) {
      arrays.append(tensor.defined() ? place.exchange->Give(tensor) : nb::none());
    }
  } else {
    for (const Tensor& tensor : tensors) arrays.append(ArrayOf(tensor, read_only, place.stream));
  }
  return arrays;
}

}  // namespace stepnet::python
