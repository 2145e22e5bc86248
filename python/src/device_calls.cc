#include "stepnet/python/src/device_calls.h"

namespace stepnet::python {

InOrderOf::InOrderOf(const ArrayPlace& place) {
  if (place.device.IsHost()) return;
  DeviceRuntime& runtime = RuntimeOf(place.device);
  thread_ = runtime.MakeCurrent();
  if (!place.stream) return;
  runtime.queue().WaitFor(*place.stream);
  queue_ = &runtime.queue();
  stream_ = *place.stream;
}

InOrderOf::~InOrderOf() {
  try {
    End();
  } catch (...) {  // something else is on its way already
  }
}

void InOrderOf::End() {
  if (Queue* const queue = std::exchange(queue_, nullptr)) queue->LetWait(stream_);
}

}  // namespace stepnet::python
