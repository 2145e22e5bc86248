// What tests compare errors by.
#pragma once

#include <functional>
#include <string>

#include "stepnet/core/error.h"

namespace stepnet {

// The text of the Error that the action throws, or "no error".
inline std::string ErrorOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace stepnet
