// CompilerStamp: which compiler there is, as part of the key of what it made, without opening it: NVRTC is 100 MB, and
// a process that finds all its kernels on disk needs none of it.
//
// What the compiler says of itself is kept beside the code, with the file that it came from. It is believed for as long
// as that file has the same size and time, and the variables that say where to look for it are the same. So a file that
// is replaced, removed or looked for elsewhere makes a stamp stale, and the compiler is opened. Not seen is a library
// that the loader has come to find in another place, the old one still being there: what the old one has made serves
// until something is to be compiled, which opens the new one.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "stepnet/gpu/kept_files.h"
#include "stepnet/gpu/nvrtc.h"

namespace stepnet {

// All but `compile` as functions of gpu/nvrtc.h, which open NVRTC; tests bring others.
struct DeviceCompiler {
  std::function<std::string()> text = DeviceCompilerText;
  std::function<std::string()> file = DeviceCompilerFile;
  std::function<DeviceCode(std::string_view source, std::string_view architecture)> compile = CompileDeviceCode;
};

// Safe to use from any thread.
class CompilerStamp {
 public:
  // Kept in a folder, as KeptFiles says; "": nowhere, so that the compiler is opened.
  explicit CompilerStamp(const std::string& folder, DeviceCompiler compiler = {});

  // What the compiler says of itself, or said when it was opened last. Throws as DeviceCompilerText.
  std::string Text();
  // The same of the compiler that is opened for it, and kept for others.
  std::string OpenedText();

 private:
  std::optional<std::string> KeptText() const;

  const DeviceCompiler compiler_;
  const KeptFiles kept_;
  std::mutex mutex_;
  std::string text_;  // "": nobody has asked
  bool is_opened_ = false;
};

}  // namespace stepnet
