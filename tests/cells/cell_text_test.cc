// The short form of cells: what it says, and that text → message → text → message comes back the same.
#include <google/protobuf/text_format.h>

#include <filesystem>
#include <random>

#include "stepnet/cells/cell.h"
#include "stepnet/cells/cell_expand.h"
#include "stepnet/core/exact_number.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/core/source_path.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

CellDef Parse(const std::string& text) { return ParseShortCell(text, "text").def; }

// The operators of a step `lines`, a call a line, in a cell with all kinds of blobs.
std::string Step(const std::string& lines) {
  const CellDef cell = Parse(
      "cell c(x[D]; h[H], s[H]; e[S, B, E]) {\n  size D = 2\n  size H = 3\n  size S = 4\n  size E = 5\n"
      "  param w[H, D]\n  param u[H, H]\n  param b[H]\n" +
      lines + "\n  output h\n}\n");
  const std::string text = PrintShortCell(cell);
  const size_t begin = text.find("param b[H]\n") + 11;
  return text.substr(begin, text.rfind("  output h") - begin);
}

TEST(ShortCell, SaysWhatTheMessageSays) {
  const CellDef cell = Parse(R"(# What it does.
#
# Source: a paper.
cell demo(x, y[D], mood[]; h[H], c[2*H, H/2]; keys[S, B, H]) {
  size D
  size H = 4*2
  size S = 7
  param w[H, D]                                   # products
  param b[H] = -0.5
  param g[H] = UniformFill(min=-1, max=1)
  param r[H, H] = GaussianFill
  state c initial=learned window=3 dropout=0.25 zoneout=0.5
  state h initial=-1.5

  h = Tanh(x @ w + b); c = Copy(c)
  output h
  output c last as c_end
  option layers = 2
  option direction = bidirectional
  option lengths = how_long
  option residual = true
  option dropout = 0.5
}
)");
  CellDef wanted;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
    name: "demo" doc: "What it does.\n\nSource: a paper."
    size { name: "D" } size { name: "H" value: 8 } size { name: "S" value: 7 }
    input { name: "x" shape: "D" } input { name: "y" shape: "D" } input { name: "mood" }
    state { name: "h" shape: "H" initial: "-1.5" }
    state { name: "c" shape: "2*H" shape: "H/2" initial: "learned" window: 3 dropout: 0.25 zoneout: 0.5 }
    capture { name: "keys" shape: "S" shape: "B" shape: "H" }
    parameter { name: "w" shape: "H" shape: "D" }
    parameter { name: "b" shape: "H" initializer { type: "ConstantFill" arg { name: "value" f: -0.5 } } }
    parameter {
      name: "g" shape: "H"
      initializer { type: "UniformFill" arg { name: "min" f: -1 } arg { name: "max" f: 1 } }
    }
    parameter { name: "r" shape: "H" shape: "H" initializer { type: "GaussianFill" } }
    op { type: "FC" input: "x" input: "w" input: "b" output: "h.1" arg { name: "axis" i: -1 } }
    op { type: "Tanh" input: "h.1" output: "h" }
    op { type: "Copy" input: "c_prev" output: "c" }
    output { blob: "h" } output { blob: "c" last: true name: "c_end" }
    options { layers: 2 residual: true direction: BIDIRECTIONAL dropout: 0.5 lengths: "how_long" })",
                                                            &wanted));
  EXPECT_EQ(cell.DebugString(), wanted.DebugString());
}

TEST(ShortCell, ExpressionsBecomeOperators) {
  EXPECT_EQ(Step("h = Tanh(x @ w + b + h @ u)\ns = h"),
            "  h.1 = FC(x, w, b, axis=-1)\n  h.2 = FC(h_prev, u, axis=-1)\n  h.3 = Add(h.1, h.2)\n  h = Tanh(h.3)\n"
            "  s = Copy(h)\n");
  // A bias goes into the product alone; what is added otherwise is repeated.
  EXPECT_EQ(Step("h = s + b\ns = h @ u - b"), "  h = Add(s_prev, b)\n  s.1 = FC(h, u, axis=-1)\n  s = Sub(s.1, b)\n");
  EXPECT_EQ(Step("h = b * s\ns = (s - h) / b"), "  h = Mul(b, s_prev)\n  s.1 = Sub(s_prev, h)\n  s = Div(s.1, b)\n");
  EXPECT_EQ(Step("param one[1]\nh = x @ w + one\ns = h"),
            "  param one[1]\n  h.1 = FC(x, w, axis=-1)\n  h = Add(h.1, one)\n  s = Copy(h)\n");
  // So are functions of parameters.
  EXPECT_EQ(Step("rate = Sigmoid(b)\nh = rate * h\ns = (1 - rate) * s + u * b"),
            "  rate = Sigmoid(b)\n  h = Mul(rate, h_prev)\n  s.1 = ConstantFill(rate, value=1.0)\n"
            "  s.2 = Sub(s.1, rate)\n  s.3 = Mul(s.2, s_prev)\n  s.4 = Mul(u, b)\n  s = Add(s.3, s.4)\n");
  // Numbers are computed, or scale, or take the shape of the other operand.
  EXPECT_EQ(Step("h = (1 + 2 * 3) * h\ns = 1 - s / 4"),
            "  h = Scale(h_prev, scale=7.0)\n  s.1 = Scale(s_prev, scale=0.25)\n  s.2 = ConstantFill(s.1, value=1.0)\n"
            "  s = Sub(s.2, s.1)\n");
  EXPECT_EQ(Step("h = -s_prev + h + h_prev\ns = h"),
            "  h.1 = Negative(s_prev)\n  h.2 = Add(h.1, h_prev)\n  h = Add(h.2, h_prev)\n  s = Copy(h)\n");
  // Precedence: @ * / before + -, from the left.
  EXPECT_EQ(Step("h = h - s * h - s\ns = h"),
            "  h.1 = Mul(s_prev, h_prev)\n  h.2 = Sub(h_prev, h.1)\n  h = Sub(h.2, s_prev)\n  s = Copy(h)\n");
}

TEST(ShortCell, CallsTakeExpressionsAndArguments) {
  EXPECT_EQ(Step("h, s = Split(Concat(h + s, h, axis=-1), axis=2, split=[H, 3])"),
            "  h.1 = Add(h_prev, s_prev)\n  h.2, h.3 = Concat(h.1, h_prev, axis=-1)\n"
            "  h, s = Split(h.2, axis=2, split=[H, 3])\n");
  EXPECT_EQ(Step("h = Dropout(h, ratio=1, is_test=true)\ns = Clip(s, min=-1, max=2.5)"),
            "  h = Dropout(h_prev, ratio=1.0, is_test=1)\n  s = Clip(s_prev, min=-1.0, max=2.5)\n");
  EXPECT_EQ(Step("h = Slice(h, starts=[0, 0, 1], ends=[-1, -1, H - 1],\n      )\ns = h"),
            "  h = Slice(h_prev, starts=[0, 0, 1], ends=[-1, -1, H - 1])\n  s = Copy(h)\n");
  EXPECT_EQ(Step("mask = SequenceMask(e, mode=\"upper\")\nh = s; s = h"),
            "  mask = SequenceMask(e, mode=\"upper\")\n  h = Copy(s_prev)\n  s = Copy(h)\n");
}

// Where inputs are repeated over each other, that of the last input that is none.
TEST(ShortCell, NumbersAmongInputsHaveTheShapeOfAnother) {
  EXPECT_EQ(Step("h = Max(h, 0)\ns = Where(GT(0.5, s), 1, s / H)"),
            "  h.1 = ConstantFill(h_prev, value=0.0)\n  h = Max(h_prev, h.1)\n"
            "  s.1 = ConstantFill(s_prev, value=0.5)\n  s.2 = GT(s.1, s_prev)\n  s.3 = Scale(s_prev, scale=1/H)\n"
            "  s.4 = ConstantFill(s.3, value=1.0)\n  s = Where(s.2, s.4, s.3)\n");
  EXPECT_EQ(Step("h = Min(1/H, h @ u)\ns = Where(LT(s, h), 1, 0)"),
            "  h.1 = FC(h_prev, u, axis=-1)\n  h.2 = ConstantFill(h.1, value=1/H, dtype=1)\n  h = Min(h.2, h.1)\n"
            "  s.1 = LT(s_prev, h)\n  s.2 = ConstantFill(s.1, value=1.0)\n  s.3 = ConstantFill(s.1, value=0.0)\n"
            "  s = Where(s.1, s.2, s.3)\n");
}

TEST(ShortCell, NumbersBesideWholeNumbersAreWhole) {
  EXPECT_EQ(Step("on = EQ(Mod(timestep - 1, divisor=2), 0)\nh = Where(on, h, s)\ns = h"),
            "  on.1 = ConstantFill(timestep, value=1, dtype=2)\n  on.2 = Sub(timestep, on.1)\n"
            "  on.3 = Mod(on.2, divisor=2)\n  on.4 = ConstantFill(on.3, value=0, dtype=2)\n  on = EQ(on.3, on.4)\n"
            "  h = Where(on, h_prev, s_prev)\n  s = Copy(h)\n");
  EXPECT_EQ(Step("n = Cast(s, to=\"int64\")\nh = Where(GE(n, 3), h, 0)\ns = Where(EQ(GE(n, 3), h), 2, s)"),
            "  n = Cast(s_prev, to=\"int64\")\n  h.1 = ConstantFill(n, value=3, dtype=10)\n  h.2 = GE(n, h.1)\n"
            "  h.3 = ConstantFill(h_prev, value=0.0)\n  h = Where(h.2, h_prev, h.3)\n"
            "  s.1 = ConstantFill(n, value=3, dtype=10)\n  s.2 = GE(n, s.1)\n  s.3 = EQ(s.2, h)\n"
            "  s.4 = ConstantFill(s_prev, value=2.0)\n  s = Where(s.3, s.4, s_prev)\n");
}

TEST(ShortCell, NumbersOfArgumentsAreExpressionsOfSizes) {
  // Also where an argument takes anything; what is in quotes is a string.
  EXPECT_EQ(Step("h = ConstantFill(h, value=2*H - 1, dtype=1)\ns = Cast(Scale(s, scale=H), to=\"float\")"),
            "  h = ConstantFill(h_prev, value=2*H - 1, dtype=1)\n  s.1 = Scale(s_prev, scale=H)\n"
            "  s = Cast(s.1, to=\"float\")\n");
  EXPECT_EQ(Step("h = Scale(h, scale=-1/sqrt(2*H))\ns = Clip(s, min=-1.5/H, max=(H + 0.5)*1e-1)"),
            "  h = Scale(h_prev, scale=-1/sqrt(2*H))\n  s = Clip(s_prev, min=-1.5/H, max=(H + 0.5)*1e-1)\n");
}

TEST(ShortCell, NumbersOfExpressionsMayFollowFromSizes) {
  EXPECT_EQ(Step("h = (h @ u) / sqrt(H)\ns = s * H"),
            "  h.1 = FC(h_prev, u, axis=-1)\n  h = Scale(h.1, scale=1/sqrt(H))\n  s = Scale(s_prev, scale=H)\n");
  EXPECT_EQ(Step("h = 2*(H - D)*h/(2*H)\ns = -H * s / -(H + 1)"),
            "  h.1 = Scale(h_prev, scale=2*(H - D))\n  h = Scale(h.1, scale=1/(2*H))\n"
            "  s.1 = Scale(s_prev, scale=-H)\n  s = Scale(s.1, scale=1/(-(H + 1)))\n");
  EXPECT_EQ(Step("h = h + D/H/2 - 1e-5*H\ns = (D - (H - S) + 1)*s"),
            "  h.1 = ConstantFill(h_prev, value=D/H/2, dtype=1)\n  h.2 = Add(h_prev, h.1)\n"
            "  h.3 = ConstantFill(h.2, value=(1e-05)*H, dtype=1)\n  h = Sub(h.2, h.3)\n"
            "  s = Scale(s_prev, scale=D - (H - S) + 1)\n");
  // Those of numbers alone are numbers.
  EXPECT_EQ(Step("h = h / sqrt(4)\ns = h"), "  h = Scale(h_prev, scale=0.5)\n  s = Copy(h)\n");
}

TEST(ShortCell, AnExpressionGoesOnBehindAnOperator) {
  EXPECT_EQ(Step("h =\n  h +\n  s *\n  h\ns = h"),
            "  h.1 = Mul(s_prev, h_prev)\n  h = Add(h_prev, h.1)\n  s = Copy(h)\n");
}

// A state is its value before the step until it is written.
TEST(ShortCell, AStateIsItsLastValueUntilItIsWritten) {
  EXPECT_EQ(Step("h = h\nk = h + h_prev\ns = k"), "  h = Copy(h_prev)\n  k = Add(h, h_prev)\n  s = Copy(k)\n");
}

TEST(ShortCell, IsKnownByItsFirstWord) {
  EXPECT_TRUE(IsShortCell("# a\n\n  cell c("));
  EXPECT_TRUE(IsShortCell("cell\nc"));
  EXPECT_TRUE(IsShortCell("cell"));
  EXPECT_FALSE(IsShortCell("cells"));
  EXPECT_FALSE(IsShortCell("cell: 1"));
  EXPECT_FALSE(IsShortCell("name: \"cell \""));
  EXPECT_FALSE(IsShortCell("# cell c("));
  EXPECT_FALSE(IsShortCell(""));
}

TEST(ShortCell, LinesMayEndAsWindowsEndsThem) {
  EXPECT_EQ(Parse("# a\r\ncell c(x[2]; ) {\r\n  y = x\r\n  output y\r\n}\r\n").DebugString(),
            Parse("# a\ncell c(x[2]; ) {\n  y = x\n  output y\n}\n").DebugString());
}

TEST(ShortCell, ExamplesComeBackTheSame) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("examples/cells"))) {
    if (entry.path().extension() != ".cell") continue;
    SCOPED_TRACE(entry.path());
    ++count;
    const CellSource cell = ReadCell(entry.path());
    const std::string text = PrintShortCell(cell.def);
    const CellDef again = Parse(text);
    EXPECT_EQ(again.DebugString(), cell.def.DebugString());
    EXPECT_EQ(PrintShortCell(again), text);

    // The message, as text and as bytes, stands for the same nets.
    const CellNet nets = ExpandCell(cell);
    for (const std::string& content : {cell.def.DebugString(), cell.def.SerializeAsString()}) {
      const CellNet other = ExpandCell(ParseCell(content, "message"));
      EXPECT_EQ(other.net.SerializeAsString(), nets.net.SerializeAsString());
      EXPECT_EQ(other.init_net.SerializeAsString(), nets.init_net.SerializeAsString());
    }
  }
  EXPECT_EQ(count, 17);
}

// Cells that make no sense, with everything that the short form can say.
class RandomCell {
 public:
  explicit RandomCell(unsigned seed) : random_(seed) {}

  CellDef Make() {
    CellDef cell;
    cell.set_name(NewName());
    if (Maybe()) cell.set_doc("A cell.\n\nOf \"random\" parts.");
    for (int i = Up(3); i > 0; --i) {
      CellSize& size = *cell.add_size();
      size.set_name(NewName());
      if (Maybe()) size.set_value(Up(100) + 1);
    }
    for (int i = Up(2) + 1; i > 0; --i) Declare(cell.add_input());
    for (int i = Up(3); i > 0; --i) AddState(&cell);
    for (int i = Up(2); i > 0; --i) Declare(cell.add_capture());
    for (int i = Up(3); i > 0; --i) {
      CellParameter& parameter = *cell.add_parameter();
      Declare(&parameter);
      if (Maybe()) Call("GaussianFill", parameter.mutable_initializer());
    }
    for (const CellInput& input : cell.input()) blobs_.push_back(input.name());
    for (const CellState& state : cell.state()) AddOp(&cell, {state.name()});
    for (int i = Up(4); i > 0; --i) AddOp(&cell, {NewName(), NewName()});
    for (int i = Up(3); i > 0; --i) {
      CellOutput& output = *cell.add_output();
      output.set_blob(Blob());
      if (Maybe()) output.set_last(true);
      if (Maybe()) output.set_name(NewName());
    }
    if (Maybe()) SetOptions(cell.mutable_options());
    return cell;
  }

 private:
  int Up(int count) { return static_cast<int>(random_() % count); }
  bool Maybe() { return random_() % 2 == 0; }
  float Float() {
    const std::vector<float> kFloats = {0, -0.0F, 1, 1e-38F, -3.4e38F, 0.1F, 16777216, 123456.789F};
    return kFloats[Up(8)];
  }
  std::int64_t Int() {
    const std::vector<std::int64_t> kInts = {0, -1, 7, INT64_MAX, INT64_MIN};
    return kInts[Up(5)];
  }
  std::string NewName() {
    const std::vector<std::string> kParts = {"a", "size", "_", "cell", "last", "x.1", "Ab"};
    return StrCat(kParts[Up(7)], "_", ++num_names_);
  }
  std::string Blob() { return blobs_[random_() % blobs_.size()]; }

  template <typename Message>
  void Declare(Message* message) {
    const std::vector<std::string> kSizes = {"D", "4*H", "(D + H)/2", "64", "-1 + H"};
    message->set_name(NewName());
    for (int i = Up(3); i > 0; --i) message->add_shape(kSizes[Up(5)]);
  }

  void AddState(CellDef* cell) {
    CellState& state = *cell->add_state();
    Declare(&state);
    if (Maybe()) state.set_initial(std::vector<std::string>{"given", "learned", "-0.5", "1e-3"}[Up(4)]);
    if (Maybe()) state.set_window(Int());
    if (Maybe()) state.set_dropout(Float());
    if (Maybe()) state.set_zoneout(Float());
  }

  void Call(const std::string& type, OperatorDef* op) {
    op->set_type(type);
    for (int i = Up(4); i > 0; --i) {
      Argument& argument = *op->add_arg();
      argument.set_name(StrCat("arg", i));
      switch (Up(7)) {
        case 0: argument.set_f(Float()); break;
        case 1: argument.set_i(Int()); break;
        case 2: argument.set_s("with \"quotes\", \\ and # \xc3\xa9"); break;
        case 3:
          for (int k = Up(3); k >= 0; --k) argument.add_floats(Float() + 0.5F);
          break;
        case 4:
          for (int k = Up(3); k >= 0; --k) argument.add_ints(Int());
          break;
        case 5: SetWritten({Float() + 1.0 / 3, 1.0 / 3}, &argument); break;
        default:
          for (int k = Up(3); k >= 0; --k) argument.add_strings(std::vector<std::string>{"12", "2*H", ""}[Up(3)]);
      }
    }
  }

  void AddOp(CellDef* cell, const std::vector<std::string>& outputs) {
    OperatorDef& op = *cell->add_op();
    Call(outputs.size() == 1 ? "Tanh" : "Split", &op);
    for (int i = Up(3); i > 0; --i) op.add_input(Blob());
    for (const std::string& output : outputs) op.add_output(output);
    blobs_.insert(blobs_.end(), outputs.begin(), outputs.end());
  }

  void SetOptions(CellOptions* options) {
    if (Maybe()) options->set_layers(Int());
    if (Maybe()) options->set_residual(Maybe());
    if (Maybe()) options->set_direction(Maybe() ? CellOptions::REVERSE : CellOptions::FORWARD);
    if (Maybe()) options->set_dropout(Float());
    if (Maybe()) options->set_lengths(NewName());
    options->set_batch_major(Maybe());
  }

  std::mt19937 random_;
  int num_names_ = 0;
  std::vector<std::string> blobs_;
};

TEST(ShortCell, RandomCellsComeBackTheSame) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    const CellDef cell = RandomCell(seed).Make();
    const std::string text = PrintShortCell(cell);
    SCOPED_TRACE(StrCat("seed ", seed, "\n", text));
    ASSERT_EQ(Parse(text).DebugString(), cell.DebugString());
  }
}

TEST(ShortCell, PrintingRefusesWhatItCannotSay) {
  const CellDef cell = Parse("cell c(x[2]; h[2]) {\n  h = Tanh(x)\n  output h\n}\n");
  const auto expect = [&](const std::string& what, const std::function<void(CellDef*)>& change) {
    CellDef changed = cell;
    change(&changed);
    ExpectError([&] { PrintShortCell(changed); }, "invalid argument: " + what);
  };
  const std::string cannot = "the short form of cells cannot say ";
  expect(cannot + "the name \"a/b\"", [](CellDef* c) { c->mutable_input(0)->set_name("a/b"); });
  expect(cannot + "the name \"1st\"", [](CellDef* c) { c->mutable_op(0)->set_output(0, "1st"); });
  expect(cannot + "the name \"\"", [](CellDef* c) { c->clear_name(); });
  expect(cannot + "the name \"a b\"", [](CellDef* c) { c->mutable_state(0)->set_initial("a b"); });
  expect(cannot + "\"before\", a name of the previous \"h\" other than h_prev",
         [](CellDef* c) { c->mutable_state(0)->set_previous("before"); });
  expect(cannot + "the engine of Tanh", [](CellDef* c) { c->mutable_op(0)->set_engine("X"); });
  expect(cannot + "the name of Tanh", [](CellDef* c) { c->mutable_op(0)->set_name("X"); });
  expect(cannot + "the device_option of Tanh", [](CellDef* c) { c->mutable_op(0)->mutable_device_option(); });
  expect(cannot + "the control_input of Tanh", [](CellDef* c) { c->mutable_op(0)->add_control_input("x"); });
  expect(cannot + "the debug_info of Tanh", [](CellDef* c) { c->mutable_op(0)->set_debug_info("X"); });
  expect(cannot + "the is_gradient_op of Tanh", [](CellDef* c) { c->mutable_op(0)->set_is_gradient_op(true); });
  expect(cannot + "the domain of Tanh", [](CellDef* c) { c->mutable_op(0)->set_domain("X"); });
  expect(cannot + "the op_version of Tanh", [](CellDef* c) { c->mutable_op(0)->set_op_version(1); });
  expect(cannot + "Tanh without outputs", [](CellDef* c) { c->mutable_op(0)->clear_output(); });
  expect(cannot + "the argument a, which has values of several types", [](CellDef* c) {
    Argument& argument = *c->mutable_op(0)->add_arg();
    argument.set_name("a");
    argument.set_i(-1);
    argument.set_f(1);
  });
  const auto expect_of_initializer = [&](const std::string& what, const std::function<void(OperatorDef*)>& change) {
    expect(cannot + what, [&](CellDef* c) {
      CellParameter& parameter = *c->add_parameter();
      parameter.set_name("p");
      parameter.mutable_initializer()->set_type("ConstantFill");
      change(parameter.mutable_initializer());
    });
  };
  expect_of_initializer("the domain of ConstantFill", [](OperatorDef* fill) { fill->set_domain("X"); });
  expect_of_initializer("the output of the initializer of p", [](OperatorDef* fill) { fill->add_output("p"); });
  expect(cannot + "the argument n, a net", [](CellDef* c) {
    Argument& argument = *c->mutable_op(0)->add_arg();
    argument.set_name("n");
    argument.mutable_n();
  });
  expect(cannot + "a string of several lines", [](CellDef* c) {
    Argument& argument = *c->mutable_op(0)->add_arg();
    argument.set_name("s");
    argument.set_s("a\nb");
  });
  expect(cannot + "the number nan", [](CellDef* c) { c->mutable_options()->set_dropout(NAN); });
  expect("\"2]\" is no size: ']' is not expected", [](CellDef* c) { c->mutable_input(0)->set_shape(0, "2]"); });
}

}  // namespace
}  // namespace stepnet
