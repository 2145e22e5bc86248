// Requests of gradients of whole nets: what is written, added to what is there, and not made.
#include <algorithm>

#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

constexpr GradientRequest kAdd = GradientRequest::kAdd, kNone = GradientRequest::kNone,
                          kWrite = GradientRequest::kWrite;

NetDef NetOf(const std::vector<std::string>& lines) {
  NetDef net;
  for (const std::string& line : lines) *net.add_op() = ParseOp(line);
  return net;
}

std::vector<std::string> GradientLines(const NetWithGradients& made) {
  std::vector<std::string> lines;
  for (int k = made.num_forward; k < made.net.op_size(); ++k) lines.push_back(OperatorText(made.net.op(k)));
  return lines;
}

TEST(NetGradientRequests, NoneIsAsIfNobodyHadAsked) {
  const NetDef net = NetOf({"p = Mul(x, v)", "y = Tanh(p)"});
  EXPECT_EQ(GradientLines(AddGradients(net, {"y"}, {"x", "v"}, {{"v", kNone}})),
            GradientLines(AddGradients(net, {"y"}, {"x"})));
  EXPECT_EQ(AddGradients(net, {"y"}, {"x", "v"}, {{"v", kNone}}).gradients.size(), 1u);
  EXPECT_TRUE(AddGradients(net, {"y"}, {"x", "v"}, {{"v", kNone}, {"x", kNone}}).gradients.empty());
}

TEST(NetGradientRequests, AddIsTheLastOfTheNet) {
  const NetDef net = NetOf({"p = Mul(x, v)", "y = Tanh(p)"});
  const NetWithGradients made = AddGradients(net, {"y"}, {"x", "v"}, {{"v", kAdd}, {"x", kWrite}});
  EXPECT_EQ(made.gradients.at("x").dense, "x_grad");
  EXPECT_EQ(made.gradients.at("v").dense, "v_grad");
  EXPECT_EQ(OperatorText(*made.net.op().rbegin()), "v_grad = AddGradient(v_grad, _v_grad_autosplit)");
}

// What the caller's blob is called is theirs, where the net has that name already.
TEST(NetGradientRequests, AddKeepsOffNamesThatTheNetUses) {
  const NetDef net = NetOf({"x_grad = Tanh(x)", "y = Mul(x_grad, x)"});
  const NetWithGradients made = AddGradients(net, {"y"}, {"x"}, {{"x", kAdd}});
  EXPECT_EQ(made.gradients.at("x").dense, "x_grad_0");
  NetDef listed = net;
  listed.add_external_input("x");
  const NetDef with_gradients = AddGradients(listed, {"y"}, {"x"}, {{"x", kAdd}}).net;
  EXPECT_EQ(std::ranges::count(with_gradients.external_input(), "x_grad_0"), 1);
  EXPECT_TRUE(CheckNet(with_gradients, {.all_inputs_known = true}).empty());
}

void FeedNet(Workspace& workspace) {
  workspace.SetTensor("x", Random({3}, 1));
  workspace.SetTensor("v", Random({3}, 2));
}

TEST(NetGradientRequests, AddsInTheMemoryThatIsThere) {
  const NetDef net = NetOf({"p = Mul(x, v)", "y = Tanh(p)", "z = Mul(y, x)"});
  Workspace plain, adding;
  FeedNet(plain);
  FeedNet(adding);
  RunNetOnce(AddGradients(net, {"z"}, {"x", "v"}).net, plain);
  const std::unique_ptr<Net> running = [&] {
    const NetWithGradients made = AddGradients(net, {"z"}, {"x", "v"}, {{"x", kAdd}});
    adding.SetTensor("x_grad", Random({3}, 3));
    return Net::Create(made.net, adding);
  }();
  const void* memory = adding.GetTensor("x_grad").raw();
  std::vector<double> expected = Values(adding.GetTensor("x_grad"));
  const std::vector<double> gradient = Values(plain.GetTensor("x_grad"));
  for (int run = 0; run < 3; ++run) {
    running->Run();
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += gradient[i];
    EXPECT_EQ(Values(adding.GetTensor("x_grad")), expected) << "run " << run;
    EXPECT_EQ(adding.GetTensor("x_grad").raw(), memory);
  }
  ExpectSame(adding.GetTensor("v_grad"), plain.GetTensor("v_grad"), "v_grad");
}

TEST(NetGradientRequests, AddMakesGradientsOfTablesWhole) {
  NetDef net = NetOf({"rows = Gather(table, ids)", "y = Mul(rows, rows)"});
  EXPECT_TRUE(AddGradients(net, {"y"}, {"table"}).gradients.at("table").dense.empty());
  const NetWithGradients made = AddGradients(net, {"y"}, {"table"}, {{"table", kAdd}});
  Workspace workspace;
  workspace.SetTensor("table", Tensor::Of<double>({3, 1}, {1, 2, 3}));
  workspace.SetTensor("ids", Tensor::Of<std::int32_t>({3}, {2, 0, 2}));
  workspace.SetTensor("table_grad", Tensor::Of<double>({3, 1}, {10, 20, 30}));
  RunNetOnce(made.net, workspace);
  EXPECT_EQ(Values(workspace.GetTensor(made.gradients.at("table").dense)), (std::vector<double>{12, 20, 42}));
}

// A sum passes its gradient on as it is, and a loss may be what is differentiated by.
TEST(NetGradientRequests, AddsOneGradientToSeveralSums) {
  const NetWithGradients made = AddGradients(NetOf({"y = Sum(a, b)"}), {"y"}, {"a", "b"}, {{"a", kAdd}, {"b", kAdd}});
  Workspace workspace;
  for (const char* blob : {"a", "b"}) workspace.SetTensor(blob, Tensor::Of<double>({1}, {5}));
  workspace.SetTensor("a_grad", Tensor::Of<double>({1}, {10}));
  workspace.SetTensor("b_grad", Tensor::Of<double>({1}, {20}));
  RunNetOnce(made.net, workspace);
  EXPECT_EQ(Values(workspace.GetTensor("a_grad")), std::vector<double>{11});
  EXPECT_EQ(Values(workspace.GetTensor("b_grad")), std::vector<double>{21});
}

TEST(NetGradientRequests, AddNeedsSomethingToAddTo) {
  const NetDef net = AddGradients(NetOf({"p = Mul(x, v)", "y = Tanh(p)"}), {"y"}, {"x"}, {{"x", kAdd}}).net;
  const auto run = [&](const Tensor* sum) {
    Workspace workspace;
    FeedNet(workspace);
    if (sum != nullptr) workspace.SetTensor("x_grad", *sum);
    RunNetOnce(net, workspace);
  };
  ExpectError([&] { run(nullptr); },
              "…type mismatch: blob \"x_grad\" holds nothing, a tensor is needed; AddGradient reads it as sum: the "
              "gradients so far, of the shape and type of the gradient; zeros for a new sum\n");
  const Tensor other = Random({1}, 1), floats = Random({3}, 1, DType::kFloat);
  ExpectError([&] { run(&other); },
              "…shape mismatch: gradient_requests says add for \"x_grad\", which holds double [1] and must hold double "
              "[3], as the gradient is; for a new sum fill it with zeros of that shape and type\n");
  ExpectError([&] { run(&floats); },
              "…type mismatch: gradient_requests says add for \"x_grad\", which holds float [3] and must hold double "
              "[3], as the gradient is; for a new sum fill it with zeros of that shape and type\n");
}

// Whoever lends memory to be read keeps it.
TEST(NetGradientRequests, AddWritesNoMemoryThatIsLent) {
  const NetDef net = AddGradients(NetOf({"y = Mul(x, v)"}), {"y"}, {"x"}, {{"x", kAdd}}).net;
  std::vector<double> lent(3, 1.0);
  Workspace workspace;
  FeedNet(workspace);
  workspace.SetTensor("x_grad", Tensor::Wrap(lent.data(), DType::kDouble, Shape({3})));
  ExpectError([&] { RunNetOnce(net, workspace); }, "…blob \"x_grad\" holds memory that is lent to be read");
  EXPECT_EQ(lent, std::vector<double>(3, 1.0));
}

TEST(NetGradientRequests, AreOfGradientsThatThereAre) {
  const NetDef net = NetOf({"y = Tanh(x)", "s = StopGradient(w)", "z = Mul(y, s)"});
  ExpectError(
      [&] {
        AddGradients(net, {"z"}, {"x"}, {{"X", kNone}});
      },
      "invalid argument: gradient_requests says none for \"X\", by which no gradient is made; did you mean "
      "\"x\"?; gradients are by x");
  for (const GradientRequest request : {kAdd, kWrite}) {
    ExpectError(
        [&] {
          AddGradients(net, {"z"}, {"x", "w"}, {{"w", request}});
        },
        StrCat("invalid argument: gradient_requests says ", GradientRequestName(request),
               " for \"w\", of which the loss is no differentiable function; leave it out, or say none"));
  }
  EXPECT_EQ(AddGradients(net, {"z"}, {"x", "w"}, {{"w", kNone}}).gradients.size(), 1u);
  ExpectError([&] { ParseGradientRequest("null", "it says"); },
              "invalid argument: it says \"null\"; it must be write, add or none, which is MXNet's null");
}

// h = tanh(x w + h u), its backward step net given. `param` lists u alone, though the step gives the gradient of w,
// too.
NetDef LayerWithShortParamList() {
  RecurrentCase layer;
  layer.Sequence("x", "x_t").State("h", "h0", "h_prev", "h").Captured("w").Captured("u");
  layer.Step("a = Mul(x_t, w)").Step("b = Mul(h_prev, u)").Step("s = Sum(a, b)").Step("h = Tanh(s)");
  layer.Output("h_all", "h", 1);
  NetDef net = layer.Build();
  AddBackwardStepNets(&net);
  for (Argument& argument : *net.mutable_op(0)->mutable_arg()) {
    if (argument.name() == "param") argument.mutable_ints()->Truncate(1);
    if (argument.name() == "param_grads") argument.mutable_strings()->DeleteSubrange(1, argument.strings_size() - 1);
  }
  return net;
}

std::vector<std::string> RequestsOf(const OperatorDef& op) {
  const auto found = std::ranges::find(op.arg(), "gradient_requests", &Argument::name);
  return found == op.arg().end() ? std::vector<std::string>()
                                 : std::vector<std::string>(found->strings().begin(), found->strings().end());
}

TEST(NetGradientRequests, ReachRecurrentOperatorsThatHaveABackwardStepNet) {
  const NetDef net = LayerWithShortParamList();
  EXPECT_TRUE(RequestsOf(AddGradients(net, {"h_all"}, {"w"}).net.op(0)).empty()) << "another call may ask for others";
  const NetWithGradients made = AddGradients(net, {"h_all"}, {"x", "w", "u", "h0"}, {{"x", kNone}, {"u", kNone}});
  const std::vector<std::string> expected = {"none", "none", "write", "write"};  // x, u, w, h0
  EXPECT_EQ(RequestsOf(made.net.op(0)), expected);
  EXPECT_EQ(RequestsOf(*std::ranges::find(made.net.op(), "RecurrentNetworkGradient", &OperatorDef::type)), expected);
  EXPECT_EQ(made.gradients.size(), 2u);
  // The forward operator lists what its requests are of, or it would not know what to keep.
  EXPECT_EQ(std::ranges::find(made.net.op(0).arg(), "param", &Argument::name)->ints_size(), 2);
}

// What the operator itself adds to is somebody's, whoever asks for what else.
TEST(NetGradientRequests, LeaveWhatOperatorsAddTo) {
  NetDef net = LayerWithShortParamList();
  AddStrings(net.mutable_op(0), "gradient_requests", {"add", "write", "write", "add"});  // x, u, w, h0
  OperatorDef& op = *net.mutable_op(0);
  for (Argument& argument : *op.mutable_arg()) {
    if (argument.name() == "param") argument.add_ints(2);
    if (argument.name() == "param_grads") argument.add_strings("w_grad");
  }
  const NetWithGradients made = AddGradients(net, {"h_all"}, {"w", "u"}, {{"u", kNone}});
  EXPECT_EQ(RequestsOf(made.net.op(0)), (std::vector<std::string>{"add", "none", "write", "add"}));
}

// Its gradient operator, made before, reads what it keeps.
TEST(NetGradientRequests, LeaveOperatorsAloneWhoseGradientsAreThere) {
  const NetDef first = AddGradients(LayerWithShortParamList(), {"h_all"}, {"w"}).net;
  NetDef both = first;
  *both.add_op() = ParseOp("z = Mul(x, v)");
  const NetWithGradients made = AddGradients(both, {"z"}, {"v", "u"}, {{"u", kNone}});
  EXPECT_TRUE(RequestsOf(made.net.op(0)).empty());
}

}  // namespace
}  // namespace stepnet
