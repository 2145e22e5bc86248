// Random cells: their gradients match differences. (Values of random step nets: random_steps_test.cc.)
#include <random>
#include <set>

#include "recurrent_case.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/backward.h"
#include "stepnet/tests/executor/random_step.h"

namespace stepnet {
namespace {

constexpr std::int64_t kSize = 3;

struct Cell {
  std::vector<OperatorDef> ops;
  std::vector<std::string> next;      // of each state, the blob that becomes it
  std::vector<int> num_weights = {};  // pairs of w<i>, b<i>
  std::int64_t y_offset = 0;          // of the second sequence
};

OperatorDef Fc(const std::string& text) {
  OperatorDef op = ParseOp(text);
  AddInt(&op, "axis", 2);
  return op;
}

Cell RandomCell(unsigned seed) {
  std::mt19937 rng(seed);
  const auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  Cell cell;
  const int num_states = 1 + pick(3);
  std::vector<std::string> blobs = {"x_t", "y_t"};
  for (int i = 0; i < num_states; ++i) blobs.push_back(StrCat("prev", i));
  const auto any = [&] { return blobs[pick(static_cast<int>(blobs.size()))]; };
  const int num_ops = 1 + pick(6);
  std::vector<std::string> written;
  for (int k = 0; k < num_ops; ++k) {
    const std::string out = StrCat("v", k);
    const int kind = pick(5);
    switch (kind) {
      case 0: cell.ops.push_back(ParseOp(StrCat(out, " = Sum(", any(), ", ", any(), ", ", any(), ")"))); break;
      case 1: cell.ops.push_back(ParseOp(StrCat(out, " = Mul(", any(), ", ", any(), ")"))); break;
      case 2: cell.ops.push_back(ParseOp(StrCat(out, " = Tanh(", any(), ")"))); break;
      case 3: cell.ops.push_back(ParseOp(StrCat(out, " = Sigmoid(", any(), ")"))); break;
      default:
        cell.ops.push_back(Fc(StrCat(out, " = FC(", any(), ", w", k, ", b", k, ")")));
        cell.num_weights.push_back(k);
    }
    // In place, over a value that no gradient needs.
    const bool overwrites = pick(4) == 0 && kind != 2 && kind != 3;
    if (overwrites) cell.ops.push_back(ParseOp(StrCat(out, " = Tanh(", out, ")")));
    blobs.push_back(out);
    written.push_back(out);
  }
  for (int i = 0; i < num_states; ++i) cell.next.push_back(written[pick(num_ops)]);
  cell.y_offset = pick(3);
  return cell;
}

using Feeds = std::vector<std::pair<std::string, Tensor>>;

Feeds FeedsOf(const Cell& cell, std::int64_t steps, std::int64_t batch) {
  Feeds feeds = {{"x", Random({steps, batch, kSize}, 1)}, {"y", Random({steps + cell.y_offset, batch, kSize}, 2)}};
  for (size_t i = 0; i < cell.next.size(); ++i) feeds.emplace_back(StrCat("init", i), Random({batch, kSize}, 10 + i));
  for (const int k : cell.num_weights) {
    feeds.emplace_back(StrCat("w", k), Random({kSize, kSize}, 20 + k));
    feeds.emplace_back(StrCat("b", k), Random({kSize}, 40 + k));
  }
  return feeds;
}

// `shown`: blobs that are step outputs.
RecurrentCase MakeCase(const Cell& cell, const std::vector<std::string>& shown = {}) {
  // A link that nobody reads would be refused.
  const auto read = [&](const std::string& blob) {
    const auto reads = [&](const OperatorDef& op) { return std::ranges::count(op.input(), blob) > 0; };
    return std::ranges::any_of(cell.ops, reads) || std::ranges::count(shown, blob) > 0 ? blob : "";
  };
  RecurrentCase net;
  net.Sequence("x", read("x_t")).Sequence("y", read("y_t"), cell.y_offset);
  for (size_t i = 0; i < cell.next.size(); ++i) {
    net.State(StrCat("state", i), StrCat("init", i), read(StrCat("prev", i)), cell.next[i]);
    net.Output(StrCat("all", i), StrCat("state", i), 1);
  }
  for (const int k : cell.num_weights) net.Captured(StrCat("w", k)).Captured(StrCat("b", k));
  for (const OperatorDef& op : cell.ops) net.Step(op);
  return net;
}

// Adds the backward step net that the reverse pass gives for the step net: the gradient of the sum over the states of
// next · next_grad is what a step hands to what it read.
void AddBackwardStep(const Cell& cell, RecurrentCase* net) {
  NetDef step;
  std::set<std::string> nexts(cell.next.begin(), cell.next.end());
  for (const OperatorDef& op : cell.ops) *step.add_op() = op;
  std::vector<std::string> losses;
  for (const std::string& next : nexts) {
    *step.add_op() = ParseOp(StrCat(next, "_times = Mul(", next, ", incoming_", next, ")"));
    *step.add_op() = ParseOp(StrCat(next, "_loss = SumElements(", next, "_times)"));
    losses.push_back(next + "_loss");
  }
  std::vector<std::string> inputs = {"x_t", "y_t"};
  for (size_t i = 0; i < cell.next.size(); ++i) inputs.push_back(StrCat("prev", i));
  for (const int k : cell.num_weights) {
    inputs.push_back(StrCat("w", k));
    inputs.push_back(StrCat("b", k));
  }
  const NetWithGradients made = AddGradients(step, losses, inputs);
  net->BackwardStep("");
  for (int k = static_cast<int>(cell.ops.size()); k < made.net.op_size(); ++k) net->BackwardStep(made.net.op(k));
  const auto gradient = [&](const std::string& blob) {
    const auto found = made.gradients.find(blob);
    return found == made.gradients.end() ? "" : found->second.dense;
  };
  for (size_t i = 0; i < cell.next.size(); ++i) {
    net->BackwardLink("incoming_" + cell.next[i], StrCat("state", i, "_grad"), 1);
    if (const std::string g = gradient(StrCat("prev", i)); !g.empty())
      net->BackwardLink(g, StrCat("state", i, "_grad"), 0);
    net->OutputGradient(StrCat("all", i));
  }
  if (const std::string g = gradient("x_t"); !g.empty()) net->BackwardLink(g, "x_grad", 0);
  if (const std::string g = gradient("y_t"); !g.empty()) {
    net->BackwardLink(g, "y_grad", cell.y_offset).Param("y", g);
  }
  for (const int k : cell.num_weights) {
    for (const char* letter : {"w", "b"}) {
      const std::string blob = StrCat(letter, k);
      if (const std::string g = gradient(blob); !g.empty()) net->Param(blob, g);
    }
  }
}

TEST(RandomCells, GradientsMatchDifferences) {
  int checked = 0;
  for (unsigned seed = 0; seed < NumSeeds(120); ++seed) {
    const Cell cell = RandomCell(seed);
    std::vector<std::string> outputs;
    for (size_t i = 0; i < cell.next.size(); ++i) outputs.push_back(StrCat("all", i));
    const auto make = [&] {
      RecurrentCase net = MakeCase(cell);
      AddBackwardStep(cell, &net);
      net.WithGradient();
      return net;
    };
    const Feeds feeds = FeedsOf(cell, 3, 2);
    const NetDef def = make().Build();
    std::vector<std::pair<std::string, std::string>> gradients;
    for (const std::string& output : def.op(1).output()) {
      gradients.emplace_back(output.substr(0, output.size() - std::string("_grad").size()), output);
    }
    checked += static_cast<int>(gradients.size());
    SCOPED_TRACE(StrCat("seed ", seed, " ", def.ShortDebugString()));
    ExpectGradientsMatch(make, feeds, outputs, gradients);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(checked, MinOfSeeds(300, 120));
}

// The same cells with backward step nets made from them, and with blobs of any kind as outputs: read, written, in
// place, several times.
TEST(RandomCells, MadeGradientsMatchDifferences) {
  for (unsigned seed = 0; seed < NumSeeds(60); ++seed) {
    const Cell cell = RandomCell(seed);
    std::mt19937 rng(seed);
    std::vector<std::string> blobs = {"x_t", "y_t", "prev0"};
    for (const OperatorDef& op : cell.ops) blobs.push_back(op.output(0));
    std::vector<std::string> sources, outputs;
    for (unsigned i = 0; i < 1 + rng() % 3; ++i) {
      sources.push_back(blobs[rng() % blobs.size()]);
      outputs.push_back(StrCat("output", i));
    }
    RecurrentCase net = MakeCase(cell, sources);
    for (const std::string& output : outputs) net.forward().add_output(output);
    AddStrings(&net.forward(), "step_output_src", sources);
    AddStrings(&net.forward(), "step_output_dst", outputs);
    if (rng() % 2 == 0) outputs.push_back("all0");
    SCOPED_TRACE(StrCat("seed ", seed, " ", net.Build().ShortDebugString()));
    ExpectMadeGradientsMatch(net.Build(), outputs, FeedsOf(cell, 3, 2));
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace stepnet
