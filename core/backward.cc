#include "stepnet/core/backward.h"

#include <algorithm>
#include <set>

#include "stepnet/core/gradient.h"
#include "stepnet/core/net_check.h"

namespace stepnet {
namespace {

// What a blob holds between two writes: the net in single assignment.
struct Value {
  std::string blob;
  std::string name;         // the blob's own for the value that it holds at the end, otherwise a name of its own
  int overwritten_by = -1;  // index of the operator after which it is gone; -1: it stays
  bool depends = false;     // on one of the inputs, by way of operators that pass gradients
  int reached_by = -1;      // the operator by whose gradient the first of the parts came; -1: it is a loss
  std::vector<GradientBlobs> parts = {};  // of its gradient
};

using ValueIds = std::vector<int>;

class ReversePass {
 public:
  explicit ReversePass(const NetDef& net) : net_(net) { result_.net = net; }

  // An empty name in `losses` asks for ones.
  NetWithGradients Run(const std::map<std::string, std::string>& losses, const std::vector<std::string>& inputs) {
    // Gradient rules rely on what a check finds, but need not know where values come from.
    ThrowIfProblems(CheckNet(net_, {.blob_exists = [](const std::string&) { return true; }}));
    for (const auto& [loss, gradient] : losses) given_.insert(gradient);
    used_ = given_;
    NameValues();
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
      const auto found = first_.find(input);
      if (found == first_.end()) continue;
      GradientBlobs gradient = Collect(found->second);
      if (!gradient.absent()) result_.gradients[input] = std::move(gradient);
    }
    return std::move(result_);
  }

 private:
  // Gives every blob's every value a number.
  void NameValues() {
    for (int k = 0; k < net_.op_size(); ++k) {
      ValueIds& reads = reads_.emplace_back();
      for (const std::string& input : net_.op(k).input()) {
        if (!current_.contains(input)) first_[input] = NewValue(input);
        reads.push_back(current_[input]);
      }
      ValueIds& writes = writes_.emplace_back();
      for (const std::string& output : net_.op(k).output()) {
        if (const auto old = current_.find(output); old != current_.end()) values_[old->second].overwritten_by = k;
        writes.push_back(NewValue(output));
      }
    }
    for (const auto& [blob, value] : current_) used_.insert(blob);
    for (Value& value : values_) value.name = value.overwritten_by < 0 ? value.blob : Unused(value.blob + "_before");
  }

  int NewValue(const std::string& blob) {
    values_.push_back({.blob = blob, .name = {}});
    current_[blob] = static_cast<int>(values_.size()) - 1;
    return current_[blob];
  }

  void MarkDependent(const std::vector<std::string>& inputs) {
    for (const std::string& input : inputs) {
      if (const auto found = first_.find(input); found != first_.end()) values_[found->second].depends = true;
    }
    for (int k = 0; k < net_.op_size(); ++k) {
      if (GetOperator(net_.op(k).type()).gradient_kind == GradientKind::kStops) continue;
      if (!std::ranges::any_of(reads_[k], [&](int v) { return values_[v].depends; })) continue;
      for (const int v : writes_[k]) values_[v].depends = true;
    }
  }

  void Seed(const std::map<std::string, std::string>& losses) {
    for (const auto& [loss, gradient] : losses) {
      const auto found = current_.find(loss);
      if (found == current_.end()) {
        std::vector<std::string> blobs;
        for (const auto& [blob, value] : current_) blobs.push_back(blob);
        throw Error(ErrorCode::kInvalidNet, StrCat("the net has no blob \"", loss, "\"", DidYouMean(loss, blobs)));
      }
      Value& value = values_[found->second];
      if (!value.depends) continue;
      if (!gradient.empty()) {
        value.parts.push_back({.dense = gradient});
        continue;
      }
      const std::string seed = Unused(loss + "_autogen_grad");
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
    Value& value = values_[v];
    if (value.parts.size() <= 1) return value.parts.empty() ? GradientBlobs{} : value.parts.front();
    const auto is_dense = [](const GradientBlobs& part) { return !part.dense.empty(); };
    const auto dense = std::ranges::find_if(value.parts, is_dense);
    GradientBlobs sum;
    if (dense == value.parts.end()) {
      sum = {.dense = {},
             .indices = Joined(value, &GradientBlobs::indices, "_grad_indices"),
             .values = Joined(value, &GradientBlobs::values, "_grad_values")};
    } else {
      const std::string like = dense->dense;  // has the shape of the value, which may be gone
      for (GradientBlobs& part : value.parts) {
        if (!is_dense(part)) part = MadeDense(part, value.name + "_grad_dense", like);
      }
      sum.dense = Summed(value);
    }
    value.parts = {sum};
    return sum;
  }

  // As Collect, for an operator that wrote the value: their gradients take no rows.
  GradientBlobs CollectWhole(int v) {
    const GradientBlobs gradient = Collect(v);
    if (gradient.absent() || !gradient.dense.empty()) return gradient;
    return MadeDense(gradient, values_[v].name + "_grad", CurrentBlob(v));
  }

  GradientBlobs MadeDense(const GradientBlobs& rows, const std::string& name, const std::string& like) {
    OperatorDef& op = NewOp("SparseToDense");
    op.add_input(rows.indices);
    op.add_input(rows.values);
    op.add_input(like);
    op.add_output(Unused(name));
    op.set_is_gradient_op(true);
    return {.dense = op.output(0)};
  }

  std::string Summed(Value& value) {
    OperatorDef& op = NewOp("Sum");
    const std::string own = value.name + "_grad";
    // The part of that name comes first: Sum works in place on its first input, unless that is not ours to change.
    std::stable_partition(value.parts.begin(), value.parts.end(),
                          [&](const GradientBlobs& part) { return part.dense == own; });
    for (const GradientBlobs& part : value.parts) op.add_input(part.dense);
    op.add_output(op.input(0) == own && !given_.contains(own) ? own : Unused(own));
    op.set_is_gradient_op(true);
    return op.output(0);
  }

  // Rows of several sparse gradients one after the other.
  std::string Joined(const Value& value, std::string GradientBlobs::*field, const std::string& ending) {
    OperatorDef& op = NewOp("Concat");
    for (const GradientBlobs& part : value.parts) op.add_input(part.*field);
    op.add_output(Unused(value.name + ending));
    op.add_output(Unused(op.output(0) + "_sizes"));
    op.set_is_gradient_op(true);
    Argument& axis = *op.add_arg();
    axis.set_name("axis");
    axis.set_i(0);
    return op.output(0);
  }

  void Differentiate(int k) {
    const auto depends = [&](int v) { return values_[v].depends; };
    if (std::ranges::none_of(reads_[k], depends)) return;
    if (std::ranges::all_of(writes_[k], [&](int v) { return values_[v].parts.empty(); })) return;
    RefuseGradientOfGradient(net_.op(k));
    std::vector<GradientBlobs> gradients;
    for (const int v : writes_[k]) gradients.push_back(CollectWhole(v));
    const OperatorDef op = InOwnNames(k);
    Append(k, op, MakeGradientOf(op, k, std::move(gradients)));
  }

  void RefuseGradientOfGradient(const OperatorDef& op) const {
    const bool has_none = GetOperator(op.type()).gradient_kind == GradientKind::kNone;
    if (!op.is_gradient_op() && !(has_none && op.type().ends_with("Gradient"))) return;
    throw Error(ErrorCode::kInvalidNet,
                StrCat(op.type(), " computes a gradient, and gradients of gradients are not computed"));
  }

  // How the gradient of a loss comes to operator k, a line an operator; "" where k computes the loss.
  std::string WayTo(int k) const {
    std::vector<int> way;
    const Value* value = nullptr;
    for (;;) {
      const auto reached = std::ranges::find_if(writes_[k], [&](int v) { return !values_[v].parts.empty(); });
      value = &values_[*reached];
      k = value->reached_by;
      if (k < 0) break;
      way.push_back(k);
    }
    if (way.empty()) return "";
    std::string text = StrCat("; the gradient of \"", value->blob, "\" comes to it by");
    constexpr size_t kMost = 100;  // a hostile net may have a million
    for (size_t i = 0; i < way.size() && i < kMost; ++i) {
      const int step = way[way.size() - 1 - i];
      text += StrCat("\n    op ", step, " `", OperatorText(net_.op(step)), "`");
    }
    if (way.size() > kMost) text += StrCat("\n    … and ", way.size() - kMost, " more");
    return text;
  }

  // Operator k with a name of its own for each value, so that what its gradient reads and writes is unambiguous even
  // where it works in place. Arguments of operators that hold nets name blobs, so those operators keep their names.
  OperatorDef InOwnNames(int k) {
    OperatorDef op = net_.op(k);
    originals_.clear();
    const bool has_nets = std::ranges::any_of(GetOperator(op.type()).arguments,
                                              [](const ArgumentSpec& spec) { return spec.type == ArgumentType::kNet; });
    const auto rename = [&](int v, std::string* name) {
      if (!has_nets) *name = values_[v].name;
      originals_[*name] = v;
    };
    for (int i = 0; i < op.input_size(); ++i) rename(reads_[k][i], op.mutable_input(i));
    for (int o = 0; o < op.output_size(); ++o) rename(writes_[k][o], op.mutable_output(o));
    return op;
  }

  // As MakeGradient. Outputs that nothing needs get zeros where the rule insists on a gradient.
  OperatorGradient MakeGradientOf(const OperatorDef& op, int k, std::vector<GradientBlobs> gradients) {
    try {
      return MakeGradient(op, gradients);
    } catch (const Error&) {
      if (std::ranges::none_of(gradients, &GradientBlobs::absent)) throw;
    }
    std::map<std::string, int> zeros;
    for (size_t o = 0; o < gradients.size(); ++o) {
      if (!gradients[o].absent()) continue;
      gradients[o].dense = Unused(values_[writes_[k][o]].name + "_grad_zero");
      zeros[gradients[o].dense] = static_cast<int>(o);
    }
    OperatorGradient made = MakeGradient(op, gradients);
    for (const OperatorDef& gradient : made.ops) {
      for (const std::string& input : gradient.input()) {
        const auto zero = zeros.find(input);
        if (zero == zeros.end()) continue;
        AddFill(CurrentBlob(writes_[k][zero->second]), input, 0).set_is_gradient_op(true);
        zeros.erase(zero);
      }
    }
    return made;
  }

  // The blob that holds the value at the end of the net.
  const std::string& CurrentBlob(int v) const {
    const Value& value = values_[v];
    if (value.overwritten_by >= 0) {
      const int k = value.overwritten_by;
      throw Error(ErrorCode::kInvalidNet, StrCat("its gradient needs the value of \"", value.blob, "\", which op ", k,
                                                 " `", OperatorText(net_.op(k)), "` overwrites"));
    }
    return value.blob;
  }

  void Append(int k, const OperatorDef& op, OperatorGradient made) {
    std::map<std::string, std::string> written;  // as the rule calls it → as the net calls it
    for (OperatorDef& gradient : made.ops) {
      for (std::string& input : *gradient.mutable_input()) {
        if (const auto own = written.find(input); own != written.end()) {
          input = own->second;
        } else if (const auto original = originals_.find(input); original != originals_.end()) {
          input = CurrentBlob(original->second);
        }
      }
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
      Value& value = values_[reads_[k][i]];
      if (gradient.absent() || !value.depends) continue;
      if (value.parts.empty()) value.reached_by = k;
      value.parts.push_back(
          {.dense = name(gradient.dense), .indices = name(gradient.indices), .values = name(gradient.values)});
    }
  }

  // A name that nothing has yet for what a gradient operator writes.
  std::string NameOfPart(const std::string& name) {
    return used_.insert(name).second ? name : Unused("_" + name + "_autosplit");
  }

  std::string Unused(const std::string& name) {
    std::string unused = name;
    for (int i = 0; !used_.insert(unused).second; ++i) unused = StrCat(name, "_", i);
    return unused;
  }

  const NetDef& net_;
  NetWithGradients result_;
  std::vector<Value> values_;
  std::vector<ValueIds> reads_;           // of each operator
  std::vector<ValueIds> writes_;          // of each operator
  std::map<std::string, int> first_;      // blob → the value that it has before the net runs
  std::map<std::string, int> current_;    // blob → its latest value
  std::map<std::string, int> originals_;  // name in the operator at hand → value
  std::set<std::string> used_;            // names of blobs
  std::set<std::string> given_;           // gradients that come from outside
};

}  // namespace

NetWithGradients AddGradients(const NetDef& net, const std::vector<std::string>& losses,
                              const std::vector<std::string>& inputs) {
  std::map<std::string, std::string> seeds;
  for (const std::string& loss : losses) seeds[loss] = "";
  return ReversePass(net).Run(seeds, inputs);
}

NetWithGradients AddGradientsFrom(const NetDef& net, const std::map<std::string, std::string>& output_gradients,
                                  const std::vector<std::string>& inputs) {
  return ReversePass(net).Run(output_gradients, inputs);
}

}  // namespace stepnet
