// Trials: something damaged is read, checked and run; an Error is a fine end, and so is success. Everything else is the
// fault that is looked for.
#pragma once

#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "stepnet/core/error.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

struct TrialResult {
  std::string fault = {};  // "" for none
  bool ran = false;        // what was damaged is good enough to run
};

// An Error is a fine end, unless it says that StepNet is wrong.
TrialResult RefusedBy(const Error& error);

// A kind of trials. What a trial does is a function of its seed; with `show` it first prints what it is about to try.
struct TrialKind {
  std::string name;
  TrialResult (*run)(unsigned seed, std::ostream* show);
};
const std::vector<TrialKind>& TrialKinds();

// Runs a net under all conditions that must not matter: by one thread and by several, with a workspace of its own and
// with tensors that the caller shares, in memory that holds this before it is written and that, once and again. The
// faults: an exception that is no Error or says that StepNet is wrong, results that differ, tensors of the caller that
// change, a net that is checked and then called invalid, memory beyond the limit or kept, time beyond the limit.
// `random` draws executors and levels.
TrialResult TryNet(const NetDef& net, const NamedTensors& feeds, std::mt19937& random);

// A cell: what is parsed is printed and parsed again, expanded with small sizes, and its net tried.
TrialResult TryCell(const std::string& text, std::mt19937& random);

// The config of a training, for one iteration.
TrialResult TryConfig(const std::string& text);

// The text of expressions: what is parsed is printed and parsed again, and must be the same.
TrialResult TryExprs(const std::string& text);

// The text of a step graph, likewise. What the verifier accepts runs, in memory of just the size that it says.
TrialResult TryGraph(const std::string& text);

// Bytes as a file of tensors, of whatever kind: what can be read is written and must be read again as it was.
TrialResult TryTensorFile(const std::string& bytes);

}  // namespace stepnet
