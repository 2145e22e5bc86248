#include "source_path.h"

namespace stepnet {

// The one file that knows the root: the objects of all others are the same for every checkout, so caches find them.
std::string SourcePath(const std::string& path) { return STEPNET_SOURCE_DIR "/" + path; }

}  // namespace stepnet
