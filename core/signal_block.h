// SignalBlock: threads that are made while it lives are never chosen to handle a signal of the process.
//
// A library's threads leave signals to those of the program. Kernels have one more reason: code that oneDNN generates
// uses the stack pointer for other things, so a handler must not run on the stack of a thread that computes, unless it
// has one of its own (SA_ONSTACK).
#pragma once

#include <pthread.h>

#include <csignal>

namespace stepnet {

class SignalBlock {
 public:
  SignalBlock() {
    sigset_t signals;
    sigfillset(&signals);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&signals, fault);
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
  }
  ~SignalBlock() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

 private:
  sigset_t before_;
};

}  // namespace stepnet
