// Nets as Graphviz draws them.
#include <map>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/tools/rnn_runner/net_text.h"
#include "stepnet/tools/rnn_runner/text.h"

namespace stepnet::runner {
namespace {

constexpr int kDeepest = 100;

// In double quotes. Graphviz knows \" and \\ and takes \n as the end of a line; other control characters are shown.
std::string DotText(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) result += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  std::string line;
  for (const char c : Printable(result)) line += c == '\n' ? "\\n" : std::string(1, c);
  return line + "\"";
}

class DotWriter {
 public:
  std::string Write(const NetDef& net) {
    text_ =
        "digraph net {\n"
        "  node [shape=box, fontname=\"Helvetica\", fontsize=10];\n"
        "  edge [fontname=\"Helvetica\", fontsize=9];\n"
        "  compound=true;\n";
    WriteNet(net, "  ", 0);
    return text_ + "}\n";
  }

 private:
  void Line(const std::string& indent, const std::string& text) { text_ += indent + text + "\n"; }
  std::string NewNode() { return StrCat("n", nodes_++); }

  // A blob that comes from outside the net or leaves it.
  std::string WriteBlob(const std::string& blob, const std::string& indent) {
    const std::string node = NewNode();
    Line(indent, StrCat(node, " [shape=ellipse, label=", DotText(blob), "];"));
    return node;
  }

  // Returns the net's first node, for arrows that point to the net as a whole.
  std::string WriteNet(const NetDef& net, const std::string& indent, int depth) {
    const std::string first = NewNode();
    Line(indent, StrCat(first, " [shape=plaintext, label=", DotText("net " + net.name()), "];"));
    std::map<std::string, std::string> writers;  // blob → the node that gives its latest value
    for (const std::string& input : net.external_input()) {
      if (!writers.contains(input)) writers[input] = WriteBlob(input, indent);
    }
    for (const OperatorDef& op : net.op()) WriteOperator(op, indent, depth, &writers);
    for (const std::string& output : net.external_output()) {
      const std::string node = WriteBlob(output, indent);
      if (writers.contains(output)) Line(indent, StrCat(writers[output], " -> ", node, ";"));
    }
    return first;
  }

  void WriteOperator(const OperatorDef& op, const std::string& indent, int depth,
                     std::map<std::string, std::string>* writers) {
    const std::string node = NewNode();
    Line(indent, StrCat(node, " [style=filled, fillcolor=", op.is_gradient_op() ? "mistyrose" : "lightblue",
                        ", label=", DotText(op.type()), "];"));
    for (const std::string& input : op.input()) {
      if (!writers->contains(input)) (*writers)[input] = WriteBlob(input, indent);
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
      const std::string first = WriteNet(net, indent + "  ", depth + 1);
      Line(indent, "}");
      Line(indent, StrCat(node, " -> ", first, " [style=dashed, lhead=", cluster, "];"));
    }
  }

  std::string text_;
  int nodes_ = 0;
};

}  // namespace

std::string NetAsDot(const NetDef& net) { return DotWriter().Write(net); }

}  // namespace stepnet::runner
