// docs/versioning.md promises what the examples of the C++ API use.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "stepnet/io/file.h"
#include "stepnet/tests/core/source_path.h"

namespace stepnet {
namespace {

// What stands in `pattern`'s first group, wherever it matches.
std::vector<std::string> Matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> matches;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) matches.push_back((*it)[1]);
  return matches;
}

// The headers, and the folders of headers, of the list.
std::vector<std::string> Promised() {
  std::string text = ReadFile(SourcePath("docs/versioning.md"));
  text = text.substr(text.find("The C++ API is what these declare"));
  return Matches(text.substr(0, text.find("Not promised")), "`([^`]+)`");
}

bool IsPromised(const std::string& header) {
  return std::ranges::any_of(Promised(), [&](const std::string& promised) {
    return promised.ends_with("/") ? header.starts_with(promised) : header == promised;
  });
}

TEST(Examples, IncludePromisedHeadersAlone) {
  int headers = 0;
  for (const std::string example : {"cpp_api", "custom_operator"}) {
    for (const auto& file : std::filesystem::directory_iterator(SourcePath("examples/" + example))) {
      if (file.path().extension() != ".cc") continue;
      for (const std::string& header : Matches(ReadFile(file.path()), "#include \"stepnet/([^\"]+)\"")) {
        EXPECT_TRUE(IsPromised(header)) << file.path() << " includes " << header;
        ++headers;
      }
    }
  }
  EXPECT_GT(headers, 5);
}

TEST(Examples, NamePromisedHeadersInTheTableOfTheApi) {
  const std::string text = ReadFile(SourcePath("examples/cpp_api/README.md"));
  const std::vector<std::string> named = Matches(text, "`([a-z_]+/[a-z_]+\\.h)`");
  EXPECT_GT(named.size(), 5u);
  for (const std::string& header : named) EXPECT_TRUE(IsPromised(header)) << header;
}

TEST(Versioning, PromisesHeadersThatExist) {
  for (const std::string& promised : Promised()) {
    EXPECT_TRUE(std::filesystem::exists(SourcePath(promised))) << promised;
  }
}

}  // namespace
}  // namespace stepnet
