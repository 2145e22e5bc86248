// Standard output that remembers why it could not be written.
#pragma once

#include <streambuf>
#include <vector>

namespace stepnet::runner {

// While it lives, std::cout writes through it.
class StandardOutput : public std::streambuf {
 public:
  StandardOutput();
  ~StandardOutput() override;

  // Writes what has been printed so far. Throws kInputOutput when that or an earlier part could not be written.
  void Flush();

 protected:
  int_type overflow(int_type c) override;
  int sync() override;

 private:
  std::streambuf* before_;
  std::vector<char> buffer_;
  int fault_ = 0;  // errno of the first write that failed
};

}  // namespace stepnet::runner
