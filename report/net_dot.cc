// Nets as Graphviz draws them.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/report/net_text.h"
#include "stepnet/report/text.h"

namespace stepnet {
namespace {

constexpr int kDeepest = 100;

// What a blob that no operator of a net writes is.
enum class BlobRole { kInput, kParameter, kState, kOutput };

const char* StyleOf(BlobRole role) {
  switch (role) {
    case BlobRole::kInput: return "shape=ellipse, style=filled, fillcolor=\"#d5e8d4\"";
    case BlobRole::kParameter: return "shape=cylinder, style=filled, fillcolor=\"#ffe6cc\"";
    case BlobRole::kState: return "shape=hexagon, style=filled, fillcolor=\"#fff2cc\"";
    case BlobRole::kOutput: return "shape=ellipse, peripheries=2, style=filled, fillcolor=white";
  }
  return "";
}

using Roles = std::map<std::string, BlobRole>;

std::vector<std::string> StringsOf(const OperatorDef& op, const std::string& name) {
  const Argument* argument = FindArgument(op, name);
  if (argument == nullptr) return {};
  return {argument->strings().begin(), argument->strings().end()};
}

// Cut to what nets have, so that arithmetic on them cannot overflow.
std::vector<std::int64_t> IntsOf(const OperatorDef& op, const std::string& name) {
  constexpr std::int64_t kMax = 1'000'000'000;
  const Argument* argument = FindArgument(op, name);
  if (argument == nullptr) return {};
  std::vector<std::int64_t> values;
  for (const std::int64_t value : argument->ints()) values.push_back(std::clamp(value, -kMax, kMax));
  return values;
}

// What one operator with step nets carries over: the states among a step's blobs, and what a later step reads.
struct Recurrence {
  struct Pair {
    std::string written, read;
    std::int64_t steps = 1;  // between them
    std::string state;
  };
  Roles roles;
  std::vector<Pair> pairs;
};

std::int64_t WindowOf(const std::vector<std::int64_t>& windows, size_t link) {
  return link < windows.size() ? std::max<std::int64_t>(1, windows[link]) : 1;
}

Recurrence RecurrenceOf(const OperatorDef& op, const std::string& prefix) {
  const std::vector<std::string> internal = StringsOf(op, prefix + "link_internal");
  const std::vector<std::string> external = StringsOf(op, prefix + "link_external");
  const std::vector<std::int64_t> offsets = IntsOf(op, prefix + "link_offset");
  const std::vector<std::int64_t> windows = IntsOf(op, prefix + "link_window");
  const std::vector<std::string> names = StringsOf(op, "recurrent_states");
  const bool is_backward = !prefix.empty();  // from the last step to the first
  std::set<std::string> states;
  for (const std::string& name : names) states.insert(is_backward ? name + "_grad" : name);
  const size_t links = std::min({internal.size(), external.size(), offsets.size()});
  Recurrence recurrence;
  std::map<std::string, std::vector<size_t>> of_state;
  for (size_t i = 0; i < links; ++i) {
    const bool is_state = states.contains(external[i]);
    recurrence.roles[internal[i]] = is_state ? BlobRole::kState : BlobRole::kInput;
    if (is_state) of_state[external[i]].push_back(i);
  }
  constexpr size_t kMaxLinks = 1000;  // of one state; nobody could read the picture of more
  for (const auto& [state, of] : of_state) {
    if (of.size() > kMaxLinks) continue;
    for (const size_t later : of) {
      for (const size_t earlier : of) {
        // The rows of two links meet after `max_steps` steps at the latest, and first where the nearest of them do.
        const std::int64_t apart = is_backward ? offsets[later] - offsets[earlier] : offsets[earlier] - offsets[later];
        const size_t behind = is_backward ? earlier : later;
        const std::int64_t max_steps = apart + WindowOf(windows, is_backward ? later : earlier) - 1;
        if (max_steps < 1) continue;
        const std::int64_t steps = std::max<std::int64_t>(1, apart - WindowOf(windows, behind) + 1);
        recurrence.pairs.push_back({internal[earlier], internal[later], steps, state});
      }
    }
  }
  return recurrence;
}

class DotWriter {
 public:
  std::string Write(const NetDef& net) {
    text_ =
        "digraph net {\n"
        "  node [shape=box, fontname=\"Helvetica\", fontsize=10];\n"
        "  edge [fontname=\"Helvetica\", fontsize=9];\n"
        "  compound=true;\n";
    WriteNet(net, "  ", 0, RolesOf(net), {});
    return text_ + "}\n";
  }

 private:
  void Line(const std::string& indent, const std::string& text) { text_ += indent + text + "\n"; }
  std::string NewNode() { return StrCat("n", nodes_++); }

  // A blob that a net reads and no link shows is a parameter where operators take it as weights, or a step
  // captures it. Names of blobs decide nothing.
  static Roles RolesOf(const NetDef& net) {
    Roles roles;
    for (const OperatorDef& op : net.op()) {
      const std::vector<std::int64_t> initial = IntsOf(op, "initial_recurrent_state_ids");
      std::set<std::string> sequences;
      for (const std::string& blob : StringsOf(op, "link_external")) sequences.insert(blob);
      for (int i = 0; i < op.input_size(); ++i) {
        const bool is_initial = std::ranges::find(initial, i) != initial.end();
        const bool is_weight = !initial.empty() ? !sequences.contains(op.input(i)) && i > 0 && !op.is_gradient_op()
                                                : op.type().starts_with("FC") && (i == 1 || i == 2);
        if (is_initial) {
          roles[op.input(i)] = BlobRole::kState;
        } else if (is_weight) {
          roles.emplace(op.input(i), BlobRole::kParameter);
        }
      }
    }
    return roles;
  }

  std::string WriteBlob(const std::string& blob, BlobRole role, const std::string& indent) {
    const std::string node = NewNode();
    Line(indent, StrCat(node, " [", StyleOf(role), ", label=", DotText(blob), "];"));
    return node;
  }

  static std::string NodeOf(const std::map<std::string, std::string>& nodes, const std::string& blob) {
    const auto found = nodes.find(blob);
    return found == nodes.end() ? "" : found->second;
  }

  // Returns the net's first node, for arrows that point to the net as a whole.
  std::string WriteNet(const NetDef& net, const std::string& indent, int depth, const Roles& roles,
                       const std::vector<Recurrence::Pair>& pairs) {
    const std::string first = NewNode();
    Line(indent, StrCat(first, " [shape=plaintext, label=", DotText("net " + net.name()), "];"));
    std::map<std::string, std::string> writers;  // blob → the node that gives its latest value
    std::map<std::string, std::string> sources;  // blob → the node that stands for it where it comes in
    const auto read = [&](const std::string& blob) {
      if (writers.contains(blob)) return;
      const auto role = roles.find(blob);
      writers[blob] = sources[blob] = WriteBlob(blob, role == roles.end() ? BlobRole::kInput : role->second, indent);
    };
    for (const std::string& input : net.external_input()) read(input);
    std::set<std::string> written;
    for (const OperatorDef& op : net.op()) {
      written.insert(op.output().begin(), op.output().end());
      for (const std::string& input : op.input()) read(input);
      WriteOperator(op, indent, depth, &writers);
    }
    std::map<std::string, std::string> results;  // blob → the node that stands for it where it goes out
    for (const std::string& output : net.external_output()) {
      const auto role = roles.find(output);
      const bool is_state = role != roles.end() && role->second == BlobRole::kState;
      results[output] = WriteBlob(output, is_state ? BlobRole::kState : BlobRole::kOutput, indent);
      if (writers.contains(output)) Line(indent, StrCat(writers[output], " -> ", results[output], ";"));
    }
    for (const Recurrence::Pair& pair : pairs) {
      const std::string from = NodeOf(results.contains(pair.written) ? results : writers, pair.written);
      const std::string to = NodeOf(sources, pair.read);
      if (!written.contains(pair.written) || from.empty() || to.empty()) continue;
      const std::string when = pair.steps == 1 ? "next step" : StrCat(pair.steps, " steps later");
      Line(indent, StrCat(from, " -> ", to, " [style=bold, color=\"#b85450\", constraint=false, label=",
                          DotText(StrCat(pair.state, ": ", when)), "];"));
    }
    return first;
  }

  void WriteOperator(const OperatorDef& op, const std::string& indent, int depth,
                     std::map<std::string, std::string>* writers) {
    const std::string node = NewNode();
    Line(indent, StrCat(node, " [style=\"filled,rounded\", fillcolor=\"", op.is_gradient_op() ? "#f8cecc" : "#dae8fc",
                        "\", label=", DotText(op.type()), "];"));
    for (const std::string& input : op.input()) {
      Line(indent, StrCat((*writers)[input], " -> ", node, " [label=", DotText(input), "];"));
    }
    for (const std::string& output : op.output()) (*writers)[output] = node;
    for (const Argument& argument : op.arg()) {
      NetDef net;
      try {
        if (depth >= kDeepest || !NetOfArgument(argument, &net)) continue;
      } catch (const Error&) {
        continue;  // a text that is no net: `check` tells
      }
      const std::string cluster = StrCat("cluster_", nodes_);
      Line(indent, StrCat("subgraph ", cluster, " {"));
      Line(indent + "  ", StrCat("label=", DotText(argument.name()), "; style=rounded;"));
      const bool is_backward = argument.name() == "backward_step_net";
      Recurrence recurrence = RecurrenceOf(op, "");
      if (is_backward) {
        Recurrence backward = RecurrenceOf(op, "backward_");
        recurrence.roles.merge(backward.roles);
        recurrence.pairs = std::move(backward.pairs);
      }
      // What a step captures is the same in all of them.
      for (const std::string& input : op.input()) recurrence.roles.emplace(input, BlobRole::kParameter);
      const std::string first = WriteNet(net, indent + "  ", depth + 1, recurrence.roles, recurrence.pairs);
      Line(indent, "}");
      Line(indent, StrCat(node, " -> ", first, " [style=dashed, lhead=", cluster, "];"));
    }
  }

  std::string text_;
  int nodes_ = 0;
};

}  // namespace

std::string NetAsDot(const NetDef& net) { return DotWriter().Write(net); }

}  // namespace stepnet
