#include "stepnet/core/spare_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/tensor.h"
#include "stepnet/tests/core/limited_memory.h"

namespace stepnet {
namespace {

// Tensors of 1000 bytes each.
class Spare final : public SpareMemory {
 public:
  Spare(int count, double gain) : gain_(gain) {
    for (int k = 0; k < count; ++k) tensors_.emplace_back(DType::kUInt8, Shape({1000}));
    Offer();
  }
  ~Spare() { Withdraw(); }
  double Gain() override { return tensors_.empty() ? 0 : gain_; }
  bool FreeNext() override {
    EXPECT_FALSE(FreeSpareMemory()) << "within";
    if (tensors_.empty()) return false;
    tensors_.pop_back();
    return true;
  }
  size_t count() const { return tensors_.size(); }

 private:
  const double gain_;
  std::vector<Tensor> tensors_;
};

TEST(SpareMemory, IsFreedAsFarAsTensorsNeedIt) {
  Spare little(2, 1), much(2, 5);
  const LimitedMemory limited(TensorMemory().current + 100);
  const Tensor fits(DType::kUInt8, Shape({100}));
  EXPECT_EQ(much.count(), 2U);
  const Tensor one(DType::kUInt8, Shape({10}));
  EXPECT_EQ(much.count(), 1U);
  const Tensor two(DType::kUInt8, Shape({1991}));
  EXPECT_EQ(much.count(), 0U);
  EXPECT_EQ(little.count(), 1U);
}

TEST(SpareMemory, IsNotFreedForWhatNoLimitAllows) {
  Spare spare(2, 1);
  const LimitedMemory limited(TensorMemory().current);
  EXPECT_THROW(Tensor(DType::kUInt8, Shape({TensorMemory().limit + 1})), Error);
  EXPECT_EQ(spare.count(), 2U);
}

// What an owner lets go of is destroyed when owners may be withdrawn.
TEST(SpareMemory, MayHoldOwners) {
  class Holder final : public SpareMemory {
   public:
    Holder() { Offer(); }
    ~Holder() { Withdraw(); }
    double Gain() override { return held_ == nullptr ? 0 : kOfNoUse; }
    bool FreeNext() override {
      LetGo(std::move(held_));
      return true;
    }

   private:
    std::shared_ptr<const Spare> held_ = std::make_shared<const Spare>(1, 1);
  };
  const Spare spare(1, 5);
  const Holder holder;
  const std::int64_t before = TensorMemory().current;
  EXPECT_TRUE(FreeSpareMemory());
  EXPECT_EQ(TensorMemory().current, before - 1000);
  EXPECT_EQ(spare.count(), 1U) << "what is of no use goes first";
}

// To look whether to stop may run code of others, which withdraws owners.
TEST(SpareMemory, IsAskedForWithoutLookingWhetherToStop) {
  class Looking final : public SpareMemory {
   public:
    Looking() { Offer(); }
    ~Looking() { Withdraw(); }
    double Gain() override {
      CheckCancelled();
      return 0;
    }
    bool FreeNext() override { return false; }
  };
  const Looking owner;
  Cancellation cancelled;
  cancelled.Cancel();
  const CancellationScope scope(&cancelled);
  EXPECT_NO_THROW(FreeSpareMemory());
}

TEST(SpareMemory, IsThatOfOwnersThatLive) {
  { const Spare gone(1, 1); }
  EXPECT_FALSE(FreeSpareMemory());
  Spare spare(1, 1);
  EXPECT_TRUE(FreeSpareMemory());
  EXPECT_FALSE(FreeSpareMemory());
}

}  // namespace
}  // namespace stepnet
