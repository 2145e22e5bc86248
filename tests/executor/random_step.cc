#include "random_step.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>

#include "recurrent_case.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/tests/core/sanitized.h"

namespace stepnet {
namespace {

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kMaxRows = 3;  // of a window or an initial state

// y = -x, of a shape that nobody knows before.
const Registration opaque = Operator("test.OpaqueNegative")
                                .Input("x", "double")
                                .Output("y", "as x")
                                .Gradient("test.OpaqueNegative", {"dy"}, {"dx"})
                                .Cpu({.make = [](const OperatorCall&) -> RunFn {
                                        return [](const OpRun& run) {
                                          const Tensor x = run.host().Input(0).GetTensor();
                                          const Tensor y(x.dtype(), x.shape());
                                          for (std::int64_t i = 0; i < x.size(); ++i) {
                                            y.data<double>()[i] = -x.data<double>()[i];
                                          }
                                          run.host().Output(0).SetTensor(y);
                                        };
                                      },
                                      .takes_blobs = true});

}  // namespace

// Draws the parts of a RandomStep.
class StepDrawer {
 public:
  StepDrawer(unsigned seed, StepOperators operators, RandomStep* step)
      : rng_(seed), operators_(operators), step_(*step) {}

  void Draw() {
    DrawSequences();
    const int num_states = 1 + Upto(2);
    for (int i = 0; i < num_states; ++i) DrawState(i);
    for (int k = 2 + Upto(6); k > 0; --k) DrawOperator();
    ChooseNexts();
    DrawWindowsOfNewRows();
    ChooseStepOutputs();
    std::ranges::shuffle(step_.links_, rng_);
  }

 private:
  struct Value {
    std::string blob;
    std::int64_t rows = 1;
  };

  int Upto(int max) { return static_cast<int>(rng_() % static_cast<unsigned>(max + 1)); }
  bool Once(int in) { return Upto(in - 1) == 0; }
  template <typename T>
  const T& Any(const std::vector<T>& items) {
    return items[Upto(static_cast<int>(items.size()) - 1)];
  }

  void AddLink(const std::string& internal, const std::string& external, std::int64_t offset, std::int64_t window) {
    step_.links_.push_back({internal, external, offset, window});
    values_.push_back({internal, window});
  }

  void DrawSequences() {
    AddLink("x_t", "x", 0, 1);
    if (Once(2)) AddLink("y_t", "y", Upto(2), 1);
    if (Once(2)) AddLink("z_w", "z", Upto(2), 2 + Upto(1));
    if (Once(3)) AddLink("z_t", "z", 1 + Upto(1), 1);
  }

  void DrawState(int i) {
    const std::string name = StrCat("s", i);
    const std::int64_t num_initial = 1 + Upto(kMaxRows - 1);
    step_.states_.push_back({.name = name, .initial = name + "_init", .num_initial = num_initial, .next = ""});
    for (int k = Upto(1); k >= 0; --k) {
      const int offset = Upto(static_cast<int>(num_initial) - 1);
      AddLink(StrCat(name, "_prev", k), name, offset, 1 + Upto(static_cast<int>(num_initial) - offset - 1));
    }
  }

  std::string AnyOfRows(std::int64_t rows) {
    std::vector<std::string> fitting;
    for (const Value& value : values_) {
      if (value.rows == rows) fitting.push_back(value.blob);
    }
    return Any(fitting);
  }

  void DrawOperator() {
    const Value x = Any(values_);
    if (operators_ != StepOperators::kPlain && Once(12)) return DrawWave(x);
    if (operators_ != StepOperators::kPlain && Once(6)) return DrawRepeated(x);
    const int kind = x.rows > 1 && Once(2) ? 5 : operators_ == StepOperators::kAny && Once(16) ? 6 : Upto(4);
    const auto other = [&] { return AnyOfRows(x.rows); };
    OperatorDef op;
    switch (kind) {
      case 0: op = ParseOp(StrCat("= Sum(", x.blob, ", ", other(), ", ", other(), ")")); break;
      case 1: op = ParseOp(StrCat("= Mul(", x.blob, ", ", other(), ")")); break;
      case 2: op = ParseOp(StrCat("= Tanh(", x.blob, ")")); break;
      case 3: op = ParseOp(StrCat("= Sigmoid(", x.blob, ")")); break;
      case 4: {
        const int num_weights = static_cast<int>(step_.weights_.size());
        const int k = num_weights > 0 && Once(2) ? Upto(num_weights - 1) : num_weights;
        op = ParseOp(StrCat("= FC(", x.blob, ", ", k == num_weights ? Derived(k) : StrCat("w", k), ", b", k, ")"));
        AddInt(&op, "axis", 2);
        if (k == num_weights) step_.weights_.push_back(k);
        break;
      }
      case 5:
        op = ParseOp(StrCat("= ReduceSum(", x.blob, ")"));
        AddInts(&op, "axes", {0});
        break;
      default: op = ParseOp(StrCat("= test.OpaqueNegative(", x.blob, ")"));
    }
    AddOperator(std::move(op), kind == 5 ? 1 : x.rows);
  }

  // A new weight, which of three in a row is derived from w<k> in two: what products that share it read is w<k> itself.
  std::string Derived(int k) {
    if (k % 3 == 0) return StrCat("w", k);
    const char* const inputs = k % 3 == 1 ? " = Tanh(w%)" : " = Mul(w%, w%)";
    std::string text = StrCat("derived", k, inputs);
    for (size_t at = text.find('%'); at != std::string::npos; at = text.find('%')) text.replace(at, 1, StrCat(k));
    step_.ops_.push_back(ParseOp(text));
    return StrCat("derived", k);
  }

  // Times the sine of the number of the step.
  void DrawWave(const Value& x) {
    const std::string wave = StrCat("wave", step_.ops_.size());
    OperatorDef number = ParseOp(StrCat(wave, " = Cast(timestep)")), product;
    AddString(&number, "to", "double");
    AddString(&number, "from_type", "int32");
    step_.ops_.push_back(number);
    step_.ops_.push_back(ParseOp(StrCat(wave, " = Sin(", wave, ")")));
    product = ParseOp(StrCat("= Mul(", x.blob, ", ", wave, ")"));
    AddInt(&product, "broadcast", 1);
    AddOperator(std::move(product), x.rows);
  }

  // An operator of x and of something that is repeated over it by shape: a row, a parameter, or sums of x.
  void DrawRepeated(const Value& x) {
    std::string other = AnyOfRows(1);
    switch (Upto(2)) {
      case 0: break;
      case 1:
        if (!step_.weights_.empty()) other = StrCat("b", Any(step_.weights_));
        break;
      default: {
        other = StrCat("sum", step_.ops_.size());
        OperatorDef sum = ParseOp(StrCat(other, " = ReduceMean(", x.blob, ")"));
        AddInts(&sum, "axes", {Upto(2)});
        step_.ops_.push_back(sum);
        if (opaque_.contains(x.blob)) opaque_.insert(other);
      }
    }
    const char* const type = Any(std::vector<const char*>{"Add", "Sub", "Mul", "Max"});
    const bool is_first = Once(2);
    AddOperator(ParseOp(StrCat("= ", type, "(", is_first ? other : x.blob, ", ", is_first ? x.blob : other, ")")),
                x.rows, /*repeated=*/other);
  }

  // Names the output: an input of the operator, but for the one that is repeated, one of a few names that many
  // operators write, or a new one.
  void AddOperator(OperatorDef op, std::int64_t rows, const std::string& repeated = "") {
    std::string name = StrCat("v", step_.ops_.size());
    if (Once(3)) name = StrCat("shared", Upto(1));
    if (Once(3) && written_.contains(op.input(0))) name = op.input(0);
    const OperatorSchema& schema = GetOperator(op.type());
    for (int i = 0; i < op.input_size(); ++i) {
      if (op.input(i) == name && (name == repeated || !schema.AllowsInPlace(i, 0)))
        name = StrCat("v", step_.ops_.size());
    }
    op.add_output(name);
    const auto is_opaque = [&](const std::string& input) { return opaque_.contains(input); };
    if (schema.TakesBlobs(DeviceKind::kCpu) || std::ranges::any_of(op.input(), is_opaque)) opaque_.insert(name);
    std::erase_if(values_, [&](const Value& value) { return value.blob == name; });
    values_.push_back({name, rows});
    written_[name].insert(rows);
    step_.ops_.push_back(std::move(op));
  }

  // Blobs that operators write, with one row whenever they do; sometimes one that a link gives.
  void ChooseNexts() {
    std::vector<std::string> written, linked;
    for (const auto& [blob, rows] : written_) {
      if (rows == std::set<std::int64_t>{1}) written.push_back(blob);
    }
    for (const Link& link : step_.links_) {
      if (link.window == 1) linked.push_back(link.internal);
    }
    for (RandomStep::State& state : step_.states_) {
      state.next = Any(written.empty() || Once(5) ? linked : written);
      step_.links_.push_back({state.next, state.name, state.num_initial, 1});
    }
  }

  // Rows of a state up to the one that this step has given, read when it has.
  void DrawWindowsOfNewRows() {
    for (const RandomStep::State& state : step_.states_) {
      const bool has_own =
          written_.contains(state.next) && std::ranges::count(step_.states_, state.next, &RandomStep::State::next) == 1;
      if (!has_own || !Once(3)) continue;
      const std::int64_t offset = Upto(static_cast<int>(state.num_initial) - 1);
      const std::string window = state.name + "_now";
      AddLink(window, state.name, offset, state.num_initial + 1 - offset);
      const std::string square = "square_" + state.name;
      if (Once(2)) step_.ops_.push_back(ParseOp(StrCat(square, " = Mul(", window, ", ", window, ")")));
      const std::string& summed = step_.ops_.back().output(0) == square ? square : window;
      OperatorDef op = ParseOp(StrCat("now_", state.name, " = ReduceSum(", summed, ")"));
      AddInts(&op, "axes", {0});
      step_.ops_.push_back(op);
      step_.step_outputs_.push_back(op.output(0));
    }
  }

  void ChooseStepOutputs() {
    std::vector<std::string> blobs;
    for (const auto& [blob, rows] : written_) {
      if (!opaque_.contains(blob)) blobs.push_back(blob);
    }
    for (const Link& link : step_.links_) {
      if (!written_.contains(link.internal) && link.window == 1) blobs.push_back(link.internal);
    }
    for (int k = Upto(2); k > 0 && !blobs.empty(); --k) {
      const std::string blob = Any(blobs);
      if (std::ranges::find(step_.step_outputs_, blob) == step_.step_outputs_.end())
        step_.step_outputs_.push_back(blob);
    }
  }

  std::mt19937 rng_;
  const StepOperators operators_;
  RandomStep& step_;
  std::set<std::string> opaque_;                           // blobs that have a value of unknown shape
  std::vector<Value> values_;                              // that an operator may read now
  std::map<std::string, std::set<std::int64_t>> written_;  // blobs, with the numbers of rows that they are given
};

RandomStep::RandomStep(unsigned seed, std::int64_t size, StepOperators operators) : size_(size) {
  StepDrawer(seed, operators, this).Draw();
  // A link that nobody uses would be refused.
  std::set<std::string> used(step_outputs_.begin(), step_outputs_.end());
  for (const OperatorDef& op : ops_) {
    used.insert(op.input().begin(), op.input().end());
    used.insert(op.output().begin(), op.output().end());
  }
  for (const State& state : states_) used.insert(state.next);
  std::erase_if(links_, [&](const Link& link) { return !used.contains(link.internal); });
}

NetDef RandomStep::Recurrent() const {
  RecurrentCase net;
  net.Captured("x");  // the first input gives the number of steps
  for (const Link& link : links_) {
    const bool is_state = std::ranges::find(states_, link.external, &State::name) != states_.end();
    if (!is_state) net.Captured(link.external);
    net.Link(link.internal, link.external, link.offset, link.window);
  }
  for (const State& state : states_) {
    net.State(state.name, state.initial, "", "");
    net.Output(state.name + "_all", state.name, state.num_initial);
  }
  for (const int k : weights_) net.Captured(StrCat("w", k)).Captured(StrCat("b", k));
  for (const OperatorDef& op : ops_) net.Step(op);
  std::vector<std::string> destinations;
  for (const std::string& blob : step_outputs_) {
    destinations.push_back(blob + "_out");
    net.forward().add_output(destinations.back());
  }
  AddStrings(&net.forward(), "step_output_src", step_outputs_);
  AddStrings(&net.forward(), "step_output_dst", destinations);
  return net.Build();
}

std::map<std::string, Tensor> RandomStep::Feeds(std::int64_t steps) const {
  std::map<std::string, Tensor> feeds;
  unsigned seed = 1;
  for (const char* sequence : {"x", "y", "z"}) {
    std::int64_t rows = sequence == std::string("x") ? steps : -1;  // -1: nobody reads it
    for (const Link& link : links_) {
      if (link.external == sequence) rows = std::max(rows, steps + link.offset + link.window - 1);
    }
    if (rows >= 0) feeds[sequence] = Random({rows, kBatch, size_}, seed++);
  }
  for (const State& state : states_) feeds[state.initial] = Random({state.num_initial, kBatch, size_}, seed++);
  for (const int k : weights_) {
    feeds[StrCat("w", k)] = Random({size_, size_}, seed++);
    feeds[StrCat("b", k)] = Random({size_}, seed++);
  }
  return feeds;
}

std::vector<std::string> RandomStep::Outputs() const {
  std::vector<std::string> outputs;
  for (const State& state : states_) outputs.push_back(state.name + "_all");
  for (const std::string& blob : step_outputs_) outputs.push_back(blob + "_out");
  return outputs;
}

NetDef RandomStep::Training() const {
  std::vector<std::string> inputs;
  for (const auto& [name, tensor] : Feeds(1)) inputs.push_back(name);
  NetDef net = Recurrent();
  AddBackwardStepNets(&net);
  return AddGradients(net, Outputs(), inputs).net;
}

RandomStep::WrittenOut RandomStep::WriteOut(std::int64_t steps) const {
  WrittenOut result;
  std::map<std::string, std::vector<std::string>> rows;  // of everything that links name
  for (const auto& [name, tensor] : Feeds(steps)) {
    if (name.starts_with("w") || name.starts_with("b")) {
      result.feeds[name] = tensor;
      result.rows[name] = {name};
      continue;
    }
    for (std::int64_t r = 0; r < tensor.dim(0); ++r) {
      result.rows[name].push_back(StrCat(name, "@", r));
      result.feeds[result.rows[name].back()] = tensor.Slice(r, r + 1).Clone();
    }
    rows[name] = result.rows[name];
  }
  for (const State& state : states_) rows[state.name] = rows[state.initial];
  int num_made = 0;
  for (std::int64_t t = 0; t < steps; ++t) {
    std::map<std::string, std::string> now;  // the blob that holds the value of a name of the step net
    // A row that this step gives is whatever its blob holds.
    const auto row = [&](const std::string& external, std::int64_t r) {
      const auto state = std::ranges::find(states_, external, &State::name);
      return r < static_cast<std::int64_t>(rows[external].size()) ? rows[external][r] : now.at(state->next);
    };
    const auto read = [&](const std::string& blob) -> std::string {
      if (const auto found = now.find(blob); found != now.end()) return found->second;
      if (blob == "timestep") {
        const std::string number = StrCat(blob, "@", t);
        result.feeds[number] = Tensor::Of<std::int32_t>(Shape(), {static_cast<std::int32_t>(t)});
        return number;
      }
      const auto link = std::ranges::find_if(links_, [&](const Link& candidate) {
        const auto state = std::ranges::find(states_, candidate.external, &State::name);
        return candidate.internal == blob && (state == states_.end() || candidate.offset < state->num_initial);
      });
      if (link == links_.end()) return blob;  // a weight
      if (link->window == 1) return row(link->external, t + link->offset);
      OperatorDef concat;
      concat.set_type("Concat");
      AddInt(&concat, "axis", 0);
      for (std::int64_t k = 0; k < link->window; ++k) concat.add_input(row(link->external, t + link->offset + k));
      concat.add_output(StrCat("window@", num_made));
      concat.add_output(StrCat("info@", num_made++));
      *result.net.add_op() = concat;
      return concat.output(0);
    };
    for (OperatorDef op : ops_) {
      for (std::string& input : *op.mutable_input()) input = read(input);
      std::string& output = *op.mutable_output(0);
      output = now[output] = StrCat(output, "@", t, "@", num_made++);
      *result.net.add_op() = op;
    }
    std::vector<std::string> nexts;
    for (const State& state : states_) nexts.push_back(read(state.next));
    for (size_t i = 0; i < states_.size(); ++i) {
      rows[states_[i].name].push_back(nexts[i]);
      result.outputs[states_[i].name + "_all"].push_back(nexts[i]);
    }
    for (const std::string& blob : step_outputs_) result.outputs[blob + "_out"].push_back(read(blob));
  }
  return result;
}

unsigned NumSeeds(unsigned usual) {
  const char* const asked = std::getenv("STEPNET_SEEDS");
  return static_cast<unsigned>(asked == nullptr ? FewerIfSanitized(static_cast<int>(usual)) : std::stoul(asked));
}

int MinOfSeeds(int usual, unsigned usual_seeds) {
  const std::int64_t seeds = NumSeeds(usual_seeds);
  return seeds >= usual_seeds ? usual : static_cast<int>(3 * usual * seeds / (4 * std::int64_t{usual_seeds}));
}

NetDef WithLastRows(NetDef net) {
  OperatorDef* const op = net.mutable_op(0);
  const auto num_aliases = static_cast<size_t>(FindArgument(*op, "alias_offset")->ints_size());
  OpBuilder(op).Int("private_states", 1);
  Argument* const offsets = NewArgument(op, "alias_offset");
  for (size_t i = 0; i < num_aliases; ++i) offsets->add_ints(-1);
  return net;
}

}  // namespace stepnet
