// Graphs of step nets as they are before the first pass: values, homes, moves that links ask for, and what is refused.
#include "stepnet/compiler/import_step.h"

#include <gtest/gtest.h>

#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/recurrent_plan.h"
#include "stepnet/compiler/verify_graph.h"
#include "stepnet/tests/compiler/passes/pass_case.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

const Shape kRow = {2, 4};

NetDef StepNet(const std::vector<std::string>& ops) {
  NetDef net;
  net.set_name("step");
  for (const std::string& op : ops) *net.add_op() = ParseOp(op);
  return net;
}

// Rows of base `base`, float [2, 4]: row t + offset in step t.
BoundBlob Rows(const std::string& blob, int base, std::int64_t offset = 0) {
  return BindLink({.internal = blob, .external = blob + " outside", .offset = offset}, base, DType::kFloat, kRow);
}

BoundMove Move(BoundMove::Kind kind, const std::string& blob, int base) {
  BoundBlob bound = Rows(blob, base);
  bound.home.slot.blob = blob + " outside";
  return {.kind = kind, .blob = blob, .outside = bound.home, .info = bound.info};
}

StepGraph Imported(const std::vector<std::string>& ops, const StepBindings& bindings) {
  StepGraph graph;
  graph.num_bases = 8;
  graph.num_lists = 1;
  ImportStep(std::make_shared<const NetDef>(StepNet(ops)), {}, bindings, &graph);
  VerifyGraph(graph, "import");
  return graph;
}
std::string TextOf(const std::vector<std::string>& ops, const StepBindings& bindings) {
  StepGraph graph = Imported(ops, bindings);
  graph.num_bases = graph.num_lists = 0;  // nothing beside what lines mention
  return GraphText(graph);
}

TEST(ImportStep, EveryWriteIsAValueOfItsBlob) {
  const StepGraph graph = ImportStep(StepNet({"a = Tanh(x)", "b = Relu(a)", "a = Add(a, b)"}),
                                     {{"x", {.dtype = DType::kFloat, .shape = kRow}}});
  EXPECT_EQ(GraphText(graph), Step("  x: float [2, 4]\n"
                                   "  a.1: float [2, 4] = Tanh(x) @0 {}\n"
                                   "  b.1: float [2, 4] = Relu(a.1) @1 {}\n"
                                   "  a.2: float [2, 4] in a.1 = Add(a.1, b.1) @2 {}\n"));
}

TEST(ImportStep, LinkedBlobsLiveOutside) {
  const StepBindings bindings = {.blobs = {Rows("x", 0), Rows("h_prev", 1), Rows("h", 1, 1)}};
  EXPECT_EQ(TextOf({"s = Add(x, h_prev)", "h = Tanh(s)"}, bindings),
            Step("  x: float [1, 2, 4] at 0[32 * t]\n"
                 "  h_prev: float [1, 2, 4] at 1[32 * t]\n"
                 "  h: float [1, 2, 4] at 1[32 * (t + 1)]\n"
                 "  s.1: float [1, 2, 4] = Add(x, h_prev) @0 {}\n"
                 "  h.1: float [1, 2, 4] at 1[32 * (t + 1)] = Tanh(s.1) @1 {}\n"));
}

TEST(ImportStep, WhatIsOnlyWrittenIsNotThereBefore) {
  StepBindings bindings = {.blobs = {Rows("x", 0), Rows("y", 1)}};
  bindings.blobs[1].readable = false;
  EXPECT_EQ(TextOf({"y = Tanh(x)"}, bindings),
            Step("  x: float [1, 2, 4] at 0[32 * t]\n  y.1: float [1, 2, 4] at 1[32 * t] = Tanh(x) @0 {}\n"));
}

TEST(ImportStep, MovesStandBesideTheOperatorsThatNeedThem) {
  StepBindings bindings = {.blobs = {Rows("x", 0)}};
  bindings.moves = {Move(BoundMove::Kind::kCopyIn, "m", 1), Move(BoundMove::Kind::kAddIn, "m", 2),
                    Move(BoundMove::Kind::kCopyOut, "a", 3), Move(BoundMove::Kind::kAddOut, "a", 4)};
  EXPECT_EQ(TextOf({"b = Tanh(x)", "a = Add(b, m)", "c = Relu(b)"}, bindings),
            Step("  x: float [1, 2, 4] at 0[32 * t]\n"
                 "  ^\"m outside\": float [1, 2, 4] at 1[32 * t]\n"
                 "  ^\"m outside\".1: float [1, 2, 4] at 2[32 * t]\n"
                 "  b.1: float [1, 2, 4] = Tanh(x) @0 {}\n"
                 "  m.1: float [1, 2, 4] = ^\"m outside\"\n"
                 "  m.2: float [1, 2, 4] added in m.1 = ^\"m outside\".1\n"
                 "  a.1: float [1, 2, 4] = Add(b.1, m.2) @1 {}\n"
                 "  ^\"a outside\": float [1, 2, 4] at 3[32 * t] = a.1\n"
                 "  ^\"a outside\".1: float [1, 2, 4] added at 4[32 * t] = a.1\n"
                 "  c.1: float [1, 2, 4] = Relu(b.1) @2 {}\n"));
}

TEST(ImportStep, WhatHasNoKnownShapeLivesInBlobs) {
  StepBindings bindings = {.blobs = {Rows("y", 1)}};
  bindings.blobs[0].readable = false;
  bindings.blobs.push_back({.home = {.kind = Home::Kind::kDynamic, .slot = {.blob = "n"}, .list = 0}});
  EXPECT_EQ(TextOf({"d = Copy(n)", "y = Tanh(d)"}, bindings), Step("  n: unknown blob of list 0\n"
                                                                   "  d.1: unknown blob = Copy(n) by blobs @0 {}\n"
                                                                   "  y.1: unknown blob = Tanh(d.1) by blobs @1 {}\n"
                                                                   "  y.2: float [1, 2, 4] at 1[32 * t] = y.1\n"));
}

TEST(ImportStep, OutputsAreCopiedBehindWhatGivesThem) {
  StepBindings bindings = {
      .blobs = {Rows("x", 0), Rows("h", 1, 1)},
      .outputs = {{.blob = "a", .name = "all a", .base = 2}, {.blob = "h", .name = "all h", .base = 3}}};
  EXPECT_EQ(TextOf({"a = Tanh(x)", "h = Tanh(a)", "b = Relu(h)"}, bindings),
            Step("  x: float [1, 2, 4] at 0[32 * t]\n"
                 "  h: float [1, 2, 4] at 1[32 * (t + 1)]\n"
                 "  a.1: float [1, 2, 4] = Tanh(x) @0 {}\n"
                 "  ^\"all a\": float [1, 2, 4] at 2[32 * t] = a.1\n"
                 "  h.1: float [1, 2, 4] at 1[32 * (t + 1)] = Tanh(a.1) @1 {}\n"
                 "  b.1: float [1, 2, 4] = Relu(h.1) @2 {}\n"
                 "  ^\"all h\": float [1, 2, 4] at 3[32 * t] = h.1\n"));
  bindings = {.blobs = {{.home = {.kind = Home::Kind::kDynamic, .slot = {.blob = "n"}, .list = 0}}},
              .outputs = {{.blob = "d", .name = "all d", .base = 2}}};
  ExpectError([&] { Imported({"d = Copy(n)"}, bindings); },
              "…step_output_src names \"d\", whose shape is known only when a step has run");
}

TEST(ImportStep, WhatIsReadLaterIsKept) {
  StepBindings bindings = {
      .blobs = {Rows("x", 0), {.home = {.kind = Home::Kind::kDynamic, .slot = {.blob = "n"}, .list = 0}}},
      .kept = {{"a", KeptPart::kValue}, {"b", KeptPart::kShape}, {"d", KeptPart::kShape}}};
  const std::vector<std::string> ops = {"a = Tanh(x)", "b = Relu(a)", "c = Relu(b)", "d = Copy(n)"};
  EXPECT_EQ(TextOf(ops, bindings), Step("  x: float [1, 2, 4] at 0[32 * t]\n"
                                        "  n: unknown blob of list 0\n"
                                        "  a.1: float [1, 2, 4] kept = Tanh(x) @0 {}\n"
                                        "  b.1: float [1, 2, 4] = Relu(a.1) @1 {}\n"
                                        "  c.1: float [1, 2, 4] = Relu(b.1) @2 {}\n"
                                        "  d.1: unknown kept blob = Copy(n) by blobs @3 {}\n"));
  bindings.keeps_all = true;
  EXPECT_EQ(TextOf(ops, bindings), Step("  x: float [1, 2, 4] at 0[32 * t]\n"
                                        "  n: unknown kept blob of list 0\n"
                                        "  a.1: float [1, 2, 4] kept = Tanh(x) @0 {}\n"
                                        "  b.1: float [1, 2, 4] kept = Relu(a.1) @1 {}\n"
                                        "  c.1: float [1, 2, 4] kept = Relu(b.1) @2 {}\n"
                                        "  d.1: unknown kept blob = Copy(n) by blobs @3 {}\n"));
}

TEST(ImportStep, RefusesWhatNobodyWrites) {
  ExpectError([] { Imported({"a = Tanh(x)"}, {}); }, "…\"x\" is read before anything writes it");
  StepBindings bindings = {.blobs = {Rows("x", 0)}, .moves = {Move(BoundMove::Kind::kAddOut, "dw", 1)}};
  EXPECT_EQ(TextOf({"a = Tanh(x)"}, bindings),
            Step("  x: float [1, 2, 4] at 0[32 * t]\n  a.1: float [1, 2, 4] = Tanh(x) @0 {}\n"));
  bindings.moves[0].required = true;
  ExpectError([&] { Imported({"dv = Tanh(x)"}, bindings); }, "…nothing in the step net writes \"dw\"");
}

TEST(ImportStep, RefusesOtherSizesThanLinksHave) {
  StepBindings bindings = {.blobs = {BindWhole("x", 0, {.dtype = DType::kFloat, .shape = {3}}), Rows("h", 1)}};
  ExpectError([&] { Imported({"h = Tanh(x)"}, bindings); },
              "…\"h\" is linked to memory for float [1, 2, 4] a step, and Tanh gives float [3]");
  bindings = {.blobs = {BindWhole("x", 0, {.dtype = DType::kFloat, .shape = {3}})},
              .moves = {Move(BoundMove::Kind::kCopyOut, "a", 1)}};
  ExpectError(
      [&] { Imported({"a = Tanh(x)"}, bindings); },
      "…\"a\" is float [3] in the step net; it belongs to \"a outside\", where a step has room for float [1, 2, 4]");
  bindings = {.blobs = {BindWhole("i", 0, {.dtype = DType::kInt64, .shape = {4}})},
              .moves = {Move(BoundMove::Kind::kAddOut, "i", 1)}};
  bindings.moves[0].info = {.dtype = DType::kInt64, .shape = {4}};
  ExpectError([&] { Imported({}, bindings); }, "…gradients are summed in float and double; \"i\" is int64 [4]");
}

}  // namespace
}  // namespace stepnet
