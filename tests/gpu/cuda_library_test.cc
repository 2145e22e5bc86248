#include "stepnet/gpu/cuda_library.h"

#include <gtest/gtest.h>

namespace stepnet {
namespace {

TEST(CudaLibrary, OpensTheFirstThatThereIs) {
  const CudaLibrary library = OpenCudaLibrary({"libnowhere.so.1", "libm.so.6"}, "", "");
  EXPECT_NE(library.handle, nullptr);
  EXPECT_EQ(library.fault, "");
}

TEST(CudaLibrary, SaysWhatToInstall) {
  const CudaLibrary library = OpenCudaLibrary({"libnowhere.so.1", "libnowhere.so"}, "work is done by it", "nowhere-1");
  EXPECT_EQ(library.handle, nullptr);
  EXPECT_EQ(library.fault,
            "work is done by it, which was not found (libnowhere.so.1: cannot open shared object file: No such file or "
            "directory); install nowhere-1, and set CUDA_HOME or LD_LIBRARY_PATH to where it is");
}

}  // namespace
}  // namespace stepnet
