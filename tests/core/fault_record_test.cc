#include "stepnet/core/fault_record.h"

#include <thread>
#include <vector>

#include "stepnet/core/strings.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

Error NamedError(int i) { return Error(ErrorCode::kInvalidArgument, StrCat("fault ", i)); }

TEST(FaultRecord, KeepsTheFirstByStepOperatorAndElement) {
  const std::vector<FaultPlace> ascending = {{.step = -1, .op = 9, .element = 9},
                                             {.step = 2, .op = 0, .element = 7},
                                             {.step = 2, .op = 1, .element = 0},
                                             {.step = 2, .op = 1, .element = 3},
                                             {.step = 3, .op = 0, .element = 0}};
  for (size_t first = 0; first < ascending.size(); ++first) {
    for (const bool reversed : {false, true}) {
      FaultRecord record;
      EXPECT_FALSE(record.any());
      int made = 0;
      for (size_t k = first; k < ascending.size(); ++k) {
        const size_t i = reversed ? ascending.size() - 1 - (k - first) : k;
        record.Note(ascending[i], [&] {
          ++made;
          return NamedError(static_cast<int>(i));
        });
      }
      EXPECT_TRUE(record.any());
      EXPECT_EQ(made, reversed ? static_cast<int>(ascending.size() - first) : 1);
      ExpectError([&] { record.Throw(); }, StrCat("invalid argument: fault ", first));
      EXPECT_FALSE(record.any());
      record.Throw();  // nothing
    }
  }
}

TEST(FaultRecord, OfOnePlaceKeepsWhatWasNotedFirst) {
  FaultRecord record;
  record.Note({}, [] { return NamedError(1); });
  record.Note({}, [] { return NamedError(2); });
  EXPECT_EQ(record.Take()->error.message(), "fault 1");
  EXPECT_FALSE(record.Take());
}

TEST(FaultRecord, IsTheSameWhateverTheThreadsDo) {
  for (int round = 0; round < 20; ++round) {
    FaultRecord record;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&record, thread] {
        for (int i = 1000; i > 0; --i)
          record.Note({.element = i * 4 + thread}, [&] { return NamedError(i * 4 + thread); });
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(record.Take()->error.message(), "fault 4");
  }
}

}  // namespace
}  // namespace stepnet
