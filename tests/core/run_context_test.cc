#include "stepnet/core/run_context.h"

#include <cstring>
#include <limits>

#include "stepnet/core/scoped_value.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

TEST(Scratch, GivesMemoryThatDoesNotOverlap) {
  Scratch scratch;
  for (int run = 0; run < 3; ++run) {
    std::vector<std::pair<char*, int>> parts;
    for (const int bytes : {1, 1000, 0, 63, 64, 65, 100000}) {
      auto* data = static_cast<char*>(scratch.Get(bytes));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0u);
      std::memset(data, static_cast<int>(parts.size()), static_cast<size_t>(bytes));
      parts.emplace_back(data, bytes);
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      for (int k = 0; k < parts[i].second; ++k) ASSERT_EQ(parts[i].first[k], static_cast<char>(i));
    }
    scratch.Reset();
  }
}

TEST(Scratch, KeepsItsMemory) {
  Scratch scratch;
  scratch.Get(100);
  scratch.Get(100000);
  scratch.Reset();
  const void* first = scratch.Get(100);
  scratch.Reset();
  EXPECT_EQ(scratch.Get(100), first);
}

TEST(Scratch, RefusesSizesWithoutSense) {
  Scratch scratch;
  ExpectError([&] { scratch.Get(-1); }, "out of memory: -1 bytes of scratch memory");
  ExpectError([&] { scratch.Get(std::numeric_limits<std::int64_t>::max()); },
              "out of memory: 9223372036854775807 bytes of scratch memory");
  EXPECT_THROW(scratch.Get(std::int64_t{1} << 61), Error);
  EXPECT_NE(scratch.Get(10), nullptr);
}

TEST(RunContext, KernelsReadTheNumberOfTheRunWhenTheyRun) {
  std::uint64_t number = 3;
  RunContext context;
  EXPECT_EQ(context.RunNumber(), 0u);
  context.run = &number;
  context.PrepareLanes(2);
  const OpRun run({}, {}, context.lanes[1]);  // which may run again without being made again
  const std::uint32_t word = run.Random(/*seed=*/1, /*id=*/2).Word(0);
  EXPECT_EQ(word, RandomStream(1, 2, 3, 0).Word(0));
  number = 4;
  EXPECT_EQ(run.Random(1, 2).Word(0), RandomStream(1, 2, 4, 0).Word(0));
  EXPECT_NE(run.Random(1, 2).Word(0), word);
}

TEST(RunContext, FaultsAreNotedWhereTheContextSaysAndByLanesToo) {
  FaultRecord record;
  RunContext context;
  {
    const ScopedValue<FaultRecord*> noted(context.faults, &record);
    context.PrepareLanes(1);
    const Shape shape({3});
    const std::vector<TensorView> inputs = {{nullptr, &shape, DType::kInt32}};
    OpRun(inputs, {}, context.lanes[0]).Fault(0, 2, [](std::int64_t element) {
      return Error(ErrorCode::kInvalidArgument, StrCat("element ", element));
    });
  }
  EXPECT_EQ(context.faults, nullptr);
  EXPECT_EQ(record.Take()->error.message(), "element 2");
}

}  // namespace
}  // namespace stepnet
