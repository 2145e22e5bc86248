#include "stepnet/compiler/verify_operators.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "stepnet/compiler/uses.h"

namespace stepnet {
namespace {

// Whether an operator may be one of a region's.
bool HasParts(const OperatorCall& call) { return call.schema().formula || call.schema().expansion; }

// An operator with the values that it reads and gives, in a node of its own or in a region.
class Operands {
 public:
  Operands(const StepGraph& graph, const OperatorCall& call, const std::vector<int>& inputs,
           const std::vector<int>& outputs)
      : graph_(graph), call_(call), schema_(call.schema()), inputs_(inputs), outputs_(outputs) {}

  void CheckNumber() const {
    const auto fits = [](size_t count, size_t of_call, int low, int high) {
      return count == of_call && static_cast<int>(count) >= low && static_cast<int>(count) <= high;
    };
    const bool is_whole = fits(inputs_.size(), call_.inputs().size(), schema_.min_inputs(), schema_.max_inputs()) &&
                          fits(outputs_.size(), call_.outputs().size(), schema_.min_outputs(), schema_.max_outputs());
    if (is_whole) return;
    throw GraphFault{
        StrCat(call_.type(), " does not take ", inputs_.size(), " inputs and give ", outputs_.size(), " outputs")};
  }

  // Kernels that take blobs replace the tensor of a blob and never write into it.
  void CheckInPlace() const {
    if (schema_.TakesBlobs(graph_.target->device)) return;
    for (size_t o = 0; o < outputs_.size(); ++o) {
      int shown = kNoValue;
      bool is_allowed = false;
      for (size_t i = 0; i < inputs_.size(); ++i) {
        if (!AreInOnePlace(i, o)) continue;
        shown = inputs_[i];
        is_allowed = is_allowed || schema_.AllowsInPlace(static_cast<int>(i), static_cast<int>(o));
      }
      if (shown == kNoValue || is_allowed) continue;
      throw GraphFault{
          StrCat(call_.type(), " cannot work in place: ", NameOf(outputs_[o]), " is where it reads ", NameOf(shown))};
    }
    for (const auto& [i, o] : schema_.enforced_in_place) {
      const bool has_both = i < static_cast<int>(inputs_.size()) && o < static_cast<int>(outputs_.size());
      if (!has_both || outputs_[o] == kNoValue || AreInOnePlace(i, o)) continue;
      throw GraphFault{
          StrCat(call_.type(), " works in place: ", NameOf(outputs_[o]), " must be where ", NameOf(inputs_[i]), " is")};
    }
  }

  // REQUIRES: shapes are right, where the operator may add.
  void CheckAdded(bool may_add) const {
    for (const int output : outputs_) {
      if (output == kNoValue || !graph_.values[output].added || (may_add && CanAdd(graph_, output))) continue;
      throw GraphFault{StrCat(call_.type(), " cannot add to ", NameOf(output))};
    }
  }

  // Memory outside shows elements in a shape of its own.
  void CheckGiven(const std::vector<TensorInfo>& given) const {
    for (size_t o = 0; o < outputs_.size(); ++o) {
      if (outputs_[o] == kNoValue) continue;
      const StepValue& value = graph_.values[outputs_[o]];
      const bool is_as_large = value.outside && value.info.shape.size() == given[o].shape.size();
      if (value.info.dtype == given[o].dtype && (is_as_large || value.info.shape == given[o].shape)) continue;
      throw GraphFault{StrCat(NameOf(outputs_[o]), " is ", value.info.Description(), "; ", call_.type(), " gives ",
                              given[o].Description())};
    }
  }

  // What has no known shape goes through blobs, and all that the operator gives is there.
  void CheckBlobs(bool by_blobs) const {
    const auto is_blob = [this](int value) {
      return value != kNoValue && graph_.homes[graph_.values[value].home].kind == Home::Kind::kDynamic;
    };
    const bool needs_blobs = std::ranges::any_of(inputs_, is_blob) || std::ranges::any_of(outputs_, is_blob) ||
                             schema_.TakesBlobs(graph_.target->device);
    if (needs_blobs && !by_blobs) throw GraphFault{StrCat(call_.type(), " has blobs and does not run with them")};
    if (by_blobs && !std::ranges::all_of(outputs_, is_blob)) {
      throw GraphFault{StrCat(call_.type(), " runs with blobs, and what it gives lives elsewhere")};
    }
    const Kernel* const kernel = schema_.FindKernel(graph_.target->device);
    const bool can_leave_out = !by_blobs && kernel != nullptr && kernel->can_leave_out;
    if (std::ranges::count(outputs_, kNoValue) > 0 && !can_leave_out) {
      throw GraphFault{StrCat(call_.type(), " gives all of its outputs")};
    }
    if (!outputs_.empty() && std::ranges::count(outputs_, kNoValue) == std::ssize(outputs_)) {
      throw GraphFault{StrCat(call_.type(), " gives nothing of what it has")};
    }
  }

 private:
  bool AreInOnePlace(size_t i, size_t o) const {
    return outputs_[o] != kNoValue && graph_.values[inputs_[i]].home == graph_.values[outputs_[o]].home;
  }
  std::string NameOf(int value) const { return graph_.NameOf(value); }

  const StepGraph& graph_;
  const OperatorCall& call_;
  const OperatorSchema& schema_;
  const std::vector<int>& inputs_;
  const std::vector<int>& outputs_;
};

void CheckPacked(const StepGraph& graph, const StepNode& node) {
  if (node.packed == kNoValue) return;
  const std::string name = graph.NameOf(node.packed);
  const Kernel* kernel = node.call->schema().FindKernel(graph.target->device);
  if (kernel == nullptr || !kernel->packing) throw GraphFault{StrCat(node.call->type(), " reads no packed ", name)};
  const std::span<const int> weights = PackedInputs(node, *kernel->packing);
  const int producer = graph.values[node.packed].producer;
  const Home& home = graph.homes[graph.values[node.packed].home];
  // The run forward has made it.
  if (producer < 0 && !node.net.empty() && home.kind == Home::Kind::kOutside && graph.lent.contains(home.slot.base))
    return;
  if (producer >= 0 && graph.nodes[producer].kind == StepNode::Kind::kPack &&
      std::ranges::equal(graph.nodes[producer].inputs, weights))
    return;
  std::vector<std::string> names;
  for (const int weight : weights) names.push_back(graph.NameOf(weight));
  throw GraphFault{StrCat(name, " is not made of ", Join(names, ", "))};
}

void CheckProducts(const StepGraph& graph, const StepNode& node, const std::vector<TensorInfo>& inputs,
                   const std::vector<std::optional<Product>>& said) {
  if (node.by_blobs) throw GraphFault{StrCat(node.call->type(), " is a product of what has no known shape")};
  if (node.products.size() != node.outputs.size()) {
    throw GraphFault{StrCat(node.call->type(), " says of ", node.products.size(), " outputs what they are; it has ",
                            node.outputs.size())};
  }
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    const int output = node.outputs[o];
    if (output != kNoValue && node.products[o]) {
      const std::string problem = ProductProblem(*node.products[o], inputs, graph.values[output].info);
      if (!problem.empty()) throw GraphFault{StrCat(graph.NameOf(output), " is no such product: ", problem)};
    }
    if (o < said.size() && said[o] == node.products[o]) continue;
    const std::string name = output == kNoValue ? StrCat("output ", o) : graph.NameOf(output);
    throw GraphFault{StrCat(name, " is another product, as ", node.call->type(), " says")};
  }
}

// Which operands of a region its homes hold while its operators run one after the other.
class OperandsInHomes {
 public:
  OperandsInHomes(const StepGraph& graph, const StepNode& region) {
    const size_t num_inputs = region.inputs.size();
    home_of_.reserve(num_inputs + region.outputs.size() + region.locals().size());
    for (const std::span<const int> values : {std::span(region.inputs), std::span(region.outputs), region.locals()}) {
      for (const int value : values) home_of_.push_back(value == kNoValue ? -1 : graph.values[value].home);
    }
    homes_ = home_of_;
    std::ranges::sort(homes_);
    const auto repeated = std::ranges::unique(homes_);
    homes_.erase(repeated.begin(), repeated.end());
    held_.resize(homes_.size());
    for (size_t input = 0; input < num_inputs; ++input) HeldBeside(input).push_back(static_cast<int>(input));
  }

  // Gives what the home of the operand has held; from then on it holds the operand alone.
  std::vector<int> Replace(int operand) { return std::exchange(HeldBeside(operand), {operand}); }

 private:
  std::vector<int>& HeldBeside(size_t operand) {
    return held_[std::ranges::lower_bound(homes_, home_of_[operand]) - homes_.begin()];
  }

  std::vector<int> home_of_;            // by operand
  std::vector<int> homes_;              // sorted
  std::vector<std::vector<int>> held_;  // by home
};

// "y = FC(x, w, b)".
std::string TextOf(const StepGraph& graph, const StepNode& node) {
  if (node.IsOneOperator()) return node.call->Text();
  const char* kind = node.kind == StepNode::Kind::kMove   ? "a move"
                     : node.kind == StepNode::Kind::kPack ? "a packing"
                                                          : "a region";
  for (const int output : node.given()) {
    const bool has_name = output >= 0 && output < static_cast<int>(graph.values.size());
    return has_name ? StrCat(kind, " to ", graph.NameOf(output)) : kind;
  }
  return kind;
}

}  // namespace

void ThrowOfNode(const StepGraph& graph, int node, const std::string& what) {
  throw GraphFault{StrCat("node ", node, ", ", TextOf(graph, graph.nodes[node]), ": ", what)};
}

void OperatorVerifier::Check(const StepGraph& graph, const StepNode& node) {
  node.IsOneOperator() ? CheckCall(graph, node) : CheckRegion(graph, node);
}

void OperatorVerifier::CheckCall(const StepGraph& graph, const StepNode& node) {
  if (node.def == nullptr) throw GraphFault{"an operator is without its definition"};
  const Operands operands(graph, *node.call, node.inputs, node.outputs);
  operands.CheckNumber();
  operands.CheckInPlace();
  operands.CheckBlobs(node.by_blobs);
  CheckPacked(graph, node);
  if (node.kind == StepNode::Kind::kRegion && !HasParts(*node.call)) {
    throw GraphFault{StrCat(node.call->type(), " has no formula and is a region")};
  }
  if (node.by_blobs) {
    if (node.kind == StepNode::Kind::kProduct) CheckProducts(graph, node, {}, {});
  } else {
    const Facts& facts = FactsOf(graph, node.call, node.inputs);
    if (facts.outputs) operands.CheckGiven(*facts.outputs);
    if (node.kind == StepNode::Kind::kProduct) CheckProducts(graph, node, facts.inputs, facts.products);
  }
  operands.CheckAdded(/*may_add=*/true);
}

// Each operator reads what is there by then, and all that the region gives is given once.
void OperatorVerifier::CheckRegion(const StepGraph& graph, const StepNode& node) {
  if (node.kind != StepNode::Kind::kRegion) throw GraphFault{"a call has no operator"};
  if (node.calls().empty()) throw GraphFault{"it is a region of no operator"};
  if (node.by_blobs || node.packed != kNoValue) {
    throw GraphFault{"a region of several operators has operands of known shape"};
  }
  int begin = 0;
  for (const int next : node.body->begins) {
    if (next <= begin || next >= std::ssize(node.calls())) throw GraphFault{"regions of it have no operator"};
    begin = next;
  }
  const size_t num_inputs = node.inputs.size(), num_operands = num_inputs + node.outputs.size() + node.locals().size();
  std::vector<bool> is_there(num_operands, false), is_overwritten(num_operands, false);
  std::fill_n(is_there.begin(), num_inputs, true);
  OperandsInHomes in_homes(graph, node);
  const auto value_of = [&](int operand, bool is_there_before) {
    const bool is_known = operand >= 0 && operand < static_cast<int>(num_operands);
    if (is_known && is_there[operand] == is_there_before && !is_overwritten[operand]) return node.ValueOf(operand);
    throw GraphFault{StrCat("operators of a region do not read what is there, or give what is: ",
                            is_known ? graph.NameOf(node.ValueOf(operand)) : StrCat("operand ", operand))};
  };
  size_t first_local = num_inputs + node.outputs.size();  // that the region at hand has given, of several
  for (size_t k = 0; k < node.calls().size(); ++k) {
    const RegionCall& call = node.calls()[k];
    if (call.call == nullptr || call.def == nullptr) throw GraphFault{"a region has no operator"};
    if (std::ranges::count(node.body->begins, static_cast<int>(k)) > 0) {
      while (first_local < num_operands && is_there[first_local]) ++first_local;
    }
    for (const int input : call.inputs) {
      const auto operand = static_cast<size_t>(input);
      if (operand < num_inputs + node.outputs.size() || operand >= first_local) continue;
      throw GraphFault{StrCat(graph.NameOf(node.ValueOf(input)), " is in no memory, and another region reads it")};
    }
    if (!HasParts(*call.call)) throw GraphFault{StrCat(call.call->type(), " has no formula and is in a region")};
    std::vector<int> inputs, outputs;
    for (const int input : call.inputs) inputs.push_back(value_of(input, true));
    for (const int output : call.outputs) {
      outputs.push_back(value_of(output, false));
      is_there[output] = true;
      for (const int before : in_homes.Replace(output)) is_overwritten[before] = true;
    }
    const Operands operands(graph, *call.call, inputs, outputs);
    operands.CheckNumber();
    operands.CheckInPlace();
    operands.CheckAdded(/*may_add=*/false);
    if (const Facts& facts = FactsOf(graph, call.call, inputs); facts.outputs) operands.CheckGiven(*facts.outputs);
  }
  const auto missing = std::ranges::find(is_there, false);
  if (missing == is_there.end()) return;
  const int value = node.ValueOf(static_cast<int>(missing - is_there.begin()));
  throw GraphFault{StrCat("no operator of a region gives ", graph.NameOf(value))};
}

const OperatorVerifier::Facts& OperatorVerifier::FactsOf(const StepGraph& graph,
                                                         const std::shared_ptr<const OperatorCall>& call,
                                                         const std::vector<int>& inputs) {
  Facts& facts = facts_[call.get()];
  const auto is_known = [&](const TensorInfo& info, int input) { return info == graph.values[input].info; };
  if (facts.call != nullptr && std::ranges::equal(facts.inputs, inputs, is_known)) return facts;
  facts = {.call = call};
  facts.inputs.reserve(inputs.size());
  for (const int input : inputs) facts.inputs.push_back(graph.values[input].info);
  const ShapeQuery query(*call, facts.inputs);
  try {
    facts.outputs = call->schema().shapes(query);
    facts.products = Expansion(query).products();
  } catch (const ValueUnknown&) {
    // a shape follows from values that nobody knows before the run
  } catch (const Error& error) {
    const bool is_of_shapes = error.code() == ErrorCode::kShapeMismatch || error.code() == ErrorCode::kTypeMismatch;
    if (!is_of_shapes && error.code() != ErrorCode::kInvalidArgument && error.code() != ErrorCode::kInvalidNet) throw;
    throw GraphFault{StrCat(call->type(), " cannot read this: ", error.message())};
  }
  if (facts.outputs && facts.outputs->size() < call->outputs().size()) facts.outputs.reset();
  return facts;
}

}  // namespace stepnet
