// Libraries of CUDA, opened when a program runs: it starts, and is built, where they are not.
#pragma once

#include <string>
#include <vector>

namespace stepnet {

struct CudaLibrary {
  void* handle = nullptr;  // null: it was not found
  std::string fault = {};  // then: what the loader says, and what to install
  std::string name = {};   // by which it was found

  // Finds the function `name_of_function` of the library, which was found. Throws kFailed where it has none.
  template <typename Function>
  void Find(const char* name_of_function, Function* function) const {
    *function = reinterpret_cast<Function>(AddressOf(name_of_function));
  }

 private:
  void* AddressOf(const char* name_of_function) const;
};

// Opens the first of the libraries `names`, "libnvrtc.so.13", that the loader finds, or that lies with the CUDA of
// $CUDA_HOME, $CUDA_PATH or /usr/local/cuda. `purpose` begins the message, "kernels for GPUs are compiled by NVRTC";
// `packages` are those that bring the library.
CudaLibrary OpenCudaLibrary(const std::vector<std::string>& names, const std::string& purpose,
                            const std::string& packages);

}  // namespace stepnet
