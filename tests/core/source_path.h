// Where the project's own files are, for tests that read them.
#pragma once

#include <string>

namespace stepnet {

// `path`, relative to the root of the checkout that the tests were built from.
std::string SourcePath(const std::string& path);

}  // namespace stepnet
