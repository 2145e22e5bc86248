#include "stepnet/compiler/import_step.h"

#include <algorithm>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/device.h"
#include "stepnet/core/floating.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

bool GoesIn(const StepMove& move) {
  return move.kind == StepMove::Kind::kCopyIn || move.kind == StepMove::Kind::kAddIn;
}

bool Adds(const StepMove& move) { return move.kind == StepMove::Kind::kAddIn || move.kind == StepMove::Kind::kAddOut; }

// Between which operators moves come.
class MoveOrder {
 public:
  explicit MoveOrder(const StepPlanRequest& request) {
    const NetDef& net = *request.net;
    std::map<std::string, int> first_user, last_writer;
    for (int k = 0; k < net.op_size(); ++k) {
      for (const auto* blobs : {&net.op(k).input(), &net.op(k).output()}) {
        for (const std::string& blob : *blobs) first_user.emplace(blob, k);
      }
      for (const std::string& blob : net.op(k).output()) last_writer[blob] = k;
    }
    std::set<std::string> bound;
    for (const BoundBlob& blob : request.bound) bound.insert(blob.slot.blob);
    const auto find = [](const std::map<std::string, int>& operators, const std::string& blob) {
      const auto found = operators.find(blob);
      return found == operators.end() ? kNoOperator : found->second;
    };
    for (const StepMove& move : request.moves) {
      const bool is_step_output = move.kind == StepMove::Kind::kCopyOut && move.required;
      const int writer = find(last_writer, move.blob);
      const bool may_change = writer == kNoOperator || bound.contains(move.blob);
      const int after = is_step_output && may_change ? net.op_size() - 1 : writer;
      if (!GoesIn(move) && after != kNoOperator) {
        after_[after].push_back(&move);
      } else {
        before_[find(first_user, move.blob)].push_back(&move);
      }
    }
  }

  static constexpr int kNoOperator = -1;  // the begin of the step

  const std::vector<const StepMove*>& Before(int op_index) { return before_[op_index]; }
  const std::vector<const StepMove*>& After(int op_index) { return after_[op_index]; }

 private:
  std::map<int, std::vector<const StepMove*>> before_;
  std::map<int, std::vector<const StepMove*>> after_;
};

class Importer {
 public:
  explicit Importer(const StepPlanRequest& request)
      : request_(request), net_(*request.net), readers_(ReadersOfOutputs(net_)) {
    graph_.name = net_.name();
    graph_.backward = request.backward;
    graph_.target = request.options.target;
    graph_.num_bases = request.num_bases;
    graph_.num_lists = request.num_dynamic_lists;
    graph_.before = request.before;
    graph_.after = request.after;
    for (const BoundBlob& bound : request.bound) bound_[bound.slot.blob] = &bound;
  }

  // A blob that has a value before the step.
  void AddInput(const std::string& blob, const TensorInfo& info, bool dynamic) {
    AddValueOf(blob, {.info = info, .dynamic = dynamic});
  }

  StepGraph Run() {
    for (const BoundBlob& bound : request_.bound) {
      if (bound.readable) AddInput(bound.slot.blob, bound.info, /*dynamic=*/false);
    }
    for (const auto& [blob, list] : request_.bound_dynamic) AddInput(blob, {}, /*dynamic=*/true);
    MoveOrder order(request_);
    AddMoves(order.Before(MoveOrder::kNoOperator));
    for (int k = 0; k < net_.op_size(); ++k) {
      if (net_.op(k).type().empty()) continue;  // as WithoutEqualSums leaves them
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
    FindWhatIsDynamic();
    return std::move(graph_);
  }

 private:
  int HomeOf(const std::string& blob) {
    const auto [found, is_new] = homes_.try_emplace(blob, static_cast<int>(graph_.homes.size()));
    if (!is_new) return found->second;
    Home home;
    if (const auto bound = bound_.find(blob); bound != bound_.end()) {
      const Slot& slot = bound->second->slot;
      home = {.kind = Home::Kind::kOutside, .slot = slot, .lent = request_.lent.contains(slot.base)};
    } else if (const auto list = request_.bound_dynamic.find(blob); list != request_.bound_dynamic.end()) {
      home = {.kind = Home::Kind::kDynamic, .list = list->second};
    } else {
      home.kept = request_.keep && request_.keep(blob);
    }
    graph_.homes.push_back(home);
    return found->second;
  }

  int AddValueOf(const std::string& blob, StepValue value) {
    value.blob = blob;
    value.home = HomeOf(blob);
    return graph_.last[blob] = graph_.AddValue(std::move(value));
  }

  int AddValueOutside(const StepMove& move, int producer) {
    graph_.homes.push_back({.kind = Home::Kind::kOutside,
                            .slot = move.outside,
                            .starts_at_zero = move.starts_at_zero,
                            .lent = request_.lent.contains(move.outside.base)});
    return graph_.AddValue({.blob = move.outside.blob,
                            .outside = true,
                            .info = move.info,
                            .home = static_cast<int>(graph_.homes.size()) - 1,
                            .producer = producer,
                            .added = producer >= 0 && Adds(move)});
  }

  int NextNode() const { return static_cast<int>(graph_.nodes.size()); }

  void AddMoves(const std::vector<const StepMove*>& moves) {
    for (const StepMove* move : moves) AddMove(*move);
  }

  void AddMove(const StepMove& move) {
    const auto known = graph_.last.find(move.blob);
    if (known != graph_.last.end()) CheckSizes(move, graph_.values[known->second]);
    if (Adds(move) && !IsFloatOrDouble(move.info.dtype)) {
      throw Error(ErrorCode::kTypeMismatch,
                  StrCat("gradients are summed in float and double; \"", move.blob, "\" is ", move.info.Description()));
    }
    StepNode node{.kind = StepNode::Kind::kMove};
    if (GoesIn(move)) {
      node.inputs = {AddValueOutside(move, /*producer=*/-1)};
      const bool is_known = known != graph_.last.end();
      const TensorInfo info = is_known ? graph_.values[known->second].info : move.info;
      node.outputs = {AddValueOf(move.blob, {.info = info, .producer = NextNode(), .added = Adds(move)})};
    } else if (known != graph_.last.end()) {
      node.inputs = {known->second};
      node.outputs = {AddValueOutside(move, NextNode())};
    } else if (move.required) {
      ThrowMissing(move.blob);
    } else {
      return;
    }
    graph_.nodes.push_back(std::move(node));
  }

  [[noreturn]] void ThrowMissing(const std::string& missing) const {
    std::vector<std::string> blobs;
    for (const auto& [blob, value] : graph_.last) blobs.push_back(blob);
    throw Error(ErrorCode::kInvalidNet, StrCat("nothing in the ", request_.backward ? "backward step net" : "step net",
                                               " writes \"", missing, "\"", DidYouMean(missing, blobs)))
        .At({.net = graph_.name});
  }

  // What is known only at each step is compared then.
  void CheckSizes(const StepMove& move, const StepValue& value) const {
    const bool fits = value.info.dtype == move.info.dtype && value.info.shape.size() == move.info.shape.size();
    if (value.dynamic || fits) return;
    throw Error(ErrorCode::kShapeMismatch,
                StrCat("\"", move.blob, "\" is ", value.info.Description(), " in the step net; it belongs to \"",
                       move.outside.blob, "\", where a step has room for ", move.info.Description()))
        .At({.net = graph_.name});
  }

  void AddOperator(int k) {
    auto def = std::make_shared<OperatorDef>(net_.op(k));
    if (!def->has_device_option() && net_.has_device_option()) *def->mutable_device_option() = net_.device_option();
    const auto call = std::make_shared<OperatorCall>(*def, request_.options);
    call->SetReaders(readers_[k]);
    StepNode node{.call = call, .def = def, .op_index = k};
    for (const std::string& input : def->input()) {
      const auto found = graph_.last.find(input);
      if (found == graph_.last.end()) {
        throw Error(ErrorCode::kInvalidNet, StrCat("\"", input, "\" is read before anything writes it"));
      }
      node.inputs.push_back(found->second);
    }
    const std::vector<TensorInfo> infos = InferOutputs(&node);
    bool dynamic = node.by_blobs;
    for (int o = 0; o < def->output_size(); ++o) {
      const auto link = bound_.find(def->output(o));
      // The memory of a link says what is in it. A tensor of strings cannot live in an arena of bytes.
      const bool takes_link = dynamic && link != bound_.end();
      const bool is_unknown = (dynamic && !takes_link) || infos[o].dtype == DType::kString;
      const TensorInfo info = takes_link ? link->second->info : dynamic ? TensorInfo{} : infos[o];
      node.outputs.push_back(AddValueOf(def->output(o), {.info = info, .dynamic = is_unknown, .producer = NextNode()}));
      dynamic = dynamic || is_unknown;
    }
    node.by_blobs = dynamic;
    graph_.nodes.push_back(std::move(node));
  }

  // Empty, with node->by_blobs set, when shapes follow only from values.
  std::vector<TensorInfo> InferOutputs(StepNode* node) const {
    const OperatorSchema& schema = node->call->schema();
    node->by_blobs = schema.TakesBlobs(graph_.target->device);
    std::vector<TensorInfo> infos;
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

  // The value that a step leaves in a linked blob must have the link's shape, and values on the way there its size:
  // memory outside does not move.
  void CheckLinks() const {
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const StepValue& value = graph_.values[v];
      const auto bound = bound_.find(value.blob);
      if (value.outside || bound == bound_.end() || value.dynamic || value.producer < 0) continue;
      const StepNode& node = graph_.nodes[value.producer];
      if (node.kind != StepNode::Kind::kCall) continue;
      const TensorInfo& info = bound->second->info;
      const bool is_last = graph_.last.at(value.blob) == static_cast<int>(v);
      const bool fits = value.info.dtype == info.dtype && value.info.shape.size() == info.shape.size() &&
                        (!is_last || EqualButForOnes(value.info.shape, info.shape));
      if (fits) continue;
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("\"", value.blob, "\" is linked to memory for ", info.Description(), " a step, and ",
                         node.call->type(), " gives ", value.info.Description()))
          .At({.net = graph_.name, .op_index = node.op_index, .op_text = node.call->Text()});
    }
  }

  // Blobs of which one value is dynamic are for all.
  void FindWhatIsDynamic() {
    for (const StepValue& value : graph_.values) {
      Home& home = graph_.homes[value.home];
      const bool is_dynamic = value.dynamic || value.info.dtype == DType::kString;
      if (is_dynamic && home.kind == Home::Kind::kTemporary) home.kind = Home::Kind::kDynamic;
    }
    const auto is_dynamic = [this](int value) {
      return graph_.homes[graph_.values[value].home].kind == Home::Kind::kDynamic;
    };
    for (StepNode& node : graph_.nodes) {
      node.by_blobs = node.by_blobs || std::ranges::any_of(node.inputs, is_dynamic) ||
                      std::ranges::any_of(node.outputs, is_dynamic);
    }
  }

  const StepPlanRequest& request_;
  const NetDef& net_;
  const std::vector<std::vector<std::vector<std::string>>> readers_;
  std::map<std::string, const BoundBlob*> bound_;
  std::map<std::string, int> homes_;  // by blob
  StepGraph graph_;
};

}  // namespace

StepGraph ImportStep(const StepPlanRequest& request) { return Importer(request).Run(); }

StepGraph ImportStep(const NetDef& net, const std::map<std::string, TensorInfo>& inputs) {
  StepPlanRequest request;
  request.net = &net;
  Importer importer(request);
  for (const auto& [blob, info] : inputs) importer.AddInput(blob, info, /*dynamic=*/false);
  return importer.Run();
}

}  // namespace stepnet
