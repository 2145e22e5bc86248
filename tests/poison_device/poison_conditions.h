// What tests ask of poison devices: in which order queues go on, and what fails.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <random>

#include "poison_device.h"

namespace stepnet {

// What tests ask of all poison devices, and what guards their queues: work of one may be done while another is used.
struct PoisonConditions {
  std::mutex mutex;
  std::optional<std::mt19937> order;  // by which queues go on
  std::optional<PoisonFault> fault;   // of private:0
  std::int64_t before_fault = 0;      // that do not fail
};

PoisonConditions& ThePoisonConditions();

}  // namespace stepnet
