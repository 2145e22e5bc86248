// Dependencies: which instruction of which step must have finished before which other starts.
//
// They follow from the bytes that instructions touch, as functions of the step, and from nothing else: no blob's name,
// no offset and no order of links means anything here. Two accesses conflict when they share a byte and one of them
// writes; what comes first in program order then comes first (read after write, write after read, write after write).
// The world outside counts as a byte: what has side effects writes it, and what may fail in the same plan reads it.
// An edge holds for every step: `to` of step k + delta waits for `from` of step k, steps counted in the direction of
// the run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stepnet/compiler/step_plan.h"

namespace stepnet {

// What an instruction touches of one piece of memory: in step k, bytes [begin + k * stride, begin + k * stride + bytes)
// from its start, modulo `ring` bytes where that is not 0.
struct MemoryAccess {
  int memory = 0;  // pieces of different numbers share no byte
  bool writes = false;
  std::int64_t begin = 0;
  std::int64_t stride = 0;  // negative in plans that run backward
  std::int64_t bytes = 0;
  std::int64_t ring = 0;
  int slot = -1;  // of the plan, for people; -1: none
};

enum class DependencyKind { kReadAfterWrite, kWriteAfterRead, kWriteAfterWrite };
const char* DependencyKindName(DependencyKind kind);

struct Dependency {
  int from = 0;
  int to = 0;
  int delta = 0;  // 0 only with from < to
  DependencyKind kind = DependencyKind::kReadAfterWrite;
  // What people are told of the edge: the slot of the shared bytes as `from` and as `to` knows it (-1: none), and how
  // many bytes they share (0: only a run knows).
  int from_slot = -1;
  int to_slot = -1;
  std::int64_t bytes = 0;

  friend bool operator==(const Dependency& a, const Dependency& b) {
    return a.from == b.from && a.to == b.to && a.delta == b.delta;
  }
};

struct Dependencies {
  int num_instructions = 0;
  std::vector<Dependency> edges;  // by from, then delta, then to; none that others imply (RemoveImplied)
  int max_delta = 0;
};

// What each instruction touches. Instructions that go through blobs touch more than their operands: each a piece of
// memory of its own, so that two steps of it never overlap, and those that may use the workspace one that they share,
// so that they keep their order.
std::vector<std::vector<MemoryAccess>> AccessesOf(const StepPlan& plan);
// What each instruction touches in one step, also where it runs for many at once.
std::vector<std::vector<MemoryAccess>> AccessesOfOneStep(const StepPlan& plan);

// FindConflicts, then RemoveImplied: about linear in the number of accesses. Independent of the number of steps.
Dependencies FindDependencies(const std::vector<std::vector<MemoryAccess>>& accesses);
// The dependencies among the instructions of one stage. Deltas count runs of the stage, each of which is for as many
// steps as the stage takes at once.
Dependencies FindDependencies(const StepPlan& plan, const Stage& stage);
// The dependencies among those stages of the plan that take chunks: `from` and `to` number stages, deltas count chunks.
// REQUIRES chunks.
Dependencies FindChunkDependencies(const StepPlan& plan);

}  // namespace stepnet
