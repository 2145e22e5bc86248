#include "stepnet/python/src/calls.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "stepnet/python/src/arrays.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

unsigned long signal_thread = 0;

// What is under way without the GIL.
struct CallsUnderWay {
  std::mutex mutex;
  std::condition_variable fewer;
  std::vector<Cancellation*> calls;
  bool are_ending = false;

  void Remove(Cancellation* call) {
    std::erase(calls, call);
    if (are_ending) fewer.notify_all();
  }
};

// Never destroyed: threads may wait in it when the process ends.
CallsUnderWay* under_way = new CallsUnderWay;
CallsUnderWay& UnderWay() { return *under_way; }

// A process that was forked has one thread, which handles its signals: the calls of others are not under way in it.
void ForgetCalls() {
  under_way = new CallsUnderWay;
  signal_thread = PyThread_get_thread_ident();
}

[[noreturn]] void WaitForTheEnd() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

void Raise(const Error& error) {
  try {
    const nb::object exception =
        nb::module_::import_("stepnet.errors").attr("exception_of")(ErrorCodeName(error.code()), StrOf(error.what()));
    PyErr_SetObject(exception.type().ptr(), exception.ptr());
  } catch (nb::python_error& failed) {
    failed.restore();
  }
}

}  // namespace

void InitCalls() {
  pthread_atfork(nullptr, nullptr, ForgetCalls);
  signal_thread = nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident"));
}

bool HandlesSignals() { return PyThread_get_thread_ident() == signal_thread; }

WithoutGil::WithoutGil(Cancellation* cancellation) : cancellation_(cancellation) {
  if (CurrentCancellation() != nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "this thread is in a call already, which called back: a signal handler cannot run a cell or a net");
  }
  bool are_ending;
  {
    const std::lock_guard lock(UnderWay().mutex);
    are_ending = UnderWay().are_ending;
    if (!are_ending) UnderWay().calls.push_back(cancellation);
  }
  // What else is to be done at the end of the program is done by the thread that handles signals; it must not wait.
  if (are_ending && HandlesSignals()) throw Error(ErrorCode::kCancelled, "the interpreter is about to end");
  state_ = PyEval_SaveThread();
  if (are_ending) WaitForTheEnd();
}

WithoutGil::~WithoutGil() {
  {
    const std::lock_guard lock(UnderWay().mutex);
    if (UnderWay().are_ending) {
      UnderWay().Remove(cancellation_);
      state_ = nullptr;
    }
  }
  if (state_ == nullptr) WaitForTheEnd();
  PyEval_RestoreThread(state_);
  const std::lock_guard lock(UnderWay().mutex);
  UnderWay().Remove(cancellation_);
}

void EndCalls() {
  const nb::gil_scoped_release no_gil;  // those that are about to have it may
  std::unique_lock lock(UnderWay().mutex);
  UnderWay().are_ending = true;
  for (Cancellation* call : UnderWay().calls) call->Cancel();
  UnderWay().fewer.wait(lock, [] { return UnderWay().calls.empty(); });
}

void TranslateErrors() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      Raise(error);
    } catch (const std::bad_alloc&) {
      Raise(CurrentError());
    }
  });
}

}  // namespace stepnet::python
