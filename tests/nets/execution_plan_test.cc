#include "stepnet/nets/execution_plan.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "stepnet/io/proto_io.h"
#include "stepnet/nets/turns.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

// test.Count: count = count + 1 in place, made when there is none; stop = count >= limit. Fails at fail_at.
const Registration count = Operator("test.Count")
                               .Output("count", "int64 []")
                               .OptionalOutput("stop", "bool []")
                               .Arg("limit", 1000000, "")
                               .Arg("fail_at", -1, "")
                               .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                                       return [limit = op.Int("limit"), fail_at = op.Int("fail_at"),
                                               stops = op.num_outputs() > 1](const OpRun& run) {
                                         Blob& blob = run.host().Output(0);
                                         const std::int64_t before =
                                             blob.HasTensor() ? *blob.GetTensor().data<std::int64_t>() : 0;
                                         if (before == fail_at) throw std::runtime_error("made to fail");
                                         std::this_thread::yield();  // a chance for others to come between
                                         blob.SetTensor(Tensor::Of<std::int64_t>({}, {before + 1}));
                                         if (stops)
                                           run.host().Output(1).SetTensor(Tensor::Of<bool>({}, {before + 1 >= limit}));
                                       };
                                     },
                                     .takes_blobs = true});

// Waits until another operator of the same kind runs as well.
std::atomic<int> meeting{0};
const Registration meet = Operator("test.Meet")
                              .Output("y", "nothing")
                              .Cpu({.make = [](const OperatorCall&) -> RunFn {
                                      return [](const OpRun& run) {
                                        ++meeting;
                                        while (meeting < 2) std::this_thread::yield();
                                        run.host().Output(0).SetTensor(Tensor::Of<bool>({}, {true}));
                                      };
                                    },
                                    .takes_blobs = true});

std::atomic<int> reports{0};
const Registration report = Operator("test.Report")
                                .Input("count", "int64 []")
                                .Output("seen", "int64 []")
                                .Cpu({.make = [](const OperatorCall&) -> RunFn {
                                        return [](const OpRun& run) {
                                          ++reports;
                                          if (!run.host().Input(0).HasTensor()) return;
                                          run.host().Output(0).SetTensor(run.host().Input(0).GetTensor().Clone());
                                        };
                                      },
                                      .takes_blobs = true});

const Registration draw =
    Operator("test.Draw")
        .Output("y", "int64 []")
        .Shapes([](const ShapeQuery&) { return std::vector<TensorInfo>{{.dtype = DType::kInt64, .shape = Shape()}}; })
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [op](const OpRun& run) { *run.Out(0).As<std::int64_t>() = run.Random(op).Word(0); };
        });
// Appends a number to a list that outlives the workspace.
std::vector<std::int64_t> noted;
const Registration note = Operator("test.Note")
                              .Input("x", "int64 []")
                              .OptionalOutputs("none", "")
                              .HasSideEffects()
                              .Cpu({.make = [](const OperatorCall&) -> RunFn {
                                      return [](const OpRun& run) { noted.push_back(*run.In(0).As<std::int64_t>()); };
                                    },
                                    .takes_blobs = true});

constexpr const char* kNets =
    "name: 'plan' "
    "network { name: 'a' op { type: 'test.Count' output: 'a' } } "
    "network { name: 'b' op { type: 'test.Count' output: 'b' } } "
    "network { name: 'until' op { type: 'test.Count' output: ['n', 'stop'] arg { name: 'limit' i: 4 } } } "
    "network { name: 'fails' op { type: 'test.Count' output: 'f' arg { name: 'fail_at' i: 2 } } } "
    "network { name: 'meet1' op { type: 'test.Meet' output: 'm1' } } "
    "network { name: 'meet2' op { type: 'test.Meet' output: 'm2' } } "
    "network { name: 'report' op { type: 'test.Report' input: 'a' output: 'seen' } } "
    "network { name: 'draw' op { type: 'test.Draw' output: 'r' } op { type: 'test.Note' input: 'r' } } ";

PlanDef PlanOf(const std::string& steps) {
  PlanDef plan;
  ParseMessageText(kNets + steps, "test", &plan);
  return plan;
}

std::int64_t Count(const Workspace& workspace, const std::string& blob) {
  const Blob* found = workspace.FindBlob(blob);
  return found != nullptr && found->HasTensor() ? *found->GetTensor().data<std::int64_t>() : 0;
}

TEST(Plan, RunsNetsInOrderSoManyTimes) {
  Workspace workspace;
  EXPECT_TRUE(RunExecutionPlan(
      PlanOf("execution_step { network: ['a', 'b'] num_iter: 3 } execution_step { network: 'a' }"), workspace));
  EXPECT_EQ(Count(workspace, "a"), 4);
  EXPECT_EQ(Count(workspace, "b"), 3);
}

TEST(Plan, NestsSteps) {
  Workspace workspace;
  RunExecutionPlan(
      PlanOf("execution_step { num_iter: 3 substep { network: 'a' num_iter: 2 } substep { num_iter: 2 substep { "
             "network: 'b' num_iter: 2 } } } execution_step { num_iter: 0 network: 'until' }"),
      workspace);
  EXPECT_EQ(Count(workspace, "a"), 6);
  EXPECT_EQ(Count(workspace, "b"), 12);
  EXPECT_EQ(Count(workspace, "n"), 0);
}

TEST(Plan, StopsWhenTheBlobSaysSo) {
  Workspace workspace;
  // After the net that sets it, nothing else of the step runs.
  RunExecutionPlan(PlanOf("execution_step { network: ['until', 'a'] should_stop_blob: 'stop' }"), workspace);
  EXPECT_EQ(Count(workspace, "n"), 4);
  EXPECT_EQ(Count(workspace, "a"), 3);
  Workspace nested;
  RunExecutionPlan(
      PlanOf("execution_step { should_stop_blob: 'stop' substep { network: 'until' } substep { network: 'a' } }"),
      nested);
  EXPECT_EQ(Count(nested, "n"), 4);
  EXPECT_EQ(Count(nested, "a"), 3);
  Workspace once;
  RunExecutionPlan(PlanOf("execution_step { network: ['until', 'a'] should_stop_blob: 'stop' only_once: true }"), once);
  EXPECT_EQ(Count(once, "n"), 1);
}

TEST(Plan, RefusesAStopBlobThatIsNone) {
  Workspace workspace;
  ExpectError(
      [&] { RunExecutionPlan(PlanOf("execution_step { name: 's' network: 'a' should_stop_blob: 'a' }"), workspace); },
      "type mismatch: should_stop_blob \"a\" of step \"s\" is int64 [], must be bool with one element");
  ExpectError(
      [&] { RunExecutionPlan(PlanOf("execution_step { network: 'until' should_stop_blob: 'stpo' }"), workspace); },
      "invalid argument: no blob \"stpo\"; did you mean \"stop\"?");
}

TEST(Plan, OwnWorkspacesAreMadeAnew) {
  Workspace workspace;
  RunExecutionPlan(PlanOf("execution_step { num_iter: 3 substep { network: ['a', 'a'] create_workspace: true } }"),
                   workspace);
  EXPECT_FALSE(workspace.HasBlob("a"));
  // Blobs of the workspace around it are seen, and written.
  RunExecutionPlan(PlanOf("execution_step { network: 'a' } execution_step { num_iter: 3 substep { network: ['a', 'b'] "
                          "create_workspace: true } }"),
                   workspace);
  EXPECT_EQ(Count(workspace, "a"), 4);
  EXPECT_FALSE(workspace.HasBlob("b"));
}

TEST(Plan, RandomNumbersDifferFromTimeToTime) {
  for (const char* workspace_field : {"", "create_workspace: true"}) {
    noted.clear();
    Workspace workspace;
    RunExecutionPlan(PlanOf(std::string("execution_step { num_iter: 2 substep { num_iter: 2 network: 'draw' ") +
                            workspace_field + " } }"),
                     workspace);
    ASSERT_EQ(noted.size(), 4u);
    for (int i = 0; i < 4; ++i) {
      for (int k = 0; k < i; ++k) EXPECT_NE(noted[i], noted[k]) << i << " and " << k;
    }
  }
}

TEST(Plan, RunsSubstepsAtTheSameTime) {
  meeting = 0;
  Workspace workspace;
  EXPECT_TRUE(
      RunExecutionPlan(PlanOf("execution_step { concurrent_substeps: true substep { network: 'meet1' } substep { "
                              "network: 'meet2' } }"),
                       workspace));
  EXPECT_EQ(meeting, 2);
}

TEST(Plan, NetsThatTouchTheSameBlobTakeTurns) {
  Workspace workspace;
  RunExecutionPlan(
      PlanOf("network { name: 'a2' op { type: 'test.Count' output: 'a' } } "
             "execution_step { num_iter: 5 concurrent_substeps: true num_concurrent_instances: 3 "
             "substep { network: ['a', 'b'] num_iter: 20 } substep { network: ['b', 'a2'] num_iter: 20 } }"),
      workspace);
  EXPECT_EQ(Count(workspace, "a"), 600);
  EXPECT_EQ(Count(workspace, "b"), 600);
}

TEST(Plan, InstancesHaveWorkspacesOfTheirOwn) {
  Workspace workspace;
  noted.clear();
  RunExecutionPlan(
      PlanOf("execution_step { num_concurrent_instances: 4 substep { network: ['b', 'draw'] create_workspace: true "
             "} }"),
      workspace);
  EXPECT_FALSE(workspace.HasBlob("b"));
  EXPECT_EQ(noted.size(), 4u);
}

TEST(Plan, F7TheFirstFailureFailsThePlan) {
  Workspace workspace;
  const std::string error = "operator failed: made to fail\n  at op 0 `f = test.Count()`\n  in net \"fails\"";
  ExpectError([&] { RunExecutionPlan(PlanOf("execution_step { network: ['fails', 'a'] num_iter: 10 }"), workspace); },
              error);
  EXPECT_EQ(Count(workspace, "f"), 2);
  EXPECT_EQ(Count(workspace, "a"), 2);
  Workspace concurrent;
  const PlanDef plan = PlanOf(
      "execution_step { concurrent_substeps: true substep { network: 'a' num_iter: "
      "4000000000000000000 } substep { network: 'fails' num_iter: 10 } }");
  ExpectError([&] { RunExecutionPlan(plan, concurrent); }, error);
  EXPECT_EQ(Count(concurrent, "f"), 2);
  // And the next run works.
  concurrent.GetBlob("f").Reset();
  EXPECT_TRUE(RunExecutionPlan(PlanOf("execution_step { network: 'fails' }"), concurrent));
}

TEST(Plan, EndsWhenAskedTo) {
  Workspace workspace;
  std::atomic<int> left{5};
  const ExecutionPlanOptions options{.should_continue = [&] { return --left > 0; }};
  EXPECT_FALSE(RunExecutionPlan(
      PlanOf("execution_step { network: 'a' num_iter: 1000 } execution_step { network: 'b' }"), workspace, options));
  EXPECT_LT(Count(workspace, "a"), 5);
  EXPECT_EQ(Count(workspace, "b"), 0);
  left = 50;
  EXPECT_FALSE(
      RunExecutionPlan(PlanOf("execution_step { concurrent_substeps: true substep { network: 'a' num_iter: "
                              "4000000000000000000 } substep { network: 'b' num_iter: 4000000000000000000 } }"),
                       workspace, options));
}

TEST(Plan, ReportsFromTimeToTimeAndAtTheEnd) {
  reports = 0;
  Workspace workspace;
  RunExecutionPlan(PlanOf("execution_step { network: 'a' num_iter: 3 report_net: 'report' report_interval: 1000 }"),
                   workspace);
  EXPECT_EQ(reports, 1);
  EXPECT_EQ(Count(workspace, "seen"), 3);
  // While the step runs: it goes on until a report has been made.
  reports = 0;
  const ExecutionPlanOptions options{.should_continue = [&] { return reports < 3; }};
  EXPECT_FALSE(
      RunExecutionPlan(PlanOf("execution_step { num_iter: 4000000000000000000 substep { network: 'a' } substep { "
                              "run_every_ms: 1 network: 'report' } }"),
                       workspace, options));
  EXPECT_GE(reports, 3);
}

TEST(Plan, AFailingReportFailsThePlan) {
  Workspace workspace;
  ExpectError(
      [&] {
        RunExecutionPlan(
            PlanOf("execution_step { num_iter: 4000000000000000000 substep { network: 'a' } substep { run_every_ms: "
                   "1 network: 'fails' } }"),
            workspace);
      },
      "operator failed: made to fail\n  at op 0 `f = test.Count()`\n  in net \"fails\"");
}

TEST(Plan, AFailureEndsReportersThatLoop) {
  Workspace workspace;
  const ExecutionPlanOptions options{.should_continue = [] { return true; }};
  ExpectError(
      [&] {
        RunExecutionPlan(PlanOf("execution_step { network: 'a' } execution_step { substep { run_every_ms: 1 network: "
                                "'b' num_iter: 4000000000000000000 } substep { network: 'a' num_iter: 300 } "
                                "substep { network: 'fails' num_iter: 10 } }"),
                         workspace, options);
      },
      "operator failed: made to fail\n  at op 0 `f = test.Count()`\n  in net \"fails\"");
  // What stops the plan stops them as well. Their threads ask, too: no blob that a net changes will do.
  std::atomic<int> asked = 0;
  EXPECT_FALSE(RunExecutionPlan(
      PlanOf("execution_step { substep { run_every_ms: 1 network: 'b' num_iter: 4000000000000000000 } substep { "
             "network: 'a' num_iter: 4000000000000000000 } }"),
      workspace, {.should_continue = [&] { return ++asked < 1000; }}));
}

TEST(Plan, AnIntervalLongerThanAnyRunEndsWithTheStep) {
  for (const char* interval : {"9223372036855", "9223372036854775807"}) {
    reports = 0;
    Workspace workspace;
    RunExecutionPlan(PlanOf(StrCat("execution_step { substep { run_every_ms: ", interval,
                                   " network: 'report' } substep { network: 'a' num_iter: 20000 } }")),
                     workspace);
    EXPECT_EQ(reports, 1) << interval;
  }
}

TEST(Plan, ALoopOverNothingEndsAtOnce) {
  Workspace workspace;
  EXPECT_TRUE(RunExecutionPlan(PlanOf("execution_step { num_iter: 4000000000000000000 substep { substep { num_iter: "
                                      "4000000000000000000 } } }"),
                               workspace));
}

TEST(Plan, ListsItsProblems) {
  const auto problems = [](const std::string& steps) { return CheckExecutionPlan(PlanOf(steps)); };
  using Messages = std::vector<std::string>;
  EXPECT_EQ(problems("execution_step { name: 's' network: 'unti' }"),
            Messages{"step \"s\": the plan has no net \"unti\"; did you mean \"until\"?"});
  EXPECT_EQ(
      problems("execution_step { name: 's' num_iter: -1 substep { network: 'zzzzzzz' } }"),
      (Messages{"step \"s\": num_iter is -1, must be at least 0", "step \"s/#0\": the plan has no net \"zzzzzzz\""}));
  EXPECT_EQ(problems("network { name: 'a' }"), Messages{"two nets are named \"a\""});
  EXPECT_EQ(problems("execution_step { network: 'a' substep { } }"),
            Messages{"step \"#0\": has networks and substeps, can have only one of the two"});
  EXPECT_EQ(problems("execution_step { num_iter: 1 should_stop_blob: 'x' criteria_network: 'a' }"),
            (Messages{"step \"#0\": has num_iter and should_stop_blob, can have only one of the two",
                      "step \"#0\": has criteria_network, which is not supported; use should_stop_blob"}));
  EXPECT_EQ(problems("execution_step { only_once: true }"),
            Messages{"step \"#0\": has only_once without should_stop_blob"});
  EXPECT_EQ(problems("execution_step { report_net: 'nets' }"),
            (Messages{"step \"#0\": the plan has no net \"nets\"",
                      "step \"#0\": report_interval is 0 seconds, must be at least 1"}));
  EXPECT_EQ(problems("execution_step { substep { run_every_ms: 0 } }"),
            Messages{"step \"#0/#0\": run_every_ms is 0, must be at least 1"});
  EXPECT_EQ(problems("execution_step { num_concurrent_instances: 0 }"),
            Messages{"step \"#0\": num_concurrent_instances is 0, must be at least 1"});
  EXPECT_EQ(problems("execution_step { num_concurrent_instances: 2000000000 substep { } substep { } }"),
            Messages{"step \"#0\": runs on 4000000000 threads at the same time; 1024 are supported"});
  // With those that its substeps start, and with reporters.
  EXPECT_EQ(problems("execution_step { num_concurrent_instances: 40 substep { num_concurrent_instances: 40 substep { "
                     "network: 'a' } } }"),
            Messages{"step \"#0\": runs on 1640 threads at the same time; 1024 are supported"});
  EXPECT_EQ(problems("execution_step { num_concurrent_instances: 600 substep { substep { network: 'a' } substep { "
                     "run_every_ms: 1 network: 'a' } } }"),
            Messages{"step \"#0\": runs on 1200 threads at the same time; 1024 are supported"});
  EXPECT_EQ(problems("execution_step { num_concurrent_instances: 600 substep { network: 'a' report_net: 'a' "
                     "report_interval: 1 } }"),
            Messages{"step \"#0\": runs on 1200 threads at the same time; 1024 are supported"});
  EXPECT_TRUE(problems("execution_step { num_concurrent_instances: 1000 substep { network: 'a' } } execution_step { "
                       "substep { num_concurrent_instances: 1000 substep { network: 'a' } } substep { "
                       "num_concurrent_instances: 1000 substep { network: 'a' } } }")
                  .empty());
  std::string reporters;
  for (int i = 0; i < 1025; ++i) reporters += "substep { run_every_ms: 1 network: 'a' } ";
  EXPECT_EQ(problems(StrCat("execution_step { ", reporters, "}")),
            Messages{"step \"#0\": runs on 1025 threads at the same time; 1024 are supported"});
  PlanDef deep;
  ExecutionStep* step = deep.add_execution_step();
  for (int i = 0; i < 100; ++i) {
    step->set_name("s");
    step = step->add_substep();
  }
  EXPECT_EQ(CheckExecutionPlan(deep).size(), 1u);
  EXPECT_TRUE(CheckExecutionPlan(deep)[0].ends_with("s/#0\": steps nest deeper than 100"))
      << CheckExecutionPlan(deep)[0];
}

TEST(Plan, SaysAllThatIsWrongWhenRun) {
  Workspace workspace;
  ExpectError([&] { RunExecutionPlan(PlanOf("execution_step { network: 'c' num_iter: -2 }"), workspace); },
              "invalid net: 2 problems\n  step \"#0\": the plan has no net \"c\"\n  step \"#0\": "
              "num_iter is -2, must be at least 0");
  ExpectError([&] { RunExecutionPlan(PlanOf("execution_step { only_once: true }"), workspace); },
              "invalid net: step \"#0\": has only_once without should_stop_blob");
  std::string many;
  for (int i = 0; i < 25; ++i) many += "execution_step { only_once: true } ";
  ExpectError([&] { RunExecutionPlan(PlanOf(many), workspace); }, "…\n  … and 5 more");
}

TEST(Turns, FindsConflicts) {
  const Blob x("x"), y("y");
  const auto touches = [](std::vector<std::pair<const Blob*, bool>> blobs) {
    std::sort(blobs.begin(), blobs.end());
    return Touches{.blobs = blobs, .everything = false};
  };
  EXPECT_FALSE(touches({{&x, false}}).ConflictsWith(touches({{&x, false}, {&y, true}})));
  EXPECT_TRUE(touches({{&x, true}}).ConflictsWith(touches({{&x, false}, {&y, true}})));
  EXPECT_TRUE(touches({{&x, false}, {&y, false}}).ConflictsWith(touches({{&y, true}})));
  EXPECT_FALSE(touches({{&x, true}}).ConflictsWith(touches({{&y, true}})));
  EXPECT_FALSE(touches({}).ConflictsWith(touches({{&y, true}})));
  EXPECT_TRUE((Touches{.blobs = {}, .everything = true}).ConflictsWith(touches({})));
}

}  // namespace
}  // namespace stepnet
