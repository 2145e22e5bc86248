// What the checks of nets find.
#pragma once

#include <string>

namespace stepnet {

// Something wrong with a net, found without running it. A check of one operator fills in the message alone.
struct NetProblem {
  std::string net = {};
  int op_index = -1;  // -1: the net itself has it
  std::string op_text = {};
  std::string message = {};

  std::string Text() const;  // `net "lstm", op 3 `y = FC(x, w, b)`: message`
};

}  // namespace stepnet
