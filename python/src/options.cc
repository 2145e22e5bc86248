#include "stepnet/python/src/options.h"

#include "stepnet/core/device.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/thread_pool.h"

namespace nb = nanobind;

namespace stepnet::python {

RunOptions MakeRunOptions(std::int64_t threads, const std::string& device, std::int64_t opt_level, std::uint64_t seed) {
  if (threads < 0 || threads > kMaxThreads) {
    throw Error(
        ErrorCode::kInvalidArgument,
        StrCat("threads is ", threads, "; it must be between 0, as many as are worth having, and ", kMaxThreads));
  }
  if (opt_level < 0 || opt_level > kMaxOptLevel) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("opt_level is ", opt_level, "; it must be between 0 and ", kMaxOptLevel));
  }
  const RunOptions options = {
      .threads = static_cast<int>(threads), .opt_level = static_cast<int>(opt_level), .seed = seed};
  const Device where = ParseDevice(device);
  if (!where.IsHost()) RuntimeOf(where);
  return OnDevice(options, where);
}

CellSizes SizesOf(const nb::dict& sizes) {
  CellSizes result;
  for (const auto& [name, value] : sizes) {
    const std::string text = nb::str(name).c_str();
    std::int64_t number = 0;
    if (PyBool_Check(value.ptr()) || !nb::try_cast(value, number)) {
      throw Error(ErrorCode::kTypeMismatch,
                  StrCat("the size ", text, " is ", nb::repr(value).c_str(), "; it must be a whole number"));
    }
    result[text] = number;
  }
  return result;
}

GradientRequests RequestsOf(const nb::dict& requests) {
  GradientRequests result;
  for (const auto& [name, value] : requests) {
    const std::string text = nb::str(name).c_str(), where = StrCat("gradient_requests says for \"", text, "\"");
    if (!nb::isinstance<nb::str>(value)) {
      throw Error(ErrorCode::kTypeMismatch,
                  StrCat(where, " ", nb::repr(value).c_str(), "; it must be \"write\", \"add\" or \"none\""));
    }
    result[text] = ParseGradientRequest(nb::cast<nb::str>(value).c_str(), where);
  }
  return result;
}

CellSource SourceOf(const std::string& text_or_path, bool is_text) {
  return is_text ? ParseCell(text_or_path, "<text>") : ReadCell(text_or_path);
}

}  // namespace stepnet::python
