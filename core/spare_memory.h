// Spare memory: tensors that hold what can be computed again. Where a tensor would exceed the limit of tensor memory,
// they go first.
#pragma once

namespace stepnet {

// An owner of such tensors, known from its making to its end. Calls come from any thread, one at a time for all owners,
// while that thread makes a tensor: they may wait for nobody who does.
class SpareMemory {
 public:
  SpareMemory();
  SpareMemory(const SpareMemory&) = delete;
  SpareMemory& operator=(const SpareMemory&) = delete;

  // Bytes that FreeNext would free, for each microsecond that it takes to do without; 0: there are none now.
  virtual double Gain() = 0;
  // Returns whether it has freed some.
  virtual bool FreeNext() = 0;

 protected:
  // The destructor of a class that ends what calls use calls this first.
  void Withdraw();
  ~SpareMemory();
};

// Frees what gains most. Returns whether something was freed; false within a call of FreeNext, too.
bool FreeSpareMemory();

}  // namespace stepnet
