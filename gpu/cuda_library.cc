#include "stepnet/gpu/cuda_library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// In which toolkits have libraries: packages of NVIDIA, of PyPI, and what profilers use.
constexpr const char* kFolders[] = {"/lib64/", "/lib/", "/extras/CUPTI/lib64/"};

}  // namespace

void* CudaLibrary::AddressOf(const char* name_of_function) const {
  void* const address = dlsym(handle, name_of_function);
  if (address == nullptr) throw Error(ErrorCode::kFailed, StrCat(name, " has no function ", name_of_function));
  return address;
}

CudaLibrary OpenCudaLibrary(const std::vector<std::string>& names, const std::string& purpose,
                            const std::string& packages) {
  std::vector<std::string> folders = {""};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* home = std::getenv(variable); home != nullptr && *home != 0) {
      for (const char* sub : kFolders) folders.push_back(StrCat(home, sub));
    }
  }
  for (const char* sub : kFolders) folders.push_back(StrCat("/usr/local/cuda", sub));
  CudaLibrary library;
  for (const std::string& folder : folders) {
    for (const std::string& name : names) {
      library.handle = dlopen(StrCat(folder, name).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library.handle != nullptr) return {.handle = library.handle, .name = name};
      if (library.fault.empty()) library.fault = dlerror();
    }
  }
  library.fault = StrCat(purpose, ", which was not found (", library.fault, "); install ", packages,
                         ", and set CUDA_HOME or LD_LIBRARY_PATH to where it is");
  return library;
}

}  // namespace stepnet
