#include "stepnet/nets/net_check.h"

#include <algorithm>
#include <climits>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/core/index_of.h"
#include "stepnet/core/operator_text.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/decomposition.h"
#include "stepnet/nets/net_rule.h"
#include "stepnet/nets/placement.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

std::string Expected(int low, int high, const char* what) {
  const char* plural = low == 1 && high == 1 ? "" : "s";
  if (high == INT_MAX) return StrCat("at least ", low, " ", what, low == 1 ? "" : "s");
  if (low == high) return StrCat(low, " ", what, plural);
  return StrCat(low, " to ", high, " ", what, plural);
}

void CheckArity(const OperatorDef& op, const OperatorSchema& schema, std::vector<std::string>* messages) {
  const auto check = [&](int count, int low, int high, const char* what) {
    if (count >= low && count <= high) return;
    messages->push_back(StrCat(op.type(), " takes ", Expected(low, high, what), ", has ", count));
  };
  check(op.input_size(), schema.min_inputs(), schema.max_inputs(), "input");
  check(op.output_size(), schema.min_outputs(), schema.max_outputs(), "output");
}

void CheckInPlace(const OperatorDef& op, const OperatorSchema& schema, DeviceKind device,
                  std::vector<std::string>* messages) {
  const auto by_name = [](const auto& names) {
    std::vector<std::pair<std::string_view, int>> sorted;
    sorted.reserve(static_cast<size_t>(names.size()));
    for (const std::string& name : names) sorted.emplace_back(name, static_cast<int>(sorted.size()));
    std::ranges::sort(sorted);
    return sorted;
  };
  const auto inputs = by_name(op.input()), outputs = by_name(op.output());
  const auto name_of = &std::pair<std::string_view, int>::first;
  for (int o = 0; o < op.output_size(); ++o) {
    const auto same = std::ranges::equal_range(inputs, std::string_view(op.output(o)), {}, name_of);
    const bool allowed =
        std::ranges::any_of(same, [&](const auto& input) { return schema.AllowsInPlace(input.second, o); });
    // Kernels that take blobs replace the tensor of a blob and never write into it.
    if (!same.empty() && !allowed && !schema.TakesBlobs(device)) {
      messages->push_back(
          StrCat(op.type(), " cannot work in place: \"", op.output(o), "\" is an input and output ", o));
    }
    const int first = std::ranges::lower_bound(outputs, std::string_view(op.output(o)), {}, name_of)->second;
    if (first != o && !schema.outputs_may_repeat) {
      messages->push_back(StrCat("\"", op.output(o), "\" is output ", first, " and output ", o));
    }
  }
  for (const auto& [i, o] : schema.enforced_in_place) {
    if (i < op.input_size() && o < op.output_size() && op.input(i) != op.output(o)) {
      messages->push_back(StrCat(op.type(), " works in place: output ", o, " must be \"", op.input(i), "\", is \"",
                                 op.output(o), "\""));
    }
  }
}

bool TakesNets(const OperatorSchema& schema) {
  return std::ranges::any_of(schema.arguments,
                             [](const ArgumentSpec& argument) { return argument.type == ArgumentType::kNet; });
}

class Checker {
 public:
  Checker(const NetDef& net, const NetCheckOptions& options)
      : net_(net), options_(options), run_options_(options.run) {}

  std::vector<NetProblem> Run(CheckedCalls* calls) {
    if (!options_.ignores_external_input) known_.insert(net_.external_input().begin(), net_.external_input().end());
    CheckType();
    // A hostile net may have a million faults; nobody reads so many.
    constexpr size_t kMaxProblems = 1000;
    std::set<int> faulty;
    for (int i = 0; i < net_.op_size() && problems_.size() < kMaxProblems; ++i) {
      constexpr std::int64_t kWork = 5'000;  // of one operator
      CountWork(kWork);
      const size_t before = problems_.size();
      CheckOp(i);
      if (problems_.size() > before) faulty.insert(i);
    }
    if (problems_.size() >= kMaxProblems) {
      Report(-1, "too many problems; the rest of the net is not checked");
    } else {
      ApplyNetRules({.net = net_, .options = options_, .faulty = faulty, .calls = calls_}, &problems_);
    }
    for (const std::string& output : net_.external_output()) {
      if (!Exists(output)) Report(-1, StrCat("nothing produces the external output \"", output, "\"", Nearest(output)));
    }
    if (calls != nullptr) *calls = std::move(calls_);
    return std::move(problems_);
  }

 private:
  void CheckType() {
    try {
      CanonicalNetType(net_.type());
    } catch (const Error& error) {
      Report(-1, error.message());
    }
    if (net_.num_workers() < 0) Report(-1, StrCat("num_workers is ", net_.num_workers(), ", must be at least 0"));
  }

  void CheckOp(int i) {
    const OperatorDef& op = net_.op(i);
    if (net_.external_input_size() > 0 || options_.all_inputs_known) {
      const char* const is_listed = net_.external_input_size() > 0 && !options_.ignores_external_input
                                        ? " and is no external_input of the net"
                                        : "";
      std::unordered_set<std::string_view> missing;
      for (const std::string& input : op.input()) {
        if (Exists(input) || !missing.insert(input).second) continue;
        Report(i, StrCat("\"", input, "\" is read before anything writes it", is_listed, Nearest(input)));
      }
    }
    known_.insert(op.output().begin(), op.output().end());
    try {
      const Device device = PlaceOfOperator(i, op);
      const OperatorCall call(op, run_options_.On(device), {}, options_.owner);
      const OperatorSchema& schema = call.schema();
      if (TakesNets(schema)) calls_.emplace(i, call);
      const Kernel* kernel = schema.FindKernel(device.kind);
      if (kernel == nullptr && !HasDecomposition(op.type())) {
        Report(i, StrCat(op.type(), " has no kernel for ", DeviceKindName(device.kind)));
      } else if (kernel != nullptr && options_.is_step_net) {
        CheckHostOutputs(i, op, *kernel);
      }
      std::vector<std::string> messages;
      CheckArity(op, schema, &messages);
      CheckInPlace(op, schema, device.kind, &messages);
      const size_t before = problems_.size();
      for (std::string& message : messages) Report(i, std::move(message));
      if (messages.empty() && schema.check) {
        std::vector<NetProblem> found;
        schema.check(call, &found);
        for (NetProblem& problem : found) {
          if (problem.net.empty()) {
            Report(i, std::move(problem.message));
          } else {
            problems_.push_back(std::move(problem));
          }
        }
      }
      if (problems_.size() > before) return;
      if (const std::optional<Error> fault = FormulaFault(op)) Report(i, fault->message());
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kCancelled) throw;  // says nothing of the net
      Report(i, error.message());
    }
  }

  // Where the operator runs; reports what is wrong with that.
  Device PlaceOfOperator(int i, const OperatorDef& op) {
    const Device of_run = options_.run.device();
    if (!options_.is_step_net) return PlaceOf(op, net_, options_.run);
    const std::optional<Device> asked = DeviceAskedFor(op, net_);
    if (asked && *asked != of_run) {
      Report(i, StrCat("the step net places ", op.type(), " on ", *asked, ", and is run on ", of_run));
    }
    return of_run;
  }

  // In a step net there are no copies between devices.
  void CheckHostOutputs(int i, const OperatorDef& op, const Kernel& kernel) {
    for (const int o : kernel.host_outputs) {
      if (o >= op.output_size()) continue;
      const auto reads = [&](const OperatorDef& other) { return IndexOf(other.input(), op.output(o)) >= 0; };
      if (std::ranges::none_of(net_.op(), reads)) continue;
      Report(i, StrCat(op.type(), " leaves \"", op.output(o),
                       "\" on the host, and the step net that reads it is run on ", options_.run.device()));
    }
  }

  bool Exists(const std::string& blob) const {
    return known_.contains(blob) || (options_.blob_exists && options_.blob_exists(blob));
  }

  std::string Nearest(const std::string& blob) const {
    return problems_.size() < kMaxSuggestions ? DidYouMean(blob, {known_.begin(), known_.end()}) : "";
  }

  void Report(int i, std::string message) {
    problems_.push_back({.net = net_.name(),
                         .op_index = i,
                         .op_text = i >= 0 ? OperatorText(net_.op(i)) : "",
                         .message = std::move(message)});
  }

  const NetDef& net_;
  const NetCheckOptions& options_;
  SharedOptions run_options_;
  std::unordered_set<std::string_view> known_;
  CheckedCalls calls_;
  std::vector<NetProblem> problems_;
};

}  // namespace

std::vector<NetProblem> CheckNet(const NetDef& net, const NetCheckOptions& options, CheckedCalls* calls) {
  return Checker(net, options).Run(calls);
}

std::vector<NetProblem> CheckOperator(const OperatorDef& op) {
  NetDef alone;
  *alone.add_op() = op;
  return CheckNet(alone, {.blob_exists = [](const std::string&) { return true; }});
}

std::vector<NetProblem> WarningsOfNet(const NetDef& net) {
  std::vector<NetProblem> warnings;
  std::unordered_map<std::string_view, int> unread;  // blob → the operator that wrote it last
  for (int i = 0; i < net.op_size(); ++i) {
    const OperatorDef& op = net.op(i);
    for (const std::string& input : op.input()) unread.erase(input);
    std::vector<std::string> again;
    int first = -1;
    for (const std::string& output : op.output()) {
      const auto [found, is_new] = unread.try_emplace(output, i);
      if (is_new) continue;
      again.push_back(StrCat("\"", output, "\""));
      first = std::exchange(found->second, i);
    }
    if (again.empty()) continue;
    warnings.push_back({.net = net.name(),
                        .op_index = i,
                        .op_text = OperatorText(op),
                        .message = StrCat("it writes ", Join(again, ", "), " again, which op ", first, " `",
                                          OperatorText(net.op(first)),
                                          "` wrote and nothing has read since; names of "
                                          "several cells in one net are kept apart by `expand` with a prefix")});
  }
  return warnings;
}

void ThrowIfProblems(const std::vector<NetProblem>& problems) {
  if (problems.empty()) return;
  if (problems.size() == 1) {
    const NetProblem& problem = problems.front();
    throw Error(ErrorCode::kInvalidNet, problem.message)
        .At({.net = problem.net, .op_index = problem.op_index, .op_text = problem.op_text});
  }
  constexpr size_t kShown = 20;
  std::string text = StrCat(problems.size(), " problems");
  for (size_t i = 0; i < problems.size() && i < kShown; ++i) text += "\n  " + problems[i].Text();
  if (problems.size() > kShown) text += StrCat("\n  … and ", problems.size() - kShown, " more");
  throw Error(ErrorCode::kInvalidNet, text);
}

namespace {

bool DoSourcesChange(const NetDef& net, int i) {
  const OperatorDef& op = net.op(i);
  const std::string& record = op.output(op.output_size() - 1);
  std::unordered_set<std::string_view> sources(op.input().begin(), op.input().end()), written;
  for (const std::string& output : op.output()) {
    if (!sources.insert(output).second) written.insert(output);
  }
  for (int k = i + 1; k < net.op_size(); ++k) {
    const OperatorDef& later = net.op(k);
    const bool reads_record = std::ranges::find(later.input(), record) != later.input().end();
    const auto is_written = [&](const std::string& blob) { return written.contains(blob); };
    if (reads_record && std::ranges::any_of(later.input(), is_written)) return true;
    for (const std::string& output : later.output()) {
      if (output == record) return false;
      if (sources.contains(output)) written.insert(output);
    }
  }
  return false;
}

}  // namespace

std::vector<OperatorCall::Readers> ReadersOfOutputs(const NetDef& net) {
  std::vector<OperatorCall::Readers> readers(net.op_size());
  std::unordered_map<std::string_view, std::pair<int, int>> writer;  // blob → operator and output that wrote it last
  const auto read = [&](const std::string& blob, const std::string& type) {
    const auto found = writer.find(blob);
    if (found != writer.end()) readers[found->second.first][found->second.second].push_back(type);
  };
  writer.reserve(static_cast<size_t>(net.op_size()));
  std::vector<int> recurrent;
  for (int i = 0; i < net.op_size(); ++i) {
    const OperatorDef& op = net.op(i);
    for (const std::string& input : op.input()) read(input, op.type());
    readers[i].resize(op.output_size());
    for (int o = 0; o < op.output_size(); ++o) writer[op.output(o)] = {i, o};
    if (op.type() == "RecurrentNetwork" && op.output_size() > 0) recurrent.push_back(i);
  }
  for (const std::string& output : net.external_output()) read(output, "");
  for (const int i : recurrent) {
    if (DoSourcesChange(net, i)) readers[i].back().emplace_back(kSourcesChange);
  }
  return readers;
}

std::string CanonicalNetType(const std::string& type) {
  static const std::map<std::string, std::string> types = {{"", "simple"},
                                                           {"simple", "simple"},
                                                           {"async_simple", "simple"},
                                                           {"rnn", "simple"},
                                                           {"singlethread_async", "simple"},
                                                           {"dag", "dag"},
                                                           {"async_dag", "dag"},
                                                           {"async_scheduling", "dag"},
                                                           {"async_polling", "dag"},
                                                           {"prof_dag", "dag"},
                                                           {"htrace_dag", "dag"},
                                                           {"htrace_async_dag", "dag"},
                                                           {"parallel", "dag"}};
  const auto found = types.find(type);
  if (found != types.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [name, canonical] : types) names.push_back(name);
  throw Error(ErrorCode::kInvalidNet, StrCat("no net type \"", type, "\"", DidYouMean(type, names)));
}

std::string OperatorText(const OperatorDef& op) { return OperatorText(op.type(), op.input(), op.output()); }

}  // namespace stepnet
