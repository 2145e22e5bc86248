// Calls from Python into C++ that take long: without the GIL, and Ctrl-C ends them.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <optional>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/error.h"

namespace stepnet::python {

// Remembers which thread handles signals. To be called once, when the module is imported. Needs the GIL.
void InitCalls();

// Whether the calling thread is the one in which Python handles signals.
bool HandlesSignals();

// While it lives the calling thread has not the GIL. Needs the GIL.
//
// A thread that outlives the interpreter must not ask for the GIL any more: Python would end it in the midst of C++.
class WithoutGil {
 public:
  // Throws kInvalidArgument in a thread that works under a Cancellation: Python's code that was called from there must
  // not use what the run has half done. Once EndCalls has been called it throws kCancelled in the thread that handles
  // signals, and does not return in others.
  explicit WithoutGil(Cancellation* cancellation);
  // Does not return once EndCalls has been called: the thread waits for the end of the process.
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  Cancellation* const cancellation_;
  PyThreadState* state_;
};

// To be called before the interpreter ends: cancels all calls, and waits until none is under way. Needs the GIL.
void EndCalls();

// Calls `work` without the GIL. In the thread that handles signals they are handled meanwhile: what a handler raises,
// as KeyboardInterrupt, asks the work to stop and is raised when it has. Needs the GIL.
template <typename Work>
auto CallWithoutGil(const Work& work) {
  std::optional<nanobind::python_error> raised;
  const std::function<bool()> look = [&raised] {
    const nanobind::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() == 0) return false;
    raised.emplace();
    return true;
  };
  try {
    Cancellation cancellation(HandlesSignals() ? look : std::function<bool()>());
    const WithoutGil without_gil(&cancellation);
    const CancellationScope scope(&cancellation);
    return work();
  } catch (const Error&) {
    if (raised) throw std::move(*raised);
    throw;
  }
}

// The exceptions of stepnet.errors for what C++ throws. Needs the GIL.
void TranslateErrors();

}  // namespace stepnet::python
