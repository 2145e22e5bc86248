#include <utility>

#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/regions/region_code.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

using Kind = RegionInstruction::Kind;

const char* StepText(ChainStep step) {
  constexpr const char* kSigns[] = {"", "+", "-", "from -", "*", "/", "mul_add"};
  return kSigns[static_cast<int>(step)];
}

// "+ tanh *" for tanh(a + b) * c.
std::string ChainText(const RegionChain& chain) {
  std::vector<std::string> names;
  if (chain.before != ChainStep::kNone) names.emplace_back(StepText(chain.before));
  if (chain.f != ExprOp::kConstant) names.emplace_back(ExprOpName(chain.f));
  if (chain.after != ChainStep::kNone) names.emplace_back(StepText(chain.after));
  if (chain.last != ChainStep::kNone) names.emplace_back(StepText(chain.last));
  return Join(names, " ");
}

// "slope (-) own +" for MulAdd(a * (b - x), c - c * c, d).
std::string SlopeText(const RegionSlope& slope) {
  constexpr const char* kLeft[] = {"", " (-)", " (1 -)"};
  constexpr const char* kTop[] = {"", " 1", " own"};
  return StrCat("slope", kLeft[static_cast<int>(slope.left)], kTop[static_cast<int>(slope.top)],
                slope.adds ? " +" : "");
}

const char* BlendText(RegionBlend blend) {
  constexpr const char* kTexts[] = {"blend", "blend tanh", "blend sigmoid tanh"};
  return kTexts[static_cast<int>(blend)];
}

// "gradient of gate +".
std::string GradientText(const RegionGradient& gradient) {
  constexpr const char* kTexts[] = {"gate", "scale", "blend"};
  return StrCat("gradient of ", kTexts[static_cast<int>(gradient.kind)], gradient.adds ? " +" : "");
}

std::string OpText(const RegionInstruction& instruction) {
  const RegionPattern& pattern = instruction.pattern;
  switch (pattern.kind) {
    case RegionPattern::Kind::kNone: return ExprOpName(instruction.op);
    case RegionPattern::Kind::kChain: return ChainText(pattern.chain);
    case RegionPattern::Kind::kPair:
      return StrCat("(", StepText(pattern.pair.left), ") ", StepText(pattern.pair.op), " (",
                    StepText(pattern.pair.right), ")");
    case RegionPattern::Kind::kNegMulAdd: return "neg_mul_add";
    case RegionPattern::Kind::kSlope: return SlopeText(pattern.slope);
    case RegionPattern::Kind::kBlend: return BlendText(pattern.blend);
    case RegionPattern::Kind::kGate: return "(sigmoid) * (tanh)";
    case RegionPattern::Kind::kGradient: return GradientText(pattern.gradient);
    case RegionPattern::Kind::kScaledRest: return "- mul_add *";
    case RegionPattern::Kind::kCopy: return "copy";
    case RegionPattern::Kind::kFill: return "fill";
    case RegionPattern::Kind::kRowSum: return StrCat("row_sum", pattern.casts ? " double" : "", pattern.term);
    case RegionPattern::Kind::kSelect: return StrCat("where ", ExprOpName(pattern.op));
  }
  return "";
}

// "s4, input 3", where a move of instructions has that.
std::string MoveText(const RegionCode& code, const RegionMove& move) {
  const bool is_input = move.operand < code.num_inputs;
  return StrCat("s", move.slot, is_input ? ", input " : ", output ",
                is_input ? move.operand : move.operand - code.num_inputs);
}

std::string InstructionText(const RegionCode& code, const RegionInstruction& instruction) {
  const auto slot = [](int number) { return StrCat("s", number); };
  std::vector<std::string> operands;
  for (int k = 0; k < instruction.num_operands; ++k) operands.push_back(slot(instruction.operands[k]));
  const std::string all = Join(operands, ", ");
  switch (instruction.kind) {
    case Kind::kCompute:
    case Kind::kOfRows:
    case Kind::kUniform: return StrCat(slot(instruction.out), " = ", OpText(instruction), " ", all);
    case Kind::kSeveral: {
      std::vector<std::string> outs;
      for (int k = 0; k < instruction.num_results; ++k) outs.push_back(slot(instruction.several[k]));
      return StrCat(Join(outs, ", "), " = ", OpText(instruction), " ", all);
    }
    case Kind::kIndex: return StrCat(slot(instruction.out), " = index ", instruction.number);
    case Kind::kColumns: return StrCat(slot(instruction.out), " = columns");
    case Kind::kSplat: return StrCat("splat ", slot(instruction.out));
    case Kind::kSpread: return StrCat(slot(instruction.out), " = spread ", all);
    case Kind::kReduceRows: {
      const std::string sum = instruction.sum >= 0 ? StrCat(slot(instruction.sum), " = row_sum, ") : "";
      return StrCat(sum, slot(instruction.out), " = ", OpText(instruction), " ", all);
    }
    case Kind::kCheck: return StrCat("check ", instruction.number, " ", all);
    case Kind::kStartRow: return StrCat("start ", ExprOpName(instruction.op), " ", slot(instruction.out));
    case Kind::kReduce: return StrCat(ExprOpName(instruction.op), " ", slot(instruction.out), " ", all);
    case Kind::kFinishRow: return StrCat(slot(instruction.out), " = finish ", ExprOpName(instruction.op), " ", all);
    case Kind::kLoad:
    case Kind::kLoadRow:
      return StrCat("load ", MoveText(code, {.operand = instruction.number, .slot = instruction.out}));
    case Kind::kStore:
    case Kind::kStoreRow:
      return StrCat("store ", MoveText(code, {.operand = instruction.number, .slot = instruction.operands[0]}));
    case Kind::kAdd:
    case Kind::kAddRow:
      return StrCat("add ", MoveText(code, {.operand = instruction.number, .slot = instruction.operands[0]}));
  }
  return "";
}

}  // namespace

std::string RegionCodeText(const RegionCode& code) {
  TextStream out;
  const auto print = [&](const char* when, const std::vector<RegionInstruction>& instructions) {
    for (const RegionInstruction& instruction : instructions) {
      out << when << InstructionText(code, instruction) << "\n";
    }
  };
  const auto moves = [&](const char* what, const std::vector<RegionMove>& list) {
    for (const RegionMove& move : list) out << what << " " << MoveText(code, move) << "\n";
  };
  out << "sizes [" << Join(code.sizes, ", ") << "], blocks of " << code.width << (code.joins_rows ? " in rows" : "")
      << ", " << code.run_bytes << " bytes\n";
  for (size_t i = 0; i < code.memory_operands.size(); ++i) {
    moves("memory", {{.operand = code.memory_operands[i], .slot = static_cast<int>(i)}});
  }
  for (size_t i = 0; i < code.constants.size(); ++i) {
    out << "constant s" << code.memory_operands.size() + i << "\n";
  }
  for (const RegionCode::KeptElements& kept : code.kept) out << "kept s" << kept.slot << "\n";
  moves("run: load", code.run_loads);
  print("run: ", code.setup);
  moves("run: load rows", code.tile_loads);
  for (const RegionCode::Phase& phase : code.phases) {
    print("row: ", phase.row);
    print("block: ", phase.block);
    for (const RegionInstruction& instruction : phase.end) {
      out << (instruction.kind == Kind::kReduceRows ? "rows: " : "row: ") << InstructionText(code, instruction) << "\n";
    }
  }
  return std::move(out).str();
}

}  // namespace stepnet
