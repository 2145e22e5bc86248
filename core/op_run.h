// OpRun: what a kernel is given each time it runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "stepnet/core/error.h"
#include "stepnet/core/fault_record.h"
#include "stepnet/core/random.h"
#include "stepnet/core/run_context.h"
#include "stepnet/core/target.h"
#include "stepnet/core/tensor.h"
#include "stepnet/core/workspace.h"

namespace stepnet {

class OperatorCall;

// Access to the blobs themselves, for kernels that take them (Kernel::takes_blobs).
class OpHost {
 public:
  virtual ~OpHost() = default;
  virtual const Blob& Input(int i) = 0;
  virtual Blob& Output(int i) = 0;
  virtual Workspace& workspace() = 0;
};

// What a run of a kernel sees of the operands of one step: those of several steps at once, or some of their elements.
struct RunRange {
  std::int64_t num_steps = 1;
  bool backward = false;          // the last of the steps comes first
  std::uint64_t with_rows = 0;    // bit i: input i, of the first 64, holds the rows of all steps one after the other
  std::int64_t begin = 0;         // of operands that are cut by elements: the first
  std::int64_t num_elements = 0;  // and how many the whole ones have; 0: they are not cut
};

// One run of a kernel.
class OpRun {
 public:
  OpRun(std::span<const TensorView> inputs, std::span<const TensorView> outputs, RunContext& context,
        std::int64_t step = 0, OpHost* host = nullptr)
      : inputs_(inputs), outputs_(outputs), context_(context), step_(step), host_(host) {}

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  std::span<const TensorView> inputs() const { return inputs_; }
  std::span<const TensorView> outputs() const { return outputs_; }
  // Inputs that hold no tensor (only kernels that take blobs meet them) have a null shape.
  const TensorView& In(int i) const { return inputs_[i]; }
  // Has the shape that the shape rule gave and is uninitialised; for an in-place pair it is the memory of the input.
  // Kernels that take blobs have none and set host().Output(i) instead.
  const TensorView& Out(int i) const { return outputs_[i]; }

  // Memory for n elements on the device that runs the kernel, uninitialised, for this run alone.
  template <typename T>
  T* ScratchOf(std::int64_t n) const {
    Scratch& scratch = context_.queue == nullptr ? context_.scratch : context_.device_scratch;
    return static_cast<T*>(scratch.Get(n * static_cast<std::int64_t>(sizeof(T))));
  }
  RandomStream Random(const OperatorCall& op) const;
  RandomStream Random(std::uint64_t seed, std::uint64_t id) const { return {seed, id, context_.RunNumber(), step_}; }
  std::int64_t step() const { return step_; }  // of a step net, 0 outside
  // A kernel that has max_parts is called once for each part in [0, parts()), by several threads at once;
  // each call does its share of the work.
  int part() const { return part_; }
  int parts() const { return parts_; }
  // This part's share of n items: the first, and the one past the last.
  std::pair<std::int64_t, std::int64_t> Share(std::int64_t n) const {
    return {n * part_ / parts_, n * (part_ + 1) / parts_};
  }
  void SetPart(int part, int parts) {
    part_ = part;
    parts_ = parts;
  }
  // Not 0: columns are in groups of so many, as the gates of so many units, and the part has the same of every group,
  // [first, last): whole pieces of kUnitsOfPart, and what is left at the end. So it reads what the same part of another
  // kernel wrote. Set for kernels that say Kernel::can_part_units, and regions that can.
  std::int64_t units() const { return units_; }
  void SetUnits(std::int64_t units) { units_ = units; }
  // The share of one of several parts.
  static std::pair<std::int64_t, std::int64_t> ShareOfUnits(std::int64_t units, int part, int parts) {
    const std::int64_t pieces = (units + kUnitsOfPart - 1) / kUnitsOfPart;
    return {pieces * part / parts * kUnitsOfPart, std::min(units, pieces * (part + 1) / parts * kUnitsOfPart)};
  }
  static constexpr std::int64_t kUnitsOfPart = kFloatsOfLine;
  // False when a type that declares Rows is run for other outputs alone: Out(output) has no memory then.
  bool Wants(int output) const { return output < num_outputs() && outputs_[output].shape != nullptr; }
  // Whether an output that the kernel can add (Kernel::CanAdd) is to be added to what the memory holds, instead of
  // written.
  bool Adds(int output) const { return output < 64 && (adds_ >> output & 1) != 0; }
  void SetAdds(std::uint64_t outputs) { adds_ = outputs; }  // bit i: output i, of the first 64
  // What Packing has made of the input for this run, or null.
  const void* packed() const { return packed_; }
  void SetPacked(const void* packed) { packed_ = packed; }
  RunContext& context() const { return context_; }
  // Where a kernel of another device than the CPU puts in its work. REQUIRES: it is one.
  Queue& queue() const { return *context_.queue; }
  OpHost& host() const { return *host_; }

  // Element `element` of an input has a value that is not allowed. Kernels that say that they check values
  // (Kernel::checks_values) go on with one that does no harm; of all that is wrong in a run of the net, what comes
  // first becomes its error. `make_error` is given the number of the element within its step, and makes the Error.
  // Where nobody keeps a record it is thrown at once.
  template <typename MakeError>
  void Fault(int input, std::int64_t element, const MakeError& make_error) const {
    const FaultPlace place = PlaceOfInput(input, element);
    if (context_.faults == nullptr) throw make_error(place.element);
    context_.faults->Note(place, [&] { return make_error(place.element); });
  }
  // The same of element `element` of the `num_elements` that the run computes; make_error(i) has its place in the step.
  template <typename MakeError>
  void FaultOf(std::int64_t element, std::int64_t num_elements, const MakeError& make_error) const {
    const FaultPlace place = PlaceOf(element, num_elements);
    if (context_.faults == nullptr) throw make_error(place.element);
    context_.faults->Note(place, [&] { return make_error(place.element); });
  }
  void SetRange(const RunRange* range) { range_ = range; }  // null: all of one step
  const RunRange* range() const { return range_; }

 private:
  FaultPlace PlaceOfInput(int input, std::int64_t element) const;
  // The place of one element of an operand that holds those of all steps, one after the other, `num_elements` in all.
  FaultPlace PlaceOf(std::int64_t element, std::int64_t num_elements) const;

  std::span<const TensorView> inputs_;
  std::span<const TensorView> outputs_;
  RunContext& context_;
  std::int64_t step_;
  OpHost* host_;
  int part_ = 0;
  int parts_ = 1;
  std::int64_t units_ = 0;
  std::uint64_t adds_ = 0;
  const void* packed_ = nullptr;
  const RunRange* range_ = nullptr;
};

// A kernel: runs many times, from many threads at once. Holds no state that a run changes.
using RunFn = std::function<void(const OpRun&)>;

}  // namespace stepnet
