#include "stepnet/gpu/compiler_stamp.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxBytes = std::int64_t{64} << 10;  // of some hundred for each place to look

// Where the library is looked for (gpu/cuda_library.h, and the loader).
std::string Key() {
  std::string key = "compiler";
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH"}) {
    const char* const value = std::getenv(variable);
    key += StrCat("\n", variable, "=", value == nullptr ? "" : value);
  }
  return key;
}

// Size and time of what is at the path; "" where nothing is.
std::string SizeAndTime(const std::string& path) {
  std::error_code fault;
  const auto bytes = fs::file_size(path, fault);
  if (fault) return "";
  const auto time = fs::last_write_time(path, fault);
  return fault ? "" : StrCat(bytes, " ", time.time_since_epoch().count());
}

}  // namespace

CompilerStamp::CompilerStamp(const std::string& folder, DeviceCompiler compiler)
    : compiler_(std::move(compiler)), kept_(folder, ".compiler", kMaxBytes) {}

std::optional<std::string> CompilerStamp::KeptText() const {
  const std::optional<std::vector<std::string>> kept = kept_.Read(Key());
  if (!kept || kept->size() != 3) return std::nullopt;
  const std::string &file = (*kept)[0], &then = (*kept)[1], &text = (*kept)[2];
  if (then.empty() || text.empty() || SizeAndTime(file) != then) return std::nullopt;
  return text;
}

std::string CompilerStamp::Text() {
  {
    const std::lock_guard lock(mutex_);
    if (text_.empty()) text_ = KeptText().value_or("");
    if (!text_.empty()) return text_;
  }
  return OpenedText();
}

std::string CompilerStamp::OpenedText() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_opened_, true)) return text_;
  try {
    text_ = compiler_.text();
  } catch (...) {
    is_opened_ = false;
    throw;
  }
  if (KeptText() != text_) {
    const std::string file = compiler_.file();
    kept_.Keep(Key(), {file, SizeAndTime(file), text_});
  }
  return text_;
}

}  // namespace stepnet
