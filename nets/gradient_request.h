// What becomes of a gradient: gradient_requests, which MXNet calls grad_req.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace stepnet {

enum class GradientRequest {
  kWrite,  // it is written to its blob
  kAdd,    // it is added to what its blob holds
  kNone    // it is not computed, and its blob stays as it is
};

// These are for some inputs, by name; the gradients of others are written.
using GradientRequests = std::map<std::string, GradientRequest>;

// The request that is called "write", "add" or "none". Throws kInvalidArgument for other names; `where` begins the
// message.
GradientRequest ParseGradientRequest(std::string_view name, const std::string& where);

const char* GradientRequestName(GradientRequest request);

// Returns the inputs whose gradients are asked for. Throws kInvalidArgument for requests of what is none of `inputs`.
std::vector<std::string> AskedFor(const std::vector<std::string>& inputs, const GradientRequests& requests);

}  // namespace stepnet
