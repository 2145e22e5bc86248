#include "stepnet/compiler/import_step.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/device.h"
#include "stepnet/core/floating.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/size_values.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

bool GoesIn(const BoundMove& move) {
  return move.kind == BoundMove::Kind::kCopyIn || move.kind == BoundMove::Kind::kAddIn;
}

bool Adds(const BoundMove& move) {
  return move.kind == BoundMove::Kind::kAddIn || move.kind == BoundMove::Kind::kAddOut;
}

// A tensor of strings cannot live in an arena of bytes.
bool IsInBlob(const TensorInfo& info) { return info.dtype == DType::kString; }

// The dtypes of sizes, of which values are a part of the graph.
bool IsOfSizes(DType dtype) { return dtype == DType::kInt32 || dtype == DType::kInt64; }

// What the import knows of a blob.
struct BlobOfStep {
  std::string_view name;
  const BoundBlob* bound = nullptr;
  int home = -1;
  int dynamic_home = -1;
  int last = kNoValue;  // the value that it holds now
  int first_user = kNoOperator;
  int last_writer = kNoOperator;

  static constexpr int kNoOperator = -1;  // the begin of the step
};

// The memory outside that the blob has; null where it has none.
const BoundBlob* LinkOf(const BlobOfStep& blob) {
  return blob.bound != nullptr && blob.bound->home.kind == Home::Kind::kOutside ? blob.bound : nullptr;
}

// The blobs of a step, by numbers: a name is looked up once for each place where the net or a binding writes it.
class BlobTable {
 public:
  BlobTable(const NetDef& net, const StepBindings& bindings) {
    for (const BoundBlob& bound : bindings.blobs) At(NumberOf(bound.home.slot.blob)).bound = &bound;
    for (const BoundMove& move : bindings.moves) NumberOf(move.blob);
    for (const OperatorDef& op : net.op()) {
      std::vector<int>& inputs = inputs_.emplace_back();
      std::vector<int>& outputs = outputs_.emplace_back();
      const auto k = static_cast<int>(inputs_.size()) - 1;
      for (const std::string& input : op.input()) inputs.push_back(NumberOf(input));
      for (const std::string& output : op.output()) outputs.push_back(NumberOf(output));
      for (const std::vector<int>* blobs : {&inputs, &outputs}) {
        for (const int blob : *blobs) {
          if (At(blob).first_user == BlobOfStep::kNoOperator) At(blob).first_user = k;
        }
      }
      for (const int blob : outputs) At(blob).last_writer = k;
    }
  }

  // REQUIRES: the characters of the name live as long as the table.
  int NumberOf(std::string_view name) {
    const auto [found, is_new] = numbers_.try_emplace(name, static_cast<int>(blobs_.size()));
    if (is_new) blobs_.push_back({.name = name});
    return found->second;
  }
  BlobOfStep& At(int blob) { return blobs_[blob]; }
  const BlobOfStep& At(int blob) const { return blobs_[blob]; }
  int Find(const std::string& name) const { return numbers_.at(name); }
  const std::vector<BlobOfStep>& all() const { return blobs_; }

  const std::vector<int>& InputsOf(int op_index) const { return inputs_[op_index]; }
  const std::vector<int>& OutputsOf(int op_index) const { return outputs_[op_index]; }

 private:
  std::unordered_map<std::string_view, int> numbers_;
  std::vector<BlobOfStep> blobs_;
  std::vector<std::vector<int>> inputs_;  // by operator
  std::vector<std::vector<int>> outputs_;
};

// Says between which operators moves come.
class MoveOrder {
 public:
  MoveOrder(const std::vector<BoundMove>& moves, const BlobTable& blobs, int num_operators)
      : before_(num_operators + 1), after_(num_operators + 1) {
    for (const BoundMove& move : moves) {
      const BlobOfStep& blob = blobs.At(blobs.Find(move.blob));
      if (!GoesIn(move) && blob.last_writer != BlobOfStep::kNoOperator) {
        after_[blob.last_writer + 1].push_back(&move);
      } else {
        before_[blob.first_user + 1].push_back(&move);
      }
    }
  }

  const std::vector<const BoundMove*>& Before(int op_index) const { return before_[op_index + 1]; }
  const std::vector<const BoundMove*>& After(int op_index) const { return after_[op_index + 1]; }

 private:
  std::vector<std::vector<const BoundMove*>> before_;  // by operator, behind the begin of the step
  std::vector<std::vector<const BoundMove*>> after_;
};

class Importer {
 public:
  Importer(const std::shared_ptr<const NetDef>& net, const RunOptions& options, const StepBindings& bindings,
           StepGraph* graph)
      : owner_(net),
        net_(*net),
        options_(std::make_shared<const RunOptions>(options)),
        bindings_(bindings),
        readers_(ReadersOfOutputs(net_)),
        sizes_(BlobsOfSizes(net_)),
        blobs_(net_, bindings),
        graph_(*graph) {
    graph_.name = net_.name();
    graph_.target = options.target;
  }

  // A blob that has a value before the step.
  void AddInput(const std::string& blob, const TensorInfo& info, bool dynamic) {
    AddValueOf(blobs_.NumberOf(blob), {.info = info, .dynamic = dynamic});
  }

  void Run() {
    ReserveRoom();
    for (const BoundBlob& bound : bindings_.blobs) {
      const bool is_dynamic = bound.home.kind == Home::Kind::kDynamic;
      if (bound.readable) AddInput(bound.home.slot.blob, bound.info, is_dynamic);
    }
    const MoveOrder order(bindings_.moves, blobs_, net_.op_size());
    AddMoves(order.Before(BlobOfStep::kNoOperator));
    for (int k = 0; k < net_.op_size(); ++k) {
      CheckCancelled();
      AddMoves(order.Before(k));
      try {
        AddOperator(k);
      } catch (...) {
        throw CurrentError().At(
            {.net = net_.name(), .op_index = k, .op_text = OperatorText(net_.op(k)), .blobs = InputsText(k)});
      }
      AddMoves(order.After(k));
    }
    CheckLinks();
    if (!bindings_.outputs.empty()) AddOutputs();
    NoteLast();
    NoteKept();
  }

 private:
  // For the usual step, which binds its blobs and has few moves.
  void ReserveRoom() {
    size_t num_outputs = 0;
    for (const OperatorDef& op : net_.op()) num_outputs += static_cast<size_t>(op.output_size());
    const size_t num_values = bindings_.blobs.size() + bindings_.moves.size() + num_outputs;
    graph_.nodes.reserve(static_cast<size_t>(net_.op_size()) + bindings_.moves.size());
    graph_.values.reserve(num_values);
    blob_of_.reserve(num_values);
  }

  int HomeOf(BlobOfStep* blob) {
    if (blob->home >= 0) return blob->home;
    graph_.homes.push_back(blob->bound != nullptr ? blob->bound->home : Home());
    return blob->home = static_cast<int>(graph_.homes.size()) - 1;
  }

  // Its values of no known shape live there.
  int DynamicHomeOf(BlobOfStep* blob) {
    if (blob->bound != nullptr && blob->bound->home.kind == Home::Kind::kDynamic) return HomeOf(blob);
    if (blob->dynamic_home >= 0) return blob->dynamic_home;
    graph_.homes.push_back({.kind = Home::Kind::kDynamic});
    return blob->dynamic_home = static_cast<int>(graph_.homes.size()) - 1;
  }

  int AddValueOf(int blob, StepValue value) { return AddValueIn(HomeOf(&blobs_.At(blob)), blob, std::move(value)); }

  int AddValueIn(int home, int blob, StepValue value) {
    BlobOfStep& of = blobs_.At(blob);
    value.blob = of.name;
    value.home = home;
    blob_of_.resize(graph_.values.size(), -1);  // of memory outside
    blob_of_.push_back(blob);
    return of.last = graph_.AddValue(std::move(value));
  }

  int AddValueOutside(const BoundMove& move, int producer) {
    graph_.homes.push_back(move.outside);
    return graph_.AddValue({.blob = move.outside.slot.blob,
                            .outside = true,
                            .info = move.info,
                            .home = static_cast<int>(graph_.homes.size()) - 1,
                            .producer = producer,
                            .added = producer >= 0 && Adds(move)});
  }

  int NextNode() const { return static_cast<int>(graph_.nodes.size()); }

  void AddMoves(const std::vector<const BoundMove*>& moves) {
    for (const BoundMove* move : moves) AddMove(*move);
  }

  void AddMove(const BoundMove& move) {
    const int blob = blobs_.Find(move.blob), known = blobs_.At(blob).last;
    if (known != kNoValue) CheckSizes(move, graph_.values[known]);
    if (Adds(move) && !IsFloatOrDouble(move.info.dtype)) {
      throw Error(ErrorCode::kTypeMismatch,
                  StrCat("gradients are summed in float and double; \"", move.blob, "\" is ", move.info.Description()));
    }
    StepNode node{.kind = StepNode::Kind::kMove};
    if (GoesIn(move)) {
      node.inputs = {AddValueOutside(move, /*producer=*/-1)};
      StepValue value{.info = move.info, .dynamic = IsInBlob(move.info)};
      if (known != kNoValue) {
        value = {.info = graph_.values[known].info,
                 .dynamic = graph_.values[known].dynamic,
                 .home = graph_.values[known].home};
      } else {
        value.home = value.dynamic ? DynamicHomeOf(&blobs_.At(blob)) : HomeOf(&blobs_.At(blob));
      }
      value.producer = NextNode();
      value.added = Adds(move);
      node.by_blobs = value.dynamic;
      node.outputs = {AddValueIn(value.home, blob, value)};
    } else if (known != kNoValue) {
      node.inputs = {known};
      node.outputs = {AddValueOutside(move, NextNode())};
      node.by_blobs = graph_.values[known].dynamic;
    } else if (move.required) {
      ThrowMissing(move.blob);
    } else {
      return;
    }
    graph_.nodes.push_back(std::move(node));
  }

  [[noreturn]] void ThrowMissing(const std::string& missing) const {
    std::set<std::string> known;
    for (const BlobOfStep& blob : blobs_.all()) {
      if (blob.last != kNoValue) known.emplace(blob.name);
    }
    const std::vector<std::string> blobs(known.begin(), known.end());
    throw Error(ErrorCode::kInvalidNet, StrCat("nothing in the ", graph_.backward ? "backward step net" : "step net",
                                               " writes \"", missing, "\"", DidYouMean(missing, blobs)))
        .At({.net = graph_.name});
  }

  // What is known only at each step is compared then.
  void CheckSizes(const BoundMove& move, const StepValue& value) const {
    const bool fits = value.info.dtype == move.info.dtype && value.info.shape.size() == move.info.shape.size();
    if (value.dynamic || fits) return;
    throw Error(ErrorCode::kShapeMismatch,
                StrCat("\"", move.blob, "\" is ", value.info.Description(), " in the step net; it belongs to \"",
                       move.outside.slot.blob, "\", where a step has room for ", move.info.Description()))
        .At({.net = graph_.name});
  }

  void AddOperator(int k) {
    std::vector<int> inputs;
    for (const int input : blobs_.InputsOf(k)) {
      const BlobOfStep& blob = blobs_.At(input);
      if (blob.last == kNoValue) {
        throw Error(ErrorCode::kInvalidNet, StrCat("\"", blob.name, "\" is read before anything writes it"));
      }
      inputs.push_back(blob.last);
    }
    StepNode node = CallOf(k, std::move(inputs));
    std::vector<TensorInfo> infos = InferOutputs(&node);
    node.by_blobs = node.by_blobs || std::ranges::any_of(infos, IsInBlob);
    if (node.by_blobs) return AddDynamicOperator(k, std::move(node));
    const std::vector<Tensor> known = ComputeSizes(node, infos);
    for (size_t o = 0; o < blobs_.OutputsOf(k).size(); ++o) {
      if (o < known.size() && IsOfSizes(infos[o].dtype)) infos[o].value = known[o];
      const int output = AddValueOf(blobs_.OutputsOf(k)[o], {.info = infos[o], .producer = NextNode()});
      node.outputs.push_back(output);
      if (o < known.size()) known_.emplace(output, known[o]);
    }
    graph_.nodes.push_back(std::move(node));
  }

  // Its outputs live in blobs. Moves take them from there to the memory of links, where there are some. An operator
  // that works in place finds its input in the blob of its output.
  void AddDynamicOperator(int k, StepNode node) {
    const std::vector<int>& outputs = blobs_.OutputsOf(k);
    for (const int output : outputs) {
      const int from = blobs_.At(output).last, home = DynamicHomeOf(&blobs_.At(output));
      const bool is_elsewhere = from != kNoValue && graph_.values[from].home != home;
      if (!is_elsewhere || std::ranges::count(node.inputs, from) == 0) continue;
      const int copy = AddValueIn(home, output, {.dynamic = true, .producer = NextNode()});
      graph_.nodes.push_back({.kind = StepNode::Kind::kMove, .inputs = {from}, .outputs = {copy}, .by_blobs = true});
      std::ranges::replace(node.inputs, from, copy);
    }
    for (const int output : outputs) {
      const int home = DynamicHomeOf(&blobs_.At(output));
      node.outputs.push_back(AddValueIn(home, output, {.dynamic = true, .producer = NextNode()}));
    }
    graph_.nodes.push_back(std::move(node));
    for (const int output : outputs) {
      const BoundBlob* const link = LinkOf(blobs_.At(output));
      const int made = blobs_.At(output).last;
      if (link == nullptr || !graph_.values[made].dynamic) continue;
      const int linked = AddValueOf(output, {.info = link->info, .producer = NextNode()});
      graph_.nodes.push_back({.kind = StepNode::Kind::kMove, .inputs = {made}, .outputs = {linked}, .by_blobs = true});
    }
  }

  StepNode CallOf(int k, std::vector<int> inputs) const {
    std::shared_ptr<const OperatorDef> def(owner_, &net_.op(k));
    if (!def->has_device_option() && net_.has_device_option()) {
      OperatorDef placed = *def;
      *placed.mutable_device_option() = net_.device_option();
      def = std::make_shared<const OperatorDef>(std::move(placed));
    }
    const auto call = std::make_shared<OperatorCall>(*def, options_, readers_[k]);
    return {.call = call, .def = std::move(def), .op_index = k, .inputs = std::move(inputs)};
  }

  // Empty, with node->by_blobs set, when shapes follow only from values.
  std::vector<TensorInfo> InferOutputs(StepNode* node) const {
    const OperatorSchema& schema = node->call->schema();
    node->by_blobs = schema.TakesBlobs(graph_.target->device);
    std::vector<TensorInfo> infos;
    infos.reserve(node->inputs.size());
    for (const int input : node->inputs) {
      node->by_blobs = node->by_blobs || graph_.values[input].dynamic;
      infos.push_back(graph_.values[input].info);
    }
    std::vector<TensorInfo> outputs(node->call->outputs().size());
    if (node->by_blobs) return outputs;
    try {
      std::vector<TensorInfo> inferred = schema.shapes(ShapeQuery(*node->call, infos));
      if (inferred.size() < outputs.size()) {
        throw Error(ErrorCode::kInternal, StrCat("the shape rule of ", node->call->type(), " gives ", inferred.size(),
                                                 " outputs, the operator has ", outputs.size()));
      }
      return inferred;
    } catch (const ValueUnknown&) {
      node->by_blobs = true;
      return outputs;
    }
  }

  // The outputs of an operator that decide about shapes, where they follow from what is known before the step runs.
  std::vector<Tensor> ComputeSizes(const StepNode& node, const std::vector<TensorInfo>& outputs) const {
    const auto is_size = [&](const std::string& output) { return sizes_.contains(output); };
    if (!std::ranges::any_of(node.call->outputs(), is_size)) return {};
    std::vector<Tensor> inputs;
    for (const int input : node.inputs) {
      const auto known = known_.find(input);
      inputs.push_back(known != known_.end() ? known->second : graph_.values[input].info.value);
    }
    return ValuesOfOutputs(*node.def, inputs, outputs);
  }

  std::string InputsText(int k) const {
    std::vector<std::string> items;
    for (const int input : blobs_.InputsOf(k)) {
      const BlobOfStep& blob = blobs_.At(input);
      if (blob.last == kNoValue) continue;
      const StepValue& value = graph_.values[blob.last];
      items.push_back(StrCat(blob.name, " ", value.dynamic ? "of unknown shape" : value.info.Description()));
    }
    return Join(items, ", ");
  }

  // The value that a step leaves in a linked blob must have the link's shape, and values on the way there its size:
  // memory outside does not move.
  void CheckLinks() const {
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const StepValue& value = graph_.values[v];
      if (value.outside || value.dynamic || value.producer < 0) continue;
      const BlobOfStep& blob = blobs_.At(blob_of_[v]);
      const StepNode& node = graph_.nodes[value.producer];
      if (LinkOf(blob) == nullptr || node.kind != StepNode::Kind::kCall) continue;
      const TensorInfo& info = blob.bound->info;
      const bool is_last = blob.last == static_cast<int>(v);
      const bool fits = value.info.dtype == info.dtype && value.info.shape.size() == info.shape.size() &&
                        (!is_last || EqualButForOnes(value.info.shape, info.shape));
      if (fits) continue;
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("\"", value.blob, "\" is linked to memory for ", info.Description(), " a step",
                         blob.bound->sized_by.empty() ? "" : StrCat(", as \"", blob.bound->sized_by, "\" starts it"),
                         ", and ", node.call->type(), " gives ", value.info.Description()))
          .At({.net = graph_.name, .op_index = node.op_index, .op_text = node.call->Text()});
    }
  }

  void AddOutputs() {
    std::vector<std::vector<StepNode>> behind(graph_.nodes.size() + 1);
    for (const BoundOutput& output : bindings_.outputs) {
      const int given = blobs_.At(blobs_.Find(output.blob)).last;
      const StepValue& value = graph_.values[given];
      const Home::Kind kind = graph_.homes[value.home].kind;
      if (kind == Home::Kind::kDynamic) ThrowUnknownShape(output);
      const bool is_final = kind == Home::Kind::kTemporary && value.producer >= 0;
      behind[is_final ? value.producer : graph_.nodes.size()].push_back(
          {.kind = StepNode::Kind::kMove, .inputs = {given}, .outputs = {AddRowOf(output, value.info)}});
    }
    std::vector<StepNode> nodes;
    nodes.reserve(graph_.nodes.size() + bindings_.outputs.size());
    for (size_t n = 0; n < behind.size(); ++n) {
      if (n < graph_.nodes.size()) nodes.push_back(std::move(graph_.nodes[n]));
      std::ranges::move(behind[n], std::back_inserter(nodes));
    }
    graph_.nodes = std::move(nodes);
    graph_.FindProducers();
  }

  // The value outside that a step gives of an output.
  int AddRowOf(const BoundOutput& output, TensorInfo info) {
    const std::int64_t bytes = info.size_bytes();
    graph_.homes.push_back({.kind = Home::Kind::kOutside,
                            .slot = {.blob = output.name,
                                     .storage_class = StorageClass::kLinked,
                                     .base = output.base,
                                     .row_bytes = bytes,
                                     .bytes = bytes}});
    return graph_.AddValue({.blob = output.name,
                            .outside = true,
                            .info = std::move(info),
                            .home = static_cast<int>(graph_.homes.size()) - 1});
  }

  [[noreturn]] void ThrowUnknownShape(const BoundOutput& output) const {
    throw Error(ErrorCode::kShapeMismatch,
                StrCat("step_output_src names \"", output.blob,
                       "\", whose shape is known only when a step has run; make it the new row of a state, which "
                       "says what shape it has"));
  }

  void NoteLast() {
    for (const BlobOfStep& blob : blobs_.all()) {
      if (blob.last != kNoValue) graph_.last.emplace(blob.name, blob.last);
    }
  }

  // What lives outside stays there anyway.
  void NoteKept() {
    for (const auto& [blob, value] : graph_.last) {
      Home& home = graph_.homes[graph_.values[value].home];
      if (home.kind != Home::Kind::kOutside) home.kept = bindings_.keeps_all || IsKept(blob, home);
    }
  }

  bool IsKept(const std::string& blob, const Home& home) const {
    const auto kept = bindings_.kept.find(blob);
    if (kept == bindings_.kept.end()) return false;
    return kept->second == KeptPart::kValue || home.kind == Home::Kind::kDynamic;
  }

  const std::shared_ptr<const NetDef> owner_;
  const NetDef& net_;
  const std::shared_ptr<const RunOptions> options_;
  const StepBindings& bindings_;
  const std::vector<OperatorCall::Readers> readers_;
  const std::set<std::string> sizes_;  // blobs that decide about shapes
  BlobTable blobs_;
  std::map<int, Tensor> known_;  // by value, of those that decide about shapes: what operators give
  std::vector<int> blob_of_;     // by value
  StepGraph& graph_;
};

}  // namespace

void ImportStep(const std::shared_ptr<const NetDef>& net, const RunOptions& options, const StepBindings& bindings,
                StepGraph* graph) {
  Importer(net, options, bindings, graph).Run();
}

StepGraph ImportStep(NetDef net, const std::map<std::string, TensorInfo>& inputs) {
  const RunOptions options;
  const StepBindings bindings;
  StepGraph graph;
  Importer importer(std::make_shared<const NetDef>(std::move(net)), options, bindings, &graph);
  for (const auto& [blob, info] : inputs) importer.AddInput(blob, info, /*dynamic=*/false);
  importer.Run();
  return graph;
}

}  // namespace stepnet
