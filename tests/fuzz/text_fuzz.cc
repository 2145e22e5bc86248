// Bytes as the text of a NetDef: what parses is printed, parsed again and must be the same net.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "stepnet/core/error.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/proto/net.pb.h"
#include "text_mutator.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  stepnet::NetDef net;
  try {
    stepnet::ParseMessageText({reinterpret_cast<const char*>(data), size}, "fuzz", &net);
  } catch (const stepnet::Error&) {
    return 0;
  }
  stepnet::NetDef again;
  stepnet::ParseMessageText(stepnet::PrintMessageText(net), "printed", &again);
  if (again.SerializeAsString() != net.SerializeAsString()) std::abort();
  stepnet::CheckNet(net);
  return 0;
}
