// Spare memory: tensors that hold what nobody reads any more, or what can be computed again. Where a tensor would
// exceed the limit of tensor memory, they go first.
#pragma once

#include <limits>
#include <memory>

namespace stepnet {

// An owner of such tensors, known from Offer to Withdraw. Calls come from any thread, one at a time for all owners,
// while that thread makes a tensor: they make none themselves, as there is no memory for it, and wait for nobody who
// does.
class SpareMemory {
 public:
  SpareMemory() = default;
  SpareMemory(const SpareMemory&) = delete;
  SpareMemory& operator=(const SpareMemory&) = delete;

  // Bytes that FreeNext would free, for each microsecond that it takes to do without; 0: there are none now.
  virtual double Gain() = 0;
  // That of memory whose values nobody reads: it goes before any that has to be computed again.
  static constexpr double kOfNoUse = std::numeric_limits<double>::infinity();
  // Returns whether it has freed some.
  virtual bool FreeNext() = 0;

 protected:
  // The constructor of a class that calls may be made to ends with the one, and its destructor begins with the other:
  // before and behind, other threads would find what is not there.
  void Offer();
  void Withdraw();
  ~SpareMemory();
  // Within FreeNext: what this holds is destroyed when no owner is being asked any more. That may withdraw other
  // owners, and wait for those who make one.
  static void LetGo(std::shared_ptr<const void> held);
};

// Frees what gains most. Returns whether something was freed; false within a call of FreeNext, too.
bool FreeSpareMemory();

}  // namespace stepnet
