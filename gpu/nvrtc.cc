#include "stepnet/gpu/nvrtc.h"

#include <dlfcn.h>

#include <charconv>
#include <climits>
#include <iterator>
#include <sstream>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/cuda_library.h"

namespace stepnet {
namespace {

// Bits are promised (core/expressions/expr.h), so nothing is contracted and denormals are kept. The log tells registers
// and spills.
constexpr const char* kOptions[] = {"--std=c++17",     "--fmad=false",     "--ftz=false",
                                    "--prec-div=true", "--prec-sqrt=true", "--ptxas-options=-v"};

// Newest first: code of a newer NVRTC runs on any driver that knows the GPU.
constexpr const char* kLibraryNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

// The functions of <nvrtc.h> that are used, declared here because builds without a toolkit have them too.
struct Nvrtc {
  using Program = struct ProgramStruct*;
  using Result = int;  // 0: done
  Result (*version)(int*, int*) = nullptr;
  const char* (*error_text)(Result) = nullptr;
  Result (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  Result (*destroy)(Program*) = nullptr;
  Result (*compile)(Program, int, const char* const*) = nullptr;
  Result (*log_size)(Program, size_t*) = nullptr;
  Result (*log)(Program, char*) = nullptr;
  Result (*cubin_size)(Program, size_t*) = nullptr;
  Result (*cubin)(Program, char*) = nullptr;
  std::string fault = {};  // why there is none
};

template <typename Function>
bool FindSymbol(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// NVRTC opens a part of itself by name, which the loader does not find where it does not look for NVRTC either. One
// that is open already is found.
void OpenBuiltins(void* library, const Nvrtc& nvrtc) {
  std::string folder(PATH_MAX, 0);
  int major = 0, minor = 0;
  if (dlinfo(library, RTLD_DI_ORIGIN, folder.data()) != 0 || nvrtc.version(&major, &minor) != 0) return;
  const std::string path = StrCat(folder.c_str(), "/libnvrtc-builtins.so.", major, ".", minor);
  static_cast<void>(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
}

Nvrtc OpenNvrtc() {
  Nvrtc nvrtc;
  const CudaLibrary opened =
      OpenCudaLibrary({std::begin(kLibraryNames), std::end(kLibraryNames)}, "kernels for GPUs are compiled by NVRTC",
                      "NVIDIA's package cuda-nvrtc-13-0, or nvidia-cuda-nvrtc from PyPI");
  void* const library = opened.handle;
  if (library == nullptr) {
    nvrtc.fault = opened.fault;
    return nvrtc;
  }
  const bool is_whole = FindSymbol(library, "nvrtcVersion", &nvrtc.version) &&
                        FindSymbol(library, "nvrtcGetErrorString", &nvrtc.error_text) &&
                        FindSymbol(library, "nvrtcCreateProgram", &nvrtc.create) &&
                        FindSymbol(library, "nvrtcDestroyProgram", &nvrtc.destroy) &&
                        FindSymbol(library, "nvrtcCompileProgram", &nvrtc.compile) &&
                        FindSymbol(library, "nvrtcGetProgramLogSize", &nvrtc.log_size) &&
                        FindSymbol(library, "nvrtcGetProgramLog", &nvrtc.log) &&
                        FindSymbol(library, "nvrtcGetCUBINSize", &nvrtc.cubin_size) &&
                        FindSymbol(library, "nvrtcGetCUBIN", &nvrtc.cubin);
  if (is_whole) {
    OpenBuiltins(library, nvrtc);
  } else {
    nvrtc.fault = "the NVRTC that was found is older than CUDA 11.1; install cuda-nvrtc-13-0";
  }
  return nvrtc;
}

const Nvrtc& SharedNvrtc() {
  static const Nvrtc nvrtc = OpenNvrtc();
  return nvrtc;
}

const Nvrtc& GetNvrtc() {
  const Nvrtc& nvrtc = SharedNvrtc();
  if (!nvrtc.fault.empty()) throw Error(ErrorCode::kFailed, nvrtc.fault);
  return nvrtc;
}

void Check(const Nvrtc& nvrtc, Nvrtc::Result result, const char* what) {
  if (result != 0) throw Error(ErrorCode::kFailed, StrCat("NVRTC, ", what, ": ", nvrtc.error_text(result)));
}

class OwnedProgram {
 public:
  OwnedProgram(const Nvrtc& nvrtc, const std::string& source) : nvrtc_(nvrtc) {
    Check(nvrtc, nvrtc.create(&program_, source.c_str(), "kernels.cu", 0, nullptr, nullptr), "making a program");
  }
  ~OwnedProgram() { nvrtc_.destroy(&program_); }
  OwnedProgram(const OwnedProgram&) = delete;
  OwnedProgram& operator=(const OwnedProgram&) = delete;
  Nvrtc::Program get() const { return program_; }

 private:
  const Nvrtc& nvrtc_;
  Nvrtc::Program program_ = nullptr;
};

std::string Numbered(const std::string& source) {
  std::istringstream lines(source);
  TextStream out;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) out << number << ": " << line << "\n";
  return std::move(out).str();
}

// Without the times that the assembler took, so that a source gives the same log whenever it is compiled.
std::string WithoutTimes(const std::string& log) {
  std::istringstream lines(log);
  std::string rest;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("Compile time =") == std::string::npos) rest += line + "\n";
  }
  return rest;
}

std::string LogOf(const Nvrtc& nvrtc, Nvrtc::Program program) {
  size_t size = 0;
  if (nvrtc.log_size(program, &size) != 0 || size <= 1) return "";
  std::string log(size, '\0');
  if (nvrtc.log(program, log.data()) != 0) return "";
  std::erase(log, '\0');  // at its end, and of its parts
  return WithoutTimes(log);
}

// The number before `what` in `text`; 0 where there is none.
std::int64_t NumberBefore(std::string_view text, std::string_view what) {
  const size_t end = text.find(what);
  if (end == std::string_view::npos) return 0;
  size_t begin = end;
  while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
  std::int64_t number = 0;
  std::from_chars(text.data() + begin, text.data() + end, number);
  return number;
}

bool IsOfAssembler(std::string_view line) { return line.starts_with("ptxas info") || line.starts_with("ptxas  "); }

}  // namespace

DeviceCode CompileDeviceCode(std::string_view source, std::string_view architecture) {
  const Nvrtc& nvrtc = GetNvrtc();
  const std::string text(source), target = StrCat("--gpu-architecture=", architecture);
  const OwnedProgram program(nvrtc, text);
  std::vector<const char*> options(std::begin(kOptions), std::end(kOptions));
  options.push_back(target.c_str());
  const Nvrtc::Result result = nvrtc.compile(program.get(), static_cast<int>(options.size()), options.data());
  DeviceCode code{.cubin = {}, .log = LogOf(nvrtc, program.get())};
  if (result != 0) {
    throw Error(ErrorCode::kInvalidArgument, StrCat("NVRTC does not compile kernels for ", architecture, ": ",
                                                    nvrtc.error_text(result), "\n", code.log, Numbered(text)));
  }
  size_t size = 0;
  Check(nvrtc, nvrtc.cubin_size(program.get(), &size), "size of the code");
  code.cubin.resize(size);
  Check(nvrtc, nvrtc.cubin(program.get(), code.cubin.data()), "code");
  return code;
}

std::string DeviceCompilerText() {
  const Nvrtc& nvrtc = GetNvrtc();
  int major = 0, minor = 0;
  Check(nvrtc, nvrtc.version(&major, &minor), "version");
  return StrCat("NVRTC ", major, ".", minor, " ", Join(kOptions, " "));
}

std::string DeviceCompilerFile() {
  Dl_info info = {};
  const bool is_known = dladdr(reinterpret_cast<const void*>(GetNvrtc().version), &info) != 0;
  return is_known && info.dli_fname != nullptr ? info.dli_fname : "";
}

std::string WhyNoDeviceCompiler() { return SharedNvrtc().fault; }

std::vector<KernelResources> ResourcesIn(std::string_view log) {
  constexpr std::string_view kEntry = "Compiling entry function '";
  std::vector<KernelResources> all;
  bool is_of_kernel = false;  // else of a function that kernels call
  std::istringstream lines{std::string(log)};
  for (std::string line; std::getline(lines, line);) {
    if (const size_t at = line.find(kEntry); at != std::string::npos) {
      const size_t begin = at + kEntry.size();
      all.push_back({.kernel = line.substr(begin, line.find('\'', begin) - begin)});
    }
    if (all.empty()) continue;
    if (line.find("Function properties for ") != std::string::npos) {
      is_of_kernel = line.ends_with(StrCat(" ", all.back().kernel));
    }
    if (const std::int64_t registers = NumberBefore(line, " registers")) {
      all.back().registers = static_cast<int>(registers);
    }
    if (is_of_kernel) all.back().stack_bytes += NumberBefore(line, " bytes stack frame");
    all.back().spill_bytes += NumberBefore(line, " bytes spill stores") + NumberBefore(line, " bytes spill loads");
  }
  return all;
}

std::string WarningsIn(std::string_view log) {
  std::string warnings;
  std::istringstream lines{std::string(log)};
  for (std::string line; std::getline(lines, line);) {
    if (!IsOfAssembler(line) && !line.empty()) warnings += StrCat(line, "\n");
  }
  return warnings;
}

}  // namespace stepnet
