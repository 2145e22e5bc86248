#include "stepnet/gpu/cuda_library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "scoped_variable.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/core/temp_dir.h"

namespace stepnet {
namespace {

TEST(CudaLibrary, OpensTheFirstThatThereIs) {
  const CudaLibrary library = OpenCudaLibrary({"libnowhere.so.1", "libm.so.6"}, "", "");
  EXPECT_NE(library.handle, nullptr);
  EXPECT_EQ(library.fault, "");
}

// Also where profilers have theirs.
TEST(CudaLibrary, LooksWhereToolkitsHaveTheirs) {
  Dl_info info = {};
  ASSERT_NE(dladdr(dlsym(OpenCudaLibrary({"libm.so.6"}, "", "").handle, "cbrt"), &info), 0);
  for (const char* folder : {"lib64", "lib", "extras/CUPTI/lib64"}) {
    const TempDir home;
    std::filesystem::create_directories(home.Path(folder));
    std::filesystem::create_symlink(std::filesystem::canonical(info.dli_fname),
                                    home.Path(StrCat(folder, "/libnowhere.so.1")));
    const ScopedVariable variable("CUDA_HOME", home.path().c_str());
    EXPECT_EQ(OpenCudaLibrary({"libnowhere.so.1"}, "", "").fault, "") << folder;
  }
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
