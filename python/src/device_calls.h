// Calls that run on a device, in order with what others do there.
#pragma once

#include <memory>
#include <utility>

#include "stepnet/python/src/arrays.h"
#include "stepnet/python/src/calls.h"

namespace stepnet::python {

// While it lives the device's queue is part of the order of `place.stream`, where there is one: it comes
// behind what the stream was given before, and what the stream is given afterwards comes behind the queue, whatever was
// thrown meanwhile. What the thread has chosen in the device's own library is as before in the end.
class InOrderOf {
 public:
  explicit InOrderOf(const ArrayPlace& place);
  ~InOrderOf();
  InOrderOf(const InOrderOf&) = delete;
  InOrderOf& operator=(const InOrderOf&) = delete;
  // The end of the order, for what went well. Throws what LetWait throws.
  void End();

 private:
  std::shared_ptr<void> thread_;
  Queue* queue_ = nullptr;  // null: there is no stream, or no longer
  StreamId stream_ = 0;
};

// CallWithoutGil of what works on arrays that may lie in `place`.
template <typename Work>
auto CallOnDevice(const ArrayPlace& place, const Work& work) {
  return CallWithoutGil([&] {
    InOrderOf order(place);
    auto result = work();
    order.End();
    return result;
  });
}

}  // namespace stepnet::python
