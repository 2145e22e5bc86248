// device_code.cuh as text: CMake writes it between the signs of a raw string.
#include "stepnet/gpu/region_source.h"

namespace stepnet {
namespace {

constexpr char kDeviceCode[] =
#include "stepnet/gpu/device_code.inc"
    ;

}  // namespace

std::string_view DeviceCodeText() { return {kDeviceCode, sizeof(kDeviceCode) - 1}; }

}  // namespace stepnet
