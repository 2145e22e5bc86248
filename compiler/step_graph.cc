#include "stepnet/compiler/step_graph.h"

#include <algorithm>
#include <set>

#include "stepnet/nets/net_check.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

class Importer {
 public:
  Importer(const NetDef& net, const RunOptions& options, const std::map<std::string, TensorInfo>& linked)
      : net_(net), options_(options), linked_(linked), readers_(ReadersOfOutputs(net)) {
    graph_.name = net.name();
  }

  void AddInput(const std::string& blob, const StepInput& input) {
    AddValue({.blob = blob, .version = 0, .info = input.info, .dynamic = input.dynamic, .producer = -1});
  }

  void AddOperator(int k) {
    OperatorDef op = net_.op(k);
    if (!op.has_device_option() && net_.has_device_option()) *op.mutable_device_option() = net_.device_option();
    StepNode node{.init = OperatorCall(op, options_), .op_index = k, .inputs = {}, .outputs = {}};
    for (const std::string& input : op.input()) {
      const auto found = graph_.last.find(input);
      if (found == graph_.last.end()) {
        throw Error(ErrorCode::kInvalidNet, StrCat("\"", input, "\" is read before anything writes it"));
      }
      node.inputs.push_back(found->second);
    }
    node.init.SetReaders(readers_[k]);
    const std::vector<TensorInfo> infos = InferOutputs(&node);
    for (int o = 0; o < op.output_size(); ++o) {
      const auto earlier = graph_.last.find(op.output(o));
      const int version = earlier == graph_.last.end() ? 1 : graph_.values[earlier->second].version + 1;
      const auto linked = linked_.find(op.output(o));
      const bool takes_link = node.dynamic && linked != linked_.end();
      // A tensor of strings cannot live in an arena of bytes.
      const bool dynamic = (node.dynamic && !takes_link) || infos[o].dtype == DType::kString;
      node.outputs.push_back(AddValue({.blob = op.output(o),
                                       .version = version,
                                       .info = takes_link     ? linked->second
                                               : node.dynamic ? TensorInfo{}
                                                              : infos[o],
                                       .dynamic = dynamic,
                                       .producer = static_cast<int>(graph_.nodes.size())}));
      node.dynamic = node.dynamic || dynamic;
    }
    graph_.nodes.push_back(std::move(node));
  }

  StepGraph Finish() { return std::move(graph_); }

  std::string InputsText(int k) const {
    std::vector<std::string> items;
    for (const std::string& input : net_.op(k).input()) {
      const auto found = graph_.last.find(input);
      if (found == graph_.last.end()) continue;
      const StepValue& value = graph_.values[found->second];
      items.push_back(StrCat(input, " ", value.dynamic ? "of unknown shape" : value.info.Description()));
    }
    return Join(items, ", ");
  }

 private:
  int AddValue(StepValue value) {
    const int index = static_cast<int>(graph_.values.size());
    graph_.first.emplace(value.blob, index);
    graph_.last[value.blob] = index;
    if (value.dynamic) graph_.dynamic_blobs.insert(value.blob);
    graph_.values.push_back(std::move(value));
    return index;
  }

  // Empty, with node->dynamic set, when shapes follow only from values.
  std::vector<TensorInfo> InferOutputs(StepNode* node) const {
    const OperatorSchema& schema = node->init.schema();
    node->dynamic = schema.manages_outputs;
    std::vector<TensorInfo> infos;
    for (const int input : node->inputs) {
      node->dynamic = node->dynamic || graph_.values[input].dynamic;
      infos.push_back(graph_.values[input].info);
    }
    std::vector<TensorInfo> outputs(node->init.outputs().size());
    if (node->dynamic) return outputs;
    try {
      std::vector<TensorInfo> inferred = schema.shapes(ShapeQuery(node->init, infos));
      if (inferred.size() < outputs.size()) {
        throw Error(ErrorCode::kInternal, StrCat("the shape rule of ", node->init.type(), " gives ", inferred.size(),
                                                 " outputs, the operator has ", outputs.size()));
      }
      return inferred;
    } catch (const ValueUnknown&) {
      node->dynamic = true;
      return outputs;
    }
  }

  const NetDef& net_;
  const RunOptions& options_;
  const std::map<std::string, TensorInfo>& linked_;
  const std::vector<std::vector<std::vector<std::string>>> readers_;
  StepGraph graph_;
};

}  // namespace

StepGraph ImportStepNet(const NetDef& net, const std::map<std::string, StepInput>& inputs, const RunOptions& options,
                        const std::map<std::string, TensorInfo>& linked) {
  Importer importer(net, options, linked);
  for (const auto& [blob, input] : inputs) importer.AddInput(blob, input);
  for (int k = 0; k < net.op_size(); ++k) {
    try {
      importer.AddOperator(k);
    } catch (...) {
      throw CurrentError().At(
          {.net = net.name(), .op_index = k, .op_text = OperatorText(net.op(k)), .blobs = importer.InputsText(k)});
    }
  }
  return importer.Finish();
}

std::string StepGraph::NameOf(int value) const {
  const StepValue& v = values[value];
  return v.version == 0 ? v.blob : StrCat(v.blob, ".", v.version);
}

std::string StepGraph::ToString() const {
  const auto names = [&](const std::vector<int>& list) {
    std::vector<std::string> items;
    for (const int v : list) items.push_back(NameOf(v));
    return Join(items, ", ");
  };
  std::vector<std::string> inputs;
  for (const StepValue& value : values) {
    if (value.producer < 0) inputs.push_back(value.blob);
  }
  std::string text = StrCat("net ", name, "(", Join(inputs, ", "), ") {\n");
  for (const StepNode& node : nodes) {
    std::vector<std::string> shapes;
    for (const int v : node.outputs) {
      shapes.push_back(values[v].dynamic ? "of unknown shape" : values[v].info.Description());
    }
    text += StrCat("  ", names(node.outputs), " = ", node.init.type(), "(", names(node.inputs), ")  # ",
                   Join(shapes, ", "), "\n");
  }
  return text + "}\n";
}

}  // namespace stepnet
