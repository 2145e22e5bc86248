// Sums over the steps that are seen before they are whole, and what cannot run behind all steps, are found.
#include "stepnet/compiler/verify_sums.h"

#include "stepnet/tests/compiler/refused_graph.h"

namespace stepnet {
namespace {

const std::string kClear = "  before the first step:\n  s.1 = zero\n";
const std::string kX = kClear + "  x: float [4] at 1\n";
const std::string kInStep = "  in each step:\n", kBehind = "  once behind all steps:\n";
const std::string kSum = "  s.1: float [4] added summed = x\n";

TEST(VerifySums, FindsSumsThatStepsReadOrWrite) {
  ExpectProblem(kX + kSum + "  y.1: float [4] at 2 = Tanh(s.1) @0 {}\n",
                "node 1: s.1 is read before all steps have added to it");
  ExpectProblem(kX + "  s.1: float [4] summed = x\n", "node 0: s.1 is written where steps add up");
}

TEST(VerifySums, FindsWhatIsOfOneStepBehindAllOfThem) {
  const std::string step = kX + "  z: float [1, 4] at 3[16 * t]\n  v: float [4] at 4\n" + kInStep + kSum;
  ExpectProblem(step + kBehind + "  y.1: float [1, 4] = Tanh(z) @0 {}\n",
                "node 1: z is read behind all steps, and is not the same in all of them");
  // What steps write, though it is one for all.
  ExpectProblem(step + "  v.1: float [4] at 4 = x\n" + kBehind + "  y.1: float [4] = Tanh(v.1) @0 {}\n",
                "node 2: v.1 is read behind all steps, and is not the same in all of them");
  ExpectProblem(step + "  k.1: float [4] kept = x\n" + kBehind + "  y.1: float [4] = Tanh(k.1) @0 {}\n",
                "node 2: k.1 is read behind all steps, and is not the same in all of them");
  ExpectProblem(step + kBehind + "  y.1: float [4] at 5[16 * t] = Tanh(s.1) @0 {}\n",
                "node 1: y.1 is given behind all steps, where steps see it");
  ExpectProblem(
      step + "  w.1: float [4] at 6 = Tanh(v) @1 {}\n" + kBehind + "  v.1: float [4] at 4 = Tanh(s.1) @0 {}\n",
      "node 2: v.1 is given behind all steps, where steps see it");
  ExpectProblem(step + kBehind + "  s.2: float [4] added in s.1 = x\n",
                "node 1: s.2 is given behind all steps, where steps see it");
}

TEST(VerifySums, FindsStagesBehindWhatRunsBehindAllSteps) {
  ExpectProblem(kX + "  m: float [4] at 7\n" + kInStep + kSum + kBehind + "  ^y: float [4] at 2 = m\n" + kInStep +
                    "  z.1: float [4] at 3 = x\n",
                "what runs behind all steps is not the last stage");
  // Temporaries of a step are not there behind it.
  ExpectProblem(kX + kInStep + kSum + "  k.1: float [4] = x\n" + kBehind + "  y.1: float [4] at 2 = k.1\n",
                "node 2, a move to y.1: k.1 is not kept and is used by two stages");
}

}  // namespace
}  // namespace stepnet
