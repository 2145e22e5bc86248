#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "damage.h"
#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/completion.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/tests/compiler/graph_facts.h"
#include "stepnet/tests/core/filled_memory.h"
#include "stepnet/tests/core/sanitized.h"
#include "trials.h"

namespace stepnet {
namespace {

constexpr std::int64_t kMemory = 8 << 20;                 // of a trial, beside what there was before
constexpr double kSeconds = 0.25;                         // of a run; one that takes longer is given up
constexpr double kLateSeconds = kIsSanitized ? 10 : 0.5;  // that giving up may take

// The time of this thread, so that a busy machine does not matter.
double CpuSeconds() {
  struct timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Memory beyond what there is now is refused until the object ends.
class MemoryForTrial {
 public:
  MemoryForTrial() {
    SetTensorMemoryLimit(before_.current + kMemory);
    ResetPeakTensorMemory();
  }
  ~MemoryForTrial() { SetTensorMemoryLimit(before_.limit); }
  MemoryForTrial(const MemoryForTrial&) = delete;
  MemoryForTrial& operator=(const MemoryForTrial&) = delete;

  std::string Fault() const {
    const MemoryUse now = TensorMemory();
    if (now.peak > now.limit) return StrCat("tensors took ", now.peak, " bytes, ", now.limit, " were allowed");
    if (now.current != before_.current) return StrCat(now.current - before_.current, " bytes of tensors are kept");
    return "";
  }

 private:
  const MemoryUse before_ = TensorMemory();
};

// Elements that are no number are equal, whatever their bits.
template <typename T>
std::int64_t FirstDifference(const Tensor& a, const Tensor& b) {
  const T* const x = a.data<T>();
  const T* const y = b.data<T>();
  for (std::int64_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(x + i, y + i, sizeof(T)) != 0 && !(std::isnan(x[i]) && std::isnan(y[i]))) return i;
  }
  return -1;
}

// Where two tensors differ, "" where they do not.
std::string Difference(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return StrCat(a.Description(), " and ", b.Description());
  const auto elements = [&](std::int64_t i, auto x, auto y) {
    return i < 0 ? std::string() : StrCat("element ", i, " of ", a.Description(), " is ", x, " and ", y);
  };
  if (a.dtype() == DType::kFloat) {
    const std::int64_t i = FirstDifference<float>(a, b);
    return elements(i, i < 0 ? 0 : a.data<float>()[i], i < 0 ? 0 : b.data<float>()[i]);
  }
  if (a.dtype() == DType::kDouble) {
    const std::int64_t i = FirstDifference<double>(a, b);
    return elements(i, i < 0 ? 0 : a.data<double>()[i], i < 0 ? 0 : b.data<double>()[i]);
  }
  if (a.dtype() == DType::kString) {
    for (std::int64_t i = 0; i < a.size(); ++i) {
      if (a.data<std::string>()[i] != b.data<std::string>()[i]) return StrCat("string ", i, " of ", a.Description());
    }
    return "";
  }
  return a.size() == 0 || std::memcmp(a.raw(), b.raw(), a.size_bytes()) == 0 ? ""
                                                                             : StrCat("bytes of ", a.Description());
}

using Blobs = std::map<std::string, Tensor>;

struct Conditions {
  RunOptions options;
  bool shares_feeds = false;      // with the caller
  bool again = false;             // the net has run before
  std::uint8_t fill = kFills[0];  // what memory holds that nobody has written

  std::string Text() const {
    return StrCat(options.executor, " with ", options.threads, " threads at level ", options.opt_level,
                  options.disabled_passes.empty() ? "" : " without " + *options.disabled_passes.begin(),
                  shares_feeds ? ", on shared tensors" : "", again ? ", again" : "", ", in memory of ",
                  static_cast<int>(fill));
  }
};

struct Outcome {
  std::optional<Error> error = {};
  std::string fault = {};
  Blobs blobs = {};

  // Ended by a limit, which another run need not reach.
  bool IsGivenUp() const {
    return error && (error->code() == ErrorCode::kOutOfMemory || error->code() == ErrorCode::kCancelled);
  }
};

// The blobs that operators are asked to write, states of recurrent ones included.
std::set<std::string> WrittenBlobs(const NetDef& net) {
  std::set<std::string> written;
  for (const OperatorDef& op : net.op()) {
    written.insert(op.output().begin(), op.output().end());
    for (const Argument& arg : op.arg()) written.insert(arg.strings().begin(), arg.strings().end());
  }
  return written;
}

// The caller gives a copy of what an operator of the net itself works on in place.
void Feed(const NetDef& def, const NamedTensors& feeds, bool shares, Workspace& workspace) {
  const std::set<std::string> written = WrittenBlobs(def);
  for (const auto& [name, tensor] : feeds) {
    workspace.SetTensor(name, shares && !written.contains(name) ? tensor : tensor.Clone());
  }
}

void RunNet(const NetDef& def, const NamedTensors& feeds, const Conditions& conditions, Workspace& workspace) {
  Feed(def, feeds, conditions.shares_feeds, workspace);
  const std::unique_ptr<Net> net = Net::Create(def, workspace, conditions.options);
  net->Run();
  if (!conditions.again) return;
  for (const std::string& name : workspace.LocalBlobs()) workspace.GetBlob(name).Reset();
  Feed(def, feeds, conditions.shares_feeds, workspace);
  net->SetRunCounter(0);
  net->Run();
}

Outcome Try(const NetDef& def, const NamedTensors& feeds, const Conditions& conditions) {
  Outcome outcome;
  const FilledMemory filled(conditions.fill);
  const double start = CpuSeconds();
  Workspace workspace;
  try {
    const Cancellation limit{std::chrono::duration<double>(kSeconds)};
    const CancellationScope scope(&limit);
    RunNet(def, feeds, conditions, workspace);
  } catch (const Error& error) {
    outcome.error = error;
    if (error.code() == ErrorCode::kInternal || error.code() == ErrorCode::kFailed) outcome.fault = error.what();
  } catch (const std::exception& exception) {
    outcome.fault = StrCat("an exception that is no Error: ", exception.what());
  }
  if (const double seconds = CpuSeconds() - start; seconds > kSeconds + kLateSeconds) {
    outcome.fault = StrCat("it took ", seconds, " s of a processor");
  }
  for (const std::string& name : workspace.LocalBlobs()) {
    const Blob& blob = workspace.GetBlob(name);
    if (blob.HasTensor()) outcome.blobs[name] = blob.GetTensor();
  }
  return outcome;
}

// "" where two runs under conditions that must not matter are alike.
std::string Difference(const Outcome& a, const Outcome& b) {
  if (a.IsGivenUp() || b.IsGivenUp()) return "";
  if (a.error && b.error) return "";  // the first fault that is met need not be the same
  if (a.error || b.error) return StrCat("one alone fails: ", (a.error ? a : b).error->what());
  if (a.blobs.size() != b.blobs.size()) return StrCat(a.blobs.size(), " and ", b.blobs.size(), " tensors");
  for (const auto& [name, tensor] : a.blobs) {
    const auto other = b.blobs.find(name);
    if (other == b.blobs.end()) return StrCat("one alone has ", name);
    if (const std::string difference = Difference(tensor, other->second); !difference.empty()) {
      return StrCat(name, ": ", difference);
    }
  }
  return "";
}

// Which of `feeds` is not what `blobs` holds, although no operator writes it.
std::string ChangedFeed(const NetDef& net, const NamedTensors& feeds, const Blobs& blobs) {
  const std::set<std::string> written = WrittenBlobs(net);
  for (const auto& [name, tensor] : feeds) {
    const auto blob = blobs.find(name);
    if (written.contains(name) || blob == blobs.end()) continue;
    if (const std::string difference = Difference(tensor, blob->second); !difference.empty()) {
      return StrCat(name, " is changed, which no operator writes: ", difference);
    }
  }
  return "";
}

// What the two runs differ by: the first condition that alone makes a difference.
std::string Cause(const NetDef& net, const NamedTensors& feeds, const Conditions& one, const Conditions& other) {
  Conditions between = one;
  const Outcome first = Try(net, feeds, one);
  between.fill = other.fill;
  if (!Difference(first, Try(net, feeds, between)).empty()) return "memory that nobody has written";
  between.shares_feeds = other.shares_feeds;
  if (!Difference(first, Try(net, feeds, between)).empty()) return "shared tensors";
  between.again = other.again;
  if (!Difference(first, Try(net, feeds, between)).empty()) return "a second run";
  between.options = other.options;
  if (!Difference(first, Try(net, feeds, between)).empty()) return "threads";
  return "it is not always the same";
}

// Throws kInternal where the text of a graph is not read back as it was written. Large ones take too long.
void CheckRoundTrip(const StepGraph& graph) {
  if (graph.nodes.size() > 100) return;
  const std::string text = GraphText(graph);
  const StepGraph again = ParseGraph(text);
  std::string difference = Difference(again, graph);
  if (difference.empty() && GraphText(again) != text) difference = GraphText(again);
  if (!difference.empty())
    throw Error(ErrorCode::kInternal, StrCat("a graph is read back otherwise:\n", text, difference));
}

// The net is accepted by the checks.
std::string FaultOf(const NetDef& net, const NamedTensors& feeds, std::mt19937& random, bool* ran) {
  Conditions one, other;
  one.options = {.executor = "serial", .threads = 1, .opt_level = Below(kMaxOptLevel + 1, random), .quiet = true};
  other.options = {
      .executor = "parallel", .threads = 2 + Below(2, random), .opt_level = one.options.opt_level, .quiet = true};
  if (const size_t pass = random() % (2 * Passes().size()); pass < Passes().size() && !Passes()[pass].required) {
    one.options.disabled_passes = other.options.disabled_passes = {Passes()[pass].name};
  }
  one.options.on_pass = [](const std::string&, const StepGraph& graph) { CheckRoundTrip(graph); };
  other.shares_feeds = true;
  other.fill = kFills[1];
  other.again = random() % 2 == 0;
  NamedTensors given;
  for (const auto& [name, tensor] : feeds) given.emplace_back(name, tensor.Clone());
  const Outcome first = Try(net, given, one), second = Try(net, given, other);
  // What took too long on a busy machine has run.
  *ran = !first.error || first.error->code() == ErrorCode::kCancelled;
  for (const Outcome* outcome : {&first, &second}) {
    if (!outcome->fault.empty()) return outcome->fault;
    if (outcome->error && outcome->error->code() == ErrorCode::kInvalidNet) {
      return StrCat("the net is accepted, and then refused: ", outcome->error->what());
    }
  }
  if (const std::string difference = Difference(first, second); !difference.empty()) {
    return StrCat(one.Text(), " and ", other.Text(), " differ by ", Cause(net, given, one, other), ": ", difference);
  }
  if (const std::string changed = ChangedFeed(net, given, first.blobs); !changed.empty()) return changed;
  Blobs shared(given.begin(), given.end());
  for (const auto& [name, tensor] : feeds) {
    const std::string difference = Difference(tensor, shared.at(name));
    if (!difference.empty()) return StrCat("the caller's ", name, " is changed: ", difference);
  }
  return "";
}

}  // namespace

TrialResult TryNet(const NetDef& net, const NamedTensors& feeds, std::mt19937& random) {
  TrialResult result;
  const MemoryForTrial memory;
  try {
    NetCheckOptions options;
    options.blob_exists = [&](const std::string& name) {
      return std::ranges::find(feeds, name, &NamedTensors::value_type::first) != feeds.end();
    };
    if (!CheckNet(*Completed(net), options).empty()) return result;
    result.fault = FaultOf(net, feeds, random, &result.ran);
  } catch (const Error& error) {
    result.fault = StrCat("the check itself fails: ", error.what());
  }
  if (result.fault.empty()) result.fault = memory.Fault();
  return result;
}

}  // namespace stepnet
