// NVRTC: CUDA C++ to machine code while a program runs. No GPU is needed, and no toolkit when this is built: the
// library is opened when it is first asked for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stepnet {

// What a kernel takes of the GPU, as the assembler says.
struct KernelResources {
  std::string kernel;
  int registers = 0;
  std::int64_t stack_bytes = 0;
  std::int64_t spill_bytes = 0;  // that registers are stored in memory for, and loaded
};

struct DeviceCode {
  std::string cubin;
  std::string log;  // what the compiler said
};

// Compiles `source` for an architecture: "sm_80", "sm_90a". Safe to call from any thread. Throws kInvalidArgument with
// NVRTC's log and the source, numbered, where it does not compile; kFailed where there is no NVRTC, naming what to
// install.
DeviceCode CompileDeviceCode(std::string_view source, std::string_view architecture);

// Options beside the architecture, and the compiler, as text: part of the key of what is kept. Throws as above.
std::string DeviceCompilerText();
// The file that NVRTC was opened from; "" where the loader does not tell. Throws as above.
std::string DeviceCompilerFile();
// "" or why there is no NVRTC.
std::string WhyNoDeviceCompiler();

// What a log says of each kernel, and what it says beside that: warnings.
std::vector<KernelResources> ResourcesIn(std::string_view log);
std::string WarningsIn(std::string_view log);

}  // namespace stepnet
