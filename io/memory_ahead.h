// MemoryAhead: takes memory of tensors from the system while another thread fills them from a file.
//
// The system gives pages when they are first written, each by an interruption of whoever writes, which costs more than
// the copy from its cache of files does. Large pages are 512 times as few. Taken in one go, from a thread of their own,
// small ones cost the reader nothing either.
#pragma once

#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "stepnet/core/system_memory.h"
#include "stepnet/core/tensor.h"

namespace stepnet {

// Takes the pages of `places`, tensors of the host, one place after the other until `stop` asks for an end. What they
// hold stays, also what others write meanwhile. Where the system has no such call (before Linux 5.14), or no memory,
// nothing happens.
void TakeMemory(std::span<const Tensor> places, const std::stop_token& stop);

// Asks the system for large pages, or for small ones where large ones would have to come from the host of a virtual
// machine, and calls TakeMemory on a thread, for as long as this lives. Undefined places are none. Where they are few
// bytes, nothing happens; where no thread can be had, the reader takes the memory.
class MemoryAhead {
 public:
  explicit MemoryAhead(std::vector<Tensor> places, bool in_large_pages = !GivesFreeMemoryToHost());

 private:
  std::vector<Tensor> places_;
  std::jthread thread_;  // the last member: it reads the others
};

}  // namespace stepnet
