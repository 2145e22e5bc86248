// Bytes as a binary NetDef: parsed, checked, and run under all conditions that must not matter.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

#include "damage.h"
#include "fault.h"
#include "stepnet/core/error.h"
#include "stepnet/io/proto_io.h"
#include "trials.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

// Bytes that still parse are often damaged as a net, others as bytes.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int seed) {
  std::mt19937 random(seed);
  stepnet::NetDef net;
  if (random() % 4 == 0 || !net.ParseFromArray(data, static_cast<int>(size))) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  for (unsigned k = 1 + random() % 3; k > 0; --k) stepnet::Damage(&net, random);
  const std::string bytes = net.SerializePartialAsString();
  if (bytes.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::ranges::copy(bytes, data);
  return bytes.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  stepnet::NetDef net;
  try {
    stepnet::ParseMessageBytes({reinterpret_cast<const char*>(data), size}, "fuzz", &net);
  } catch (const stepnet::Error&) {
    return 0;
  }
  std::mt19937 random(static_cast<unsigned>(size));
  stepnet::AbortAtFault(stepnet::TryNet(net, {}, random));
  return 0;
}
