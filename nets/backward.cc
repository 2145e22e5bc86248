#include "stepnet/nets/backward.h"

#include <algorithm>
#include <functional>
#include <set>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/declared_gradient.h"
#include "stepnet/nets/gradient.h"
#include "stepnet/nets/needed_operators.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/net_values.h"
#include "stepnet/nets/recording.h"
#include "stepnet/nets/rename.h"
#include "stepnet/nets/requested_gradients.h"

namespace stepnet {
namespace {

// What is known of the gradient of a value.
struct ValueGradient {
  bool kept = false;     // a gradient reads the value under its own name
  bool depends = false;  // the value depends on one of the inputs, by way of operators that pass gradients
  int reached_by = -1;   // the operator by whose gradient the first of the parts came; -1: the value is a loss
  std::vector<GradientBlobs> parts = {};
};

class ReversePass {
 public:
  // `given` are gradients that come from outside.
  ReversePass(const NetDef& net, const std::set<std::string>& changing, const std::set<std::string>& given)
      : net_(net), values_(net, changing, given), gradients_(values_.size()), given_(given) {
    result_.net = net;
  }

  // An empty name in `losses` asks for ones; gradients by `sums`, which are inputs, too, are added to what is there.
  NetWithGradients Run(const std::map<std::string, std::string>& losses, const std::vector<std::string>& inputs,
                       const std::set<std::string>& sums) {
    for (const std::string& input : sums) sums_[input] = values_.Unused(input + "_grad");
    MarkDependent(inputs);
    Seed(losses);
    for (int k = net_.op_size() - 1; k >= 0; --k) {
      try {
        Differentiate(k);
      } catch (...) {
        const Error error = CurrentError();
        throw Error(error.code(), error.message() + WayTo(k))
            .At({.net = net_.name(), .op_index = k, .op_text = OperatorText(net_.op(k))});
      }
    }
    for (const std::string& input : inputs) {
      const int first = values_.FirstOf(input);
      if (first == NetValues::kNone) continue;
      GradientBlobs gradient = sums_.contains(input) ? CollectWhole(first) : Collect(first);
      if (!gradient.absent()) result_.gradients[input] = std::move(gradient);
    }
    for (const auto& [input, sum] : sums_) AddToSum(input, sum);
    DropUnneeded();
    WriteForward();
    return std::move(result_);
  }

 private:
  void MarkDependent(const std::vector<std::string>& inputs) {
    for (const std::string& input : inputs) {
      if (const int first = values_.FirstOf(input); first != NetValues::kNone) gradients_[first].depends = true;
    }
    for (int k = 0; k < net_.op_size(); ++k) {
      if (GetOperator(net_.op(k).type()).gradient_kind == GradientKind::kStops) continue;
      if (!std::ranges::any_of(values_.ReadsOf(k), [&](int v) { return gradients_[v].depends; })) continue;
      for (const int v : values_.WritesOf(k)) gradients_[v].depends = true;
    }
  }

  void Seed(const std::map<std::string, std::string>& losses) {
    for (const auto& [loss, gradient] : losses) {
      const int last = values_.LastOf(loss);
      if (last == NetValues::kNone) {
        std::string hint = DidYouMean(loss, values_.Blobs());
        if (hint.empty() && net_.external_output_size() > 0) {
          hint = StrCat("; its outputs are ", Join(net_.external_output(), ", "));
        }
        throw Error(ErrorCode::kInvalidNet, StrCat("the net has no blob \"", loss, "\"", hint));
      }
      ValueGradient& value = gradients_[last];
      if (!value.depends) continue;
      if (!gradient.empty()) {
        value.parts.push_back({.dense = gradient});
        continue;
      }
      const std::string seed = values_.Unused(loss + "_autogen_grad");
      AddFill(loss, seed, 1);
      value.parts.push_back({.dense = seed});
    }
  }

  OperatorDef& NewOp(const std::string& type) {
    OperatorDef& op = *result_.net.add_op();
    op.set_type(type);
    return op;
  }

  OperatorDef& AddFill(const std::string& like, const std::string& name, float filler) {
    OperatorDef& fill = NewOp("ConstantFill");
    fill.add_input(like);
    fill.add_output(name);
    Argument& argument = *fill.add_arg();
    argument.set_name("value");
    argument.set_f(filler);
    return fill;
  }

  // The gradient of a value whose readers all have been differentiated: its only part, or the sum of its parts.
  GradientBlobs Collect(int v) {
    ValueGradient& value = gradients_[v];
    if (value.parts.size() <= 1) return value.parts.empty() ? GradientBlobs{} : value.parts.front();
    const auto is_dense = [](const GradientBlobs& part) { return !part.dense.empty(); };
    const auto dense = std::ranges::find_if(value.parts, is_dense);
    GradientBlobs sum;
    if (dense == value.parts.end()) {
      sum = {.dense = {},
             .indices = Joined(v, &GradientBlobs::indices, "_grad_indices"),
             .values = Joined(v, &GradientBlobs::values, "_grad_values")};
    } else {
      const std::string like = dense->dense;  // has the shape of the value, which may be gone
      for (GradientBlobs& part : value.parts) {
        if (!is_dense(part)) part = MadeDense(part, values_[v].name + "_grad_dense", like);
      }
      sum.dense = Summed(v);
    }
    value.parts = {sum};
    return sum;
  }

  // As Collect, for an operator that wrote the value: their gradients take no rows.
  GradientBlobs CollectWhole(int v) {
    const GradientBlobs gradient = Collect(v);
    if (gradient.absent() || !gradient.dense.empty()) return gradient;
    return MadeDense(gradient, values_[v].name + "_grad", values_[v].name);
  }

  GradientBlobs MadeDense(const GradientBlobs& rows, const std::string& name, const std::string& like) {
    OperatorDef& op = NewOp("SparseToDense");
    op.add_input(rows.indices);
    op.add_input(rows.values);
    op.add_input(like);
    *op.add_output() = values_.Unused(name);
    op.set_is_gradient_op(true);
    return {.dense = op.output(0)};
  }

  // Adds the gradient to what the blob `sum` holds. The sum is behind all gradients, which may be read from each other.
  void AddToSum(const std::string& input, const std::string& sum) {
    const auto found = result_.gradients.find(input);
    if (found == result_.gradients.end()) return;
    OperatorDef& op = NewOp("AddGradient");
    op.add_input(sum);
    op.add_input(found->second.dense);
    op.add_output(sum);
    op.set_is_gradient_op(true);
    found->second = {.dense = sum};
  }

  std::string Summed(int v) {
    OperatorDef& op = NewOp("Sum");
    std::vector<GradientBlobs>& parts = gradients_[v].parts;
    const std::string own = values_[v].name + "_grad";
    // The part of that name comes first: Sum works in place on its first input, unless that is not ours to change.
    std::ranges::stable_partition(parts, [&](const GradientBlobs& part) { return part.dense == own; });
    for (const GradientBlobs& part : parts) op.add_input(part.dense);
    *op.add_output() = op.input(0) == own && !given_.contains(own) ? own : values_.Unused(own);
    op.set_is_gradient_op(true);
    return op.output(0);
  }

  // Rows of several sparse gradients one after the other.
  std::string Joined(int v, std::string GradientBlobs::*field, const std::string& ending) {
    OperatorDef& op = NewOp("Concat");
    for (const GradientBlobs& part : gradients_[v].parts) op.add_input(part.*field);
    *op.add_output() = values_.Unused(values_[v].name + ending);
    *op.add_output() = values_.Unused(op.output(0) + "_sizes");
    op.set_is_gradient_op(true);
    Argument& axis = *op.add_arg();
    axis.set_name("axis");
    axis.set_i(0);
    return op.output(0);
  }

  void Differentiate(int k) {
    const auto depends = [&](int v) { return gradients_[v].depends; };
    if (std::ranges::none_of(values_.ReadsOf(k), depends)) return;
    if (std::ranges::all_of(values_.WritesOf(k), [&](int v) { return gradients_[v].parts.empty(); })) return;
    RefuseGradientOfGradient(net_.op(k));
    std::vector<GradientBlobs> gradients;
    for (const int v : values_.WritesOf(k)) gradients.push_back(CollectWhole(v));
    const OperatorDef op = InOwnNames(k);
    OperatorGradient made = MakeGradientOf(op, k, std::move(gradients));
    RefuseTakenNames(made);
    Append(k, op, std::move(made));
  }

  // The gradients of states lie in blobs that the operator does not list, and that are called as the states are.
  void RefuseTakenNames(const OperatorGradient& made) const {
    for (const OperatorDef& op : made.ops) {
      if (op.type() != "RecurrentNetworkGradient") continue;
      for (const std::string& blob : OtherBlobs(OperatorCall(op))) {
        if (values_.LastOf(blob) == NetValues::kNone) continue;
        throw Error(ErrorCode::kInvalidNet, StrCat("the net has a blob \"", blob,
                                                   "\", and its RecurrentNetworkGradient would keep the gradients of a "
                                                   "state in one of that name; rename the blob, or the state"));
      }
    }
  }

  void RefuseGradientOfGradient(const OperatorDef& op) const {
    // Nets that programs made need not mark gradient operators; they know them by Caffe2's names.
    const bool has_none = GetOperator(op.type()).gradient_kind == GradientKind::kNone;
    if (!op.is_gradient_op() && !(has_none && op.type().ends_with("Gradient"))) return;
    throw Error(ErrorCode::kInvalidNet,
                StrCat(op.type(), " computes a gradient, and gradients of gradients are not computed"));
  }

  // How the gradient of a loss comes to operator k, a line an operator; "" where k computes the loss.
  std::string WayTo(int k) const {
    std::vector<int> way;
    int value = NetValues::kNone;
    for (;;) {
      value = *std::ranges::find_if(values_.WritesOf(k), [&](int v) { return !gradients_[v].parts.empty(); });
      k = gradients_[value].reached_by;
      if (k < 0) break;
      way.push_back(k);
    }
    if (way.empty()) return "";
    std::string text = StrCat("; the gradient of \"", values_[value].blob, "\" comes to it by");
    constexpr size_t kMax = 100;  // a hostile net may have a million
    for (size_t i = 0; i < way.size() && i < kMax; ++i) {
      const int step = way[way.size() - 1 - i];
      text += StrCat("\n    op ", step, " `", OperatorText(net_.op(step)), "`");
    }
    if (way.size() > kMax) text += StrCat("\n    … and ", way.size() - kMax, " more");
    return text;
  }

  // Operator k with a name of its own for each value, so that what its gradient reads and writes is unambiguous even
  // where it works in place.
  OperatorDef InOwnNames(int k) const {
    return values_.Renamed(k, [](int) { return true; });
  }

  // Does what MakeGradient does. Outputs that nothing needs get zeros where the rule insists on a gradient.
  OperatorGradient MakeGradientOf(const OperatorDef& op, int k, std::vector<GradientBlobs> gradients) {
    try {
      return MakeGradient(op, gradients);
    } catch (const Error&) {
      if (std::ranges::none_of(gradients, &GradientBlobs::absent)) throw;
    }
    std::map<std::string, int> zeros;
    for (size_t o = 0; o < gradients.size(); ++o) {
      if (!gradients[o].absent() || !MayReadGradientOf(GetOperator(op.type()), static_cast<int>(o))) continue;
      gradients[o].dense = values_.Unused(values_[values_.WritesOf(k)[o]].name + "_grad_zero");
      zeros[gradients[o].dense] = static_cast<int>(o);
    }
    OperatorGradient made = MakeGradient(op, gradients);
    for (const OperatorDef& gradient : made.ops) {
      for (const std::string& input : gradient.input()) {
        const auto zero = zeros.find(input);
        if (zero == zeros.end()) continue;
        AddFill(values_[values_.WritesOf(k)[zero->second]].name, input, 0).set_is_gradient_op(true);
        zeros.erase(zero);
      }
    }
    return made;
  }

  // Leaves out the gradient operators that serve none of the gradients that were asked for.
  void DropUnneeded() {
    std::set<std::string> needed;
    for (const auto& [input, gradient] : result_.gradients) {
      needed.insert({gradient.dense, gradient.indices, gradient.values});
    }
    result_.net = WithNeededOperators(std::move(result_.net), std::move(needed), net_.op_size());
  }

  // Which values the gradient operators read under their own names.
  void FindKept() {
    std::map<std::string, int> values;
    for (int v = 0; v < values_.size(); ++v) values[values_[v].name] = v;
    for (int k = net_.op_size(); k < result_.net.op_size(); ++k) {
      for (const std::string& input : result_.net.op(k).input()) {
        if (const auto found = values.find(input); found != values.end()) gradients_[found->second].kept = true;
      }
    }
  }

  // Puts the operators of the net, with names of their own for the values that gradients read after they are
  // overwritten, in place of those that are there.
  void WriteForward() {
    FindKept();
    NetDef all = net_;
    all.clear_op();
    for (const auto& [input, sum] : sums_) {
      if (all.external_input_size() > 0) all.add_external_input(sum);
    }
    std::vector<bool> copied(values_.size(), false);
    const auto copy = [&](int v) {
      if (copied[v] || !IsCopied(v)) return;
      copied[v] = true;
      OperatorDef& op = *all.add_op();
      op.set_type("Copy");
      op.add_input(values_[v].blob);
      op.add_output(values_[v].name);
    };
    for (int k = 0; k < net_.op_size(); ++k) {
      constexpr std::int64_t kWork = 10'000;  // of one operator, from its checks to its gradient
      CountWork(kWork);
      for (const int v : values_.ReadsOf(k)) copy(v);  // what no operator writes
      const std::vector<int>& writes = values_.WritesOf(k);
      *all.add_op() = values_.Renamed(k, [&](int v) {
        if (!gradients_[v].kept) return false;
        const bool is_written = std::ranges::count(writes, v) > 0;
        return is_written ? !IsCopied(v) : !values_.MustOverwrite(k, v);
      });
      std::ranges::for_each(writes, copy);
    }
    result_.num_forward = all.op_size();
    for (int k = net_.op_size(); k < result_.net.op_size(); ++k) all.add_op()->Swap(result_.net.mutable_op(k));
    result_.net = std::move(all);
  }

  // Whether the value gets its own name by a copy, as others see the blob with this value.
  bool IsCopied(int v) const {
    const NetValue& value = values_[v];
    if (!gradients_[v].kept || value.name == value.blob) return false;
    return value.producer < 0 || value.overwritten_by < 0 || values_.MustOverwrite(value.overwritten_by, v);
  }

  // Whether it sums a gradient like an input that operator k overwrites: that has the shape of the output, and nothing
  // is to be summed.
  bool SumsForOverwritten(int k, const OperatorDef& op, const OperatorDef& gradient) const {
    const std::optional<int> like = GetOperator(gradient.type()).sum_like;
    if (!like) return false;
    for (int i = 0; i < op.input_size(); ++i) {
      const auto& outputs = net_.op(k).output();
      if (gradient.input(*like) == op.input(i) && std::ranges::count(outputs, net_.op(k).input(i)) > 0) return true;
    }
    return false;
  }

  // The shape of a value that others change is read where it is, so that no copy is kept for it.
  void ReadShapeInPlace(int k, OperatorDef* gradient) const {
    const OperatorSchema& schema = GetOperator(gradient->type());
    for (int i = 0; i < gradient->input_size() && !schema.shape_inputs.empty(); ++i) {
      if (!schema.ReadsShapeAlone(i)) continue;
      for (const int v : values_.ReadsOf(k)) {
        const NetValue& value = values_[v];
        const bool reads_it = gradient->input(i) == value.name;
        if (reads_it && value.overwritten_by < 0) gradient->set_input(i, value.blob);
      }
    }
  }

  void Append(int k, const OperatorDef& op, OperatorGradient made) {
    std::map<std::string, std::string> written;  // as the rule calls it → as the net calls it
    for (OperatorDef& gradient : made.ops) {
      for (std::string& input : *gradient.mutable_input()) {
        if (const auto own = written.find(input); own != written.end()) input = own->second;
      }
      if (SumsForOverwritten(k, op, gradient)) {
        written[gradient.output(0)] = gradient.input(0);
        continue;
      }
      ReadShapeInPlace(k, &gradient);
      for (std::string& output : *gradient.mutable_output()) {
        if (!written.contains(output)) written[output] = NameOfPart(output);
        output = written[output];
      }
      *result_.net.add_op() = std::move(gradient);
    }
    const auto name = [&](const std::string& rules) {
      const auto found = written.find(rules);
      return found == written.end() ? rules : found->second;
    };
    for (int i = 0; i < op.input_size(); ++i) {
      const GradientBlobs& gradient = made.input_gradients[i];
      ValueGradient& value = gradients_[values_.ReadsOf(k)[i]];
      if (gradient.absent() || !value.depends) continue;
      if (value.parts.empty()) value.reached_by = k;
      value.parts.push_back(
          {.dense = name(gradient.dense), .indices = name(gradient.indices), .values = name(gradient.values)});
    }
  }

  // A name that nothing has yet for what a gradient operator writes.
  std::string NameOfPart(const std::string& name) {
    return values_.Take(name) ? name : values_.Unused("_" + name + "_autosplit");
  }

  const NetDef& net_;
  NetValues values_;
  std::vector<ValueGradient> gradients_;  // by value
  NetWithGradients result_;
  const std::set<std::string> given_;        // gradients that come from outside
  std::map<std::string, std::string> sums_;  // inputs whose gradients are added → to what
};

NetWithGradients Differentiated(const NetDef& net, const std::map<std::string, std::string>& losses,
                                const std::vector<std::string>& inputs, const GradientRequests& requests,
                                const std::set<std::string>& changing = {}) {
  const std::vector<std::string> asked = AskedFor(inputs, requests);
  NetDef told;
  if (asked.size() < inputs.size()) {
    told = net;
    LeaveOutGradients(asked, &told);
  }
  std::set<std::string> sums;
  for (const auto& [input, request] : requests) {
    if (request == GradientRequest::kAdd) sums.insert(input);
  }
  const NetDef& asked_net = asked.size() < inputs.size() ? told : net;
  // Gradient rules rely on what a check finds, but need not know where values come from.
  ThrowIfProblems(CheckNet(asked_net, {.blob_exists = [](const std::string&) { return true; }}));
  std::set<std::string> given;
  for (const auto& [loss, gradient] : losses) given.insert(gradient);
  NetWithGradients made = ReversePass(asked_net, changing, given).Run(losses, asked, sums);
  for (const auto& [input, request] : requests) {
    if (request == GradientRequest::kNone || made.gradients.contains(input)) continue;
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("gradient_requests says ", GradientRequestName(request), " for \"", input,
                       "\", of which the loss is no differentiable function; leave it out, or say none"));
  }
  return made;
}

}  // namespace

NetWithGradients AddGradients(const NetDef& net, const std::vector<std::string>& losses,
                              const std::vector<std::string>& inputs, const GradientRequests& requests) {
  std::map<std::string, std::string> seeds;
  for (const std::string& loss : losses) seeds[loss] = "";
  return Differentiated(net, seeds, inputs, requests);
}

NetWithGradients AddGradientsFrom(const NetDef& net, const std::map<std::string, std::string>& output_gradients,
                                  const std::vector<std::string>& inputs, const GradientRequests& requests,
                                  const std::set<std::string>& changing) {
  return Differentiated(net, output_gradients, inputs, requests, changing);
}

}  // namespace stepnet
