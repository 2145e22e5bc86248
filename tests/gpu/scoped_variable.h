// A variable of the environment for a while.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace stepnet {

// A variable of the environment, as it was when this object goes.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* old = getenv(name)) old_ = old;
    Set(value);
  }
  ~ScopedVariable() { Set(old_ ? old_->c_str() : nullptr); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  void Set(const char* value) const { value == nullptr ? unsetenv(name_) : setenv(name_, value, 1); }
  const char* name_;
  std::optional<std::string> old_;
};

}  // namespace stepnet
