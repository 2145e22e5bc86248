// Runs of printed regions, on a GPU or on the CPU, against the definition.
#pragma once

#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "stepnet/gpu/region_source.h"

namespace stepnet {

struct PrintedRegion {
  Region region;
  RegionSource source;
  std::shared_ptr<const FaultMessages> messages = FaultMessagesOf(source.requirements);
};

// Prints them as kernels of names that differ, so that they can be compiled together.
std::vector<PrintedRegion> PrintedOf(const std::vector<Region>& regions, RegionSourceOptions options = {});
// Every primitive of every dtype, over odd numbers.
std::vector<Region> PrimitiveRegions();

class RegionRunner {
 public:
  virtual ~RegionRunner() = default;
  // Makes the kernels ready that are run next. REQUIRES: their names differ.
  virtual void Compile(std::span<const PrintedRegion> printed) = 0;
  // Runs one of those; pointers are to memory of the host, as EvaluateRegion has them.
  virtual void Run(const PrintedRegion& printed, std::span<const void* const> inputs, std::span<void* const> outputs,
                   DeviceFault* fault) = 0;
};

// Where runs say that faults are.
inline constexpr std::int64_t kStepOfTests = 70000;
inline constexpr std::int64_t kInstructionOfTests = 12;
DeviceFaultSite SiteOfTests(const PrintedRegion& printed);

// "", or a number that is loaded from 16 bits or stored in them otherwise than core/tensor.h says: of every float16 and
// bfloat16, and of floats around each.
std::string FirstWrongConversion(RegionRunner& runner);
// "", or where what a runner gives differs from the definition, with the region and its kernels.
std::string DifferenceFromDefinition(const PrintedRegion& printed, unsigned seed, RegionRunner& runner);
// The same of many, compiled together; the first difference.
std::string FirstDifference(std::span<const PrintedRegion> printed, RegionRunner& runner);

// Compiled as C++ for the CPU by the compiler of this machine.
class HostRegionRunner : public RegionRunner {
 public:
  HostRegionRunner() = default;
  ~HostRegionRunner() override;
  // "" or why there are no such runs here.
  static std::string WhyNot();
  void Compile(std::span<const PrintedRegion> printed) override;
  void Run(const PrintedRegion& printed, std::span<const void* const> inputs, std::span<void* const> outputs,
           DeviceFault* fault) override;

 private:
  void* Symbol(const std::string& name) const;
  void* library_ = nullptr;
};

}  // namespace stepnet
