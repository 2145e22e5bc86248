// Error: the one exception that StepNet throws.
//
// Whoever finds a fault says *what* is wrong (code and message); each layer that the exception passes on its way out
// adds the part of *where* that it alone knows (At). No layer rewrites the message.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace stepnet {

enum class ErrorCode {
  kInvalidArgument,  // an argument, option or call has a value that is not allowed
  kInvalidNet,       // a net is malformed: unknown operator, missing blob, bad arity, inconsistent links
  kShapeMismatch,    // tensors whose shapes do not fit together
  kTypeMismatch,     // a tensor of a dtype that is not supported here, or a blob that holds something else
  kInputOutput,      // a file cannot be read, written or parsed
  kOutOfMemory,      // an allocation beyond the limit (SetMemoryLimit) or beyond what the system gives
  kCancelled,        // somebody asked the run to stop, or its time was over
  kFailed,           // an operator threw an exception that is not an Error
  kInternal,         // a bug in StepNet
  kSyntaxError,      // the text of a cell does not follow the grammar, or uses a name that means nothing there
};

// "shape mismatch", "input/output error", …
const char* ErrorCodeName(ErrorCode code);

// Where a fault was met. Empty fields are left out of the text.
struct Place {
  std::string file = {};
  std::string net = {};
  int op_index = -1;         // index in NetDef.op
  std::string op_text = {};  // "y = FC(x, w, b)"
  std::string blobs = {};    // "x float [32, 64], w float [256, 128]": what the operator was given
  std::int64_t step = -1;    // of a sequence, from 0
};

class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message);

  // Adds a place outside those that are already known and returns *this, so that a catch block can
  // `throw error.At({...})`.
  Error& At(Place place);

  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::vector<Place>& places() const { return places_; }  // innermost first

  // The message with its code, then a line or two a place:
  //   shape mismatch: x is [32, 64] and w is [256, 128]; FC needs x [N, D] and w [H, D]
  //     at op 0 `gates = FC(x, w, b)` with x float [32, 64], w float [256, 128], b float [256]
  //     in net "lstm_cell", step 0
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  ErrorCode code_;
  std::string message_;
  std::vector<Place> places_;
  std::string text_;
};

// The exception in flight as an Error: itself when it is one, kOutOfMemory for std::bad_alloc, otherwise kFailed with
// its what(). To be called in a catch block. Throws std::bad_alloc where there is no memory for the message.
Error CurrentError();

}  // namespace stepnet
