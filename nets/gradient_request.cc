#include "stepnet/nets/gradient_request.h"

#include <algorithm>
#include <iterator>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr GradientRequest kRequests[] = {GradientRequest::kWrite, GradientRequest::kAdd, GradientRequest::kNone};

}  // namespace

const char* GradientRequestName(GradientRequest request) {
  switch (request) {
    case GradientRequest::kWrite: return "write";
    case GradientRequest::kAdd: return "add";
    default: return "none";
  }
}

GradientRequest ParseGradientRequest(std::string_view name, const std::string& where) {
  for (const GradientRequest request : kRequests) {
    if (name == GradientRequestName(request)) return request;
  }
  throw Error(ErrorCode::kInvalidArgument, StrCat(where, " \"", name, "\"; it must be write, add or none",
                                                  name == "null" ? ", which is MXNet's null" : ""));
}

std::vector<std::string> AskedFor(const std::vector<std::string>& inputs, const GradientRequests& requests) {
  for (const auto& [name, request] : requests) {
    if (std::ranges::count(inputs, name) > 0) continue;
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("gradient_requests says ", GradientRequestName(request), " for \"", name,
                       "\", by which no gradient is made", DidYouMean(name, inputs), "; gradients are by ",
                       inputs.empty() ? "nothing" : Join(inputs, ", ")));
  }
  std::vector<std::string> asked;
  std::ranges::copy_if(inputs, std::back_inserter(asked), [&](const std::string& input) {
    const auto found = requests.find(input);
    return found == requests.end() || found->second != GradientRequest::kNone;
  });
  return asked;
}

}  // namespace stepnet
