// The poison device as a library that Python loads, and what has happened there.
#include "stepnet/tests/poison_device/poison_device.h"

extern "C" {

std::int64_t poison_host_waits() { return stepnet::CountsOfPoisonDevice().host_waits; }
std::int64_t poison_played() { return stepnet::CountsOfPoisonDevice().played; }
std::int64_t poison_bytes() { return stepnet::CountsOfPoisonDevice().bytes; }
std::int64_t poison_copies_from_host() { return stepnet::CountsOfPoisonDevice().copies_from_host; }
std::int64_t poison_num_orders() { return std::ssize(stepnet::OrdersOfPoisonDevice()); }
std::int64_t poison_order(std::int64_t i) { return stepnet::OrdersOfPoisonDevice().at(i); }
}
