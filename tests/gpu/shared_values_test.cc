// Values that are made once, shared while somebody holds them, and given up beyond a number of unused ones.
#include "stepnet/gpu/shared_values.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// Writes down that it goes.
class Noted {
 public:
  Noted(std::string name, std::string* gone) : name_(std::move(name)), gone_(gone) {}
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;
  ~Noted() { *gone_ += name_; }
  const std::string& name() const { return name_; }

 private:
  const std::string name_;
  std::string* const gone_;
};

class SharedValuesTest : public testing::Test {
 protected:
  using Values = SharedValues<Noted>;
  Values::Holder Get(const std::string& key) {
    return values_.Get(key, [&] {
      made_ += key;
      return std::make_unique<const Noted>(key, &gone_);
    });
  }

  std::string made_, gone_;  // keys, in their order
  Values values_{/*max_unused=*/2};
};

TEST_F(SharedValuesTest, AreMadeOnce) {
  const Values::Holder first = Get("a"), second = Get("a");
  EXPECT_EQ(first, second);
  EXPECT_EQ(first->name(), "a");
  EXPECT_EQ(made_, "a");
}

TEST_F(SharedValuesTest, StayAsLongAsTheyAreHeld) {
  std::vector<Values::Holder> held;
  for (const char* key : {"a", "b", "c", "d", "e"}) held.push_back(Get(key));
  const Values::Holder copy = held[1];
  EXPECT_EQ(gone_, "");
  EXPECT_EQ(values_.counts().held, 5);
  held.clear();
  EXPECT_EQ(gone_, "ac") << "two are kept that nobody holds, and one of which there is a copy";
  EXPECT_EQ(values_.counts().held, 1);
  EXPECT_EQ(copy->name(), "b");
}

TEST_F(SharedValuesTest, GoInTheOrderInWhichTheyWereLetGo) {
  for (const char* key : {"a", "b", "a", "c", "b", "d"}) Get(key);
  EXPECT_EQ(made_, "abcbd");
  EXPECT_EQ(gone_, "bac");
  EXPECT_EQ(values_.counts().made, 5);
  EXPECT_EQ(values_.counts().unused, 2);
}

TEST_F(SharedValuesTest, AreThereAgainForWhoAsksInTime) {
  const Noted* const first = Get("a").get();
  Get("b");
  const Values::Holder again = Get("a");
  EXPECT_EQ(again.get(), first);
  for (const char* key : {"c", "d", "e"}) Get(key);
  EXPECT_EQ(gone_, "bc") << "a is held";
}

TEST_F(SharedValuesTest, AreNotKeptWhereNoneMayBe) {
  SharedValues<Noted> none(0);
  none.Get("a", [&] { return std::make_unique<const Noted>("a", &gone_); });
  EXPECT_EQ(gone_, "a");
}

TEST_F(SharedValuesTest, MayOutliveWhatMadeThem) {
  Values::Holder held;
  {
    Values values(2);
    held = values.Get("a", [&] { return std::make_unique<const Noted>("a", &gone_); });
    values.Get("b", [&] { return std::make_unique<const Noted>("b", &gone_); });
  }
  EXPECT_EQ(held->name(), "a");
  held.reset();
  EXPECT_EQ(gone_.size(), 2u);
}

TEST_F(SharedValuesTest, WhatCannotBeMadeIsTriedAgain) {
  const auto fail = []() -> std::unique_ptr<const Noted> { throw std::runtime_error("no"); };
  EXPECT_THROW(values_.Get("a", fail), std::runtime_error);
  EXPECT_EQ(values_.counts().held, 0);
  EXPECT_EQ(Get("a")->name(), "a");
}

// One thread makes the value, slowly, for the first time in vain; others ask meanwhile.
TEST_F(SharedValuesTest, ThreadsWaitForTheOneThatMakesIt) {
  std::atomic<int> tries = 0, failures = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        try {
          values_.Get("a", [&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            if (tries++ == 0) throw std::runtime_error("no");
            return std::make_unique<const Noted>("a", &gone_);
          });
        } catch (const std::runtime_error&) {
          ++failures;
        }
      });
    }
  }
  EXPECT_EQ(tries, 2);
  EXPECT_EQ(failures, 1);
}

// Whoever holds a value finds it alive, whatever others let go meanwhile, and in the end nothing is lost.
TEST(SharedValues, AreGivenUpBesideThreadsThatUseThem) {
  struct Counted {
    Counted(int number, std::atomic<int>& alive) : number(number), alive(alive) { ++alive; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    ~Counted() {
      number = -1;
      --alive;
    }
    std::atomic<int> number;
    std::atomic<int>& alive;
  };
  constexpr int kThreads = 4, kKeys = 12, kMaxUnused = 3, kHeldByEach = 2;
  std::atomic<int> alive = 0, wrong = 0;
  SharedValues<Counted> values(kMaxUnused);
  {
    std::vector<std::jthread> threads;
    for (unsigned thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        std::mt19937 random(thread);
        std::array<SharedValues<Counted>::Holder, kHeldByEach> held;
        std::array<int, kHeldByEach> numbers = {};
        for (int i = 0; i < 20'000; ++i) {
          const size_t place = random() % kHeldByEach;
          if (held[place] != nullptr && held[place]->number != numbers[place]) ++wrong;
          numbers[place] = static_cast<int>(random() % kKeys);
          held[place] = values.Get(StrCat(numbers[place]),
                                   [&] { return std::make_unique<const Counted>(numbers[place], alive); });
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(values.counts().held, 0);
  EXPECT_EQ(values.counts().unused, kMaxUnused);
  EXPECT_EQ(alive, kMaxUnused);
  EXPECT_GT(values.counts().made, 1000) << "few were given up";
}

}  // namespace
}  // namespace stepnet
