// What kernels of a GPU say of bad values: kept while a fault may still be reported, and not for ever.
#include <gtest/gtest.h>

#include <array>

#include "kernel_cases.h"
#include "stepnet/core/run_context.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/kernel_fault.h"
#include "stepnet/tests/poison_device/poison_device.h"

namespace stepnet {
namespace {

std::array<Expr, 2> RequirementsOf(int rows) {
  return {RequirementOf(StrCat("{} is none of ", rows, " rows"), {DType::kInt64}),
          RequirementOf(StrCat("{} and {} are the same of ", rows, " rows"), {DType::kInt64, DType::kInt64})};
}
std::shared_ptr<const FaultMessages> MessagesOf(int rows) { return FaultMessagesOf(RequirementsOf(rows)); }

// More than are kept that nobody holds.
void MakeManyOthers() {
  for (int rows = 1'000'000; rows < 1'002'000; ++rows) MessagesOf(rows);
}

// As a kernel notes it at step 3.
DeviceFault Noted(std::uint64_t number) {
  const DeviceFaultSite site = DeviceFaultSite::Of({.first_step = 3}, nullptr, 0);
  return {.place = ~site.place, .element = ~std::uint64_t{5}, .requirement = number, .values = {7, 8}};
}
std::string TextOf(std::uint64_t number) { return FaultOf(Noted(number)).error.message(); }

TEST(FaultMessages, AreThoseOfTheKernelThatHasTheNumber) {
  const auto a = MessagesOf(1), b = MessagesOf(2);
  EXPECT_EQ(a, MessagesOf(1)) << "one for all who hold them";
  EXPECT_EQ(TextOf(a->first()), "7 is none of 1 rows");
  EXPECT_EQ(TextOf(a->first() + 1), "7 and 8 are the same of 1 rows");
  EXPECT_EQ(TextOf(b->first()), "7 is none of 2 rows");
  EXPECT_EQ(TextOf(b->first() + 1), "7 and 8 are the same of 2 rows");
}

TEST(FaultMessages, StayWhileSomebodyHoldsThem) {
  const auto held = MessagesOf(3);
  MakeManyOthers();
  EXPECT_EQ(TextOf(held->first() + 1), "7 and 8 are the same of 3 rows");
}

TEST(FaultMessages, ThatAreGoneAreSaidToBe) {
  const std::uint64_t gone = MessagesOf(4)->first();
  MakeManyOthers();
  for (const std::uint64_t number : {gone, gone + 1, ~std::uint64_t{0}}) {
    const Fault fault = FaultOf(Noted(number));
    EXPECT_EQ(fault.place.step, 3);
    EXPECT_EQ(fault.place.element, 5);
    EXPECT_EQ(fault.error.message(),
              "a value is not allowed, and what is to be said of it went with the kernel that found it; a run on the "
              "CPU says it");
  }
  EXPECT_GT(MessagesOf(4)->first(), gone + 1) << "no number is given again";
}

// Requirements are expressions: each that is kept counts.
TEST(FaultMessages, OfEverNewSizesAreGivenUp) {
  constexpr int kSizes = 3000, kMaxKept = 600;
  const std::int64_t before = NumExprNodes();
  for (int rows = 1; rows <= kSizes; ++rows) {
    KernelCase gather;
    gather.def.set_type("Gather");
    for (const char* input : {"data", "indices"}) gather.def.add_input(input);
    gather.def.add_output("y");
    gather.inputs = {Tensor::Zeros(DType::kFloat, {rows, 1}), Tensor::Of<std::int64_t>({1}, {rows})};
    const KernelResult found = RunKernel(gather, kHandWrittenOnHost, {});
    ASSERT_EQ(found.fault,
              StrCat("element 0: Gather: element 0 of the indices is ", rows, "; the data have ", rows, " rows"));
  }
  EXPECT_LT(NumExprNodes() - before, kMaxKept);
}

// A kernel of a run on a device is gone when the host looks at what it has found.
TEST(FaultMessages, StayUntilTheHostHasLooked) {
  DeviceRuntime& device = RuntimeOf(kPoisonDevice);
  DeviceLateFaults late_faults(device);
  RunContext context;
  context.UseDevice(kPoisonDevice);
  context.late_faults = &late_faults;
  context.site = {.net_op = 2, .first_step = 4, .op = 6};
  const OpRun run({}, {}, context);
  const auto note = [&](int rows) {
    const std::array<Expr, 2> requirements = RequirementsOf(rows);
    const KernelFault fault(run, std::vector<Expr>(requirements.begin(), requirements.end()), 1);
    const DeviceFault noted = {.place = ~fault.site().place,
                               .element = ~std::uint64_t{0},
                               .requirement = fault.site().messages,
                               .values = {7}};
    device.queue().CopyFromHost(&noted, fault.record(), sizeof(noted));
    return fault.site().messages;
  };
  const std::uint64_t number = note(5);
  MakeManyOthers();
  const std::optional<LateFaults::Found> found = late_faults.Take();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->net_op, 2);
  EXPECT_EQ(found->fault.place.step, 4);
  EXPECT_EQ(found->fault.error.message(), "7 is none of 5 rows");
  MakeManyOthers();
  EXPECT_NE(TextOf(number), "7 is none of 5 rows") << "nobody needs it any more";
  EXPECT_FALSE(late_faults.Take());
}

}  // namespace
}  // namespace stepnet
