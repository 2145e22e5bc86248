#include "stepnet/gpu/kernel_text.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "stepnet/core/expressions/expr_scalar.h"
#include "stepnet/core/stored_float.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// The function of device_code.cuh that computes a primitive.
const char* DeviceFunction(ExprOp op) {
  switch (op) {
    case ExprOp::kAdd: return "Add";
    case ExprOp::kSubtract: return "Subtract";
    case ExprOp::kMultiply: return "Multiply";
    case ExprOp::kDivide: return "Divide";
    case ExprOp::kMod: return "Mod";
    case ExprOp::kMin: return "Min";
    case ExprOp::kMax: return "Max";
    case ExprOp::kPow: return "Pow";
    case ExprOp::kMulAdd: return "MulAdd";
    case ExprOp::kNegate: return "Negate";
    case ExprOp::kAbs: return "Abs";
    case ExprOp::kSign: return "Sign";
    case ExprOp::kSqrt: return "Sqrt";
    case ExprOp::kExp: return "Exp";
    case ExprOp::kExpm1: return "Expm1";
    case ExprOp::kLog: return "Log";
    case ExprOp::kLog1p: return "Log1p";
    case ExprOp::kTanh: return "Tanh";
    case ExprOp::kSigmoid: return "Sigmoid";
    case ExprOp::kErf: return "Erf";
    case ExprOp::kErfc: return "Erfc";
    case ExprOp::kSin: return "Sin";
    case ExprOp::kCos: return "Cos";
    case ExprOp::kFloor: return "Floor";
    case ExprOp::kCeil: return "Ceil";
    case ExprOp::kRound: return "Round";
    case ExprOp::kEqual: return "Equal";
    case ExprOp::kNotEqual: return "NotEqual";
    case ExprOp::kLess: return "Less";
    case ExprOp::kLessEqual: return "LessEqual";
    case ExprOp::kAnd: return "And";
    case ExprOp::kOr: return "Or";
    case ExprOp::kNot: return "Not";
    case ExprOp::kWhere: return "Where";
    case ExprOp::kCast: return "Cast";
    case ExprOp::kUniform: return "Uniform";
    case ExprOp::kRowSum: return "RowSum";
    case ExprOp::kRowMax: return "RowMax";
    case ExprOp::kInput:
    case ExprOp::kConstant:
    case ExprOp::kLiteral:
    case ExprOp::kIndex:
    case ExprOp::kRequire: break;
  }
  throw Error(ErrorCode::kInternal, StrCat("device_code.cuh has no function for primitive ", static_cast<int>(op)));
}

const char* MemoryTypeName(DType dtype) { return dtype == DType::kBool ? "unsigned char" : DeviceTypeName(dtype); }

// The few numbers that compilers make something of; "" for others.
std::string InlineConstant(const ExprScalar& value) {
  if (IsStoredFloat(value.dtype)) return "";
  return ForExprType(value.dtype, [&](auto zero) -> std::string {
    using T = decltype(zero);
    const T number = value.As<T>();
    if constexpr (std::is_same_v<T, bool>) {
      return number ? "true" : "false";
    } else if constexpr (std::is_floating_point_v<T>) {
      for (const auto& [usual, text] : {std::pair(0.0, "0.0"), {0.5, "0.5"}, {1.0, "1.0"}, {2.0, "2.0"}}) {
        if (std::fabs(number) != usual) continue;
        return StrCat(std::signbit(number) ? "-" : "", text, sizeof(T) == sizeof(float) ? "f" : "");
      }
      return "";
    } else {
      return number >= -2 && number <= 2 ? StrCat(number, sizeof(T) == sizeof(int) ? "" : "LL") : "";
    }
  });
}

}  // namespace

const char* DeviceTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat: return "float";
    case DType::kDouble: return "double";
    case DType::kInt32: return "int";
    case DType::kInt64: return "long long";
    case DType::kFloat16: return "Float16";
    case DType::kBFloat16: return "BFloat16";
    default: return "bool";
  }
}

std::span<const ExprNode* const> OperandsHere(const ExprNode& node) {
  if (IsRowReduction(node)) return {};
  return node.op == ExprOp::kRequire ? node.Operands().first(1) : node.Operands();
}

RegionNodes::RegionNodes(const Region& region) : all(ExprNodes(region.Roots())) {
  for (const ExprNode* node : all) {
    number.emplace(node, static_cast<int>(number.size()));
    int deepest = 0;
    bool varies = (node->op == ExprOp::kIndex && node->number == 3) ||
                  (node->op == ExprOp::kInput && region.inputs[node->number].strides[3] != 0);
    for (const ExprNode* operand : node->Operands()) {
      deepest = std::max(deepest, phase.at(operand));
      varies |= Varies(operand);
    }
    phase.emplace(node, deepest + (IsRowReduction(*node) ? 1 : 0));
    if (varies && !IsRowReduction(*node)) varying.insert(node);
    if (node->op == ExprOp::kRequire) requirements.push_back(Expr::Of(node));
  }
}

// Those of `all`, in their order, that are met from the roots on by way of `operands_of` each, and are wanted.
template <typename OperandsOf, typename IsWanted>
static std::vector<const ExprNode*> Reached(std::span<const ExprNode* const> all,
                                            std::span<const ExprNode* const> roots, const OperandsOf& operands_of,
                                            const IsWanted& is_wanted) {
  std::unordered_set<const ExprNode*> met;
  std::vector<const ExprNode*> left(roots.begin(), roots.end());
  while (!left.empty()) {
    const ExprNode* node = left.back();
    left.pop_back();
    if (!met.insert(node).second) continue;
    const auto operands = operands_of(*node);
    left.insert(left.end(), operands.begin(), operands.end());
  }
  std::vector<const ExprNode*> reached;
  std::ranges::copy_if(all, std::back_inserter(reached),
                       [&](const ExprNode* node) { return met.contains(node) && is_wanted(*node); });
  return reached;
}

std::vector<const ExprNode*> RegionNodes::Below(std::span<const ExprNode* const> roots) const {
  const auto operands = [](const ExprNode& node) {
    return IsRowReduction(node) ? node.Operands() : OperandsHere(node);
  };
  return Reached(all, roots, operands, [](const ExprNode&) { return true; });
}

std::vector<const ExprNode*> RegionNodes::ReductionsOf(std::span<const ExprNode* const> roots) const {
  return Reached(all, roots, OperandsHere, IsRowReduction);
}

std::vector<const ExprNode*> RegionNodes::SharedBy(std::span<const std::vector<const ExprNode*>> loops) const {
  std::unordered_set<const ExprNode*> computed, shared;
  for (const std::vector<const ExprNode*>& wanted : loops) {
    const auto share = [&](const ExprNode* node) {
      if (node->op == ExprOp::kInput ? Varies(node) : computed.contains(node)) shared.insert(node);
    };
    const std::vector<const ExprNode*> here =
        Reached(all, wanted, OperandsHere, [&](const ExprNode& node) { return Varies(&node); });
    std::ranges::for_each(wanted, share);
    for (const ExprNode* node : here) {
      if (!computed.contains(node)) std::ranges::for_each(OperandsHere(*node), share);
    }
    std::ranges::copy_if(here, std::inserter(computed, computed.end()),
                         [](const ExprNode* node) { return node->op != ExprOp::kIndex; });
  }
  std::vector<const ExprNode*> nodes;
  std::ranges::copy_if(all, std::back_inserter(nodes), [&](const ExprNode* node) { return shared.contains(node); });
  return nodes;
}

KernelText::KernelText(const Region& region, const RegionSourceOptions& options, const RegionNodes& nodes,
                       const std::string& kind)
    : region_(region), options_(options), nodes_(nodes), kernel_(StrCat(options.name, "_", kind)) {
  AddOperands();
  declared_.emplace_back();
}

// RegionSource::Bind fills these, in this order.
bool KernelText::IsValue(int input) const { return std::ranges::count(options_.values, input) > 0; }

void KernelText::AddOperands() {
  for (int i = 0; i < std::ssize(region_.inputs); ++i) {
    const std::string name = StrCat("in", i);
    if (IsValue(i)) {
      Parameter("long long", name, 0);
    } else {
      Parameter(StrCat("const ", MemoryTypeName(region_.inputs[i].dtype), "*"), name, 0);
    }
  }
  for (size_t o = 0; o < region_.outputs.size(); ++o) {
    Parameter(StrCat(MemoryTypeName(region_.outputs[o].memory.dtype), "*"), StrCat("out", o), 0);
  }
  Parameter("unsigned char*", "scratch", 0);
  Parameter("DeviceFault*", "fault", 0);
  members_.push_back({.type = "FaultSite", .name = "site", .words = {0, 0, 0, 0}});
  Parameter("const DeviceFault*", "stop", 0);
}

void KernelText::SetSpace(std::vector<SpaceDim> dims, bool is_narrow, const std::string& linear) {
  space_ = std::move(dims);
  is_narrow_ = is_narrow;
  linear_ = linear;
}

std::string KernelText::Parameter(const std::string& type, const std::string& name, std::uint64_t word) {
  const bool is_known = std::ranges::any_of(members_, [&](const Member& member) { return member.name == name; });
  if (!is_known) members_.push_back({.type = type, .name = name, .words = {word}});
  return StrCat("p.", name);
}

std::string KernelText::Count(const std::string& name, std::int64_t value) {
  return StrCat("Index(", Parameter("long long", name, static_cast<std::uint64_t>(value)), ")");
}

std::string KernelText::Size(const SpaceDim& dim) { return Count(StrCat("n", dim.dim), dim.size); }

void KernelText::Line(const std::string& text) {
  lines_.push_back(StrCat(std::string(2 * declared_.size(), ' '), text, "\n"));
}

void KernelText::Open(const std::string& text) {
  Line(text);
  declared_.emplace_back();
}

void KernelText::Close() {
  declared_.pop_back();
  Line("}");
}

std::string KernelText::IndexName(const SpaceDim& dim) {
  used_dims_.insert(dim.dim);
  return StrCat("i", dim.dim);
}

void KernelText::InsertIndices(int mark, std::span<const SpaceDim> dims, const std::string& number) {
  const std::vector<std::string> before(lines_.begin(), lines_.begin() + mark);
  const std::vector<std::string> after(lines_.begin() + mark, lines_.end());
  lines_ = before;
  std::string rest = number;
  for (size_t k = dims.size(); k-- > 0;) {
    const int d = dims[k].dim;
    const auto is_used = [&](const SpaceDim& dim) { return used_dims_.contains(dim.dim); };
    if (std::ranges::none_of(dims.first(k + 1), is_used)) break;
    if (k == 0) {
      Line(StrCat("const Index i", d, " = ", rest, ";"));
      break;
    }
    const std::string size = Size(dims[k]), quotient = StrCat("q", d);
    const std::string divisor = Parameter("Divisor", StrCat("d", d), is_narrow_ ? DivisorWord(dims[k].size) : 0);
    Line(StrCat("const Index ", quotient, " = ",
                is_narrow_ ? StrCat("Quotient(", rest, ", ", divisor, ")") : StrCat(rest, " / ", size), ";"));
    if (is_used(dims[k])) Line(StrCat("const Index i", d, " = ", rest, " - ", quotient, " * ", size, ";"));
    rest = quotient;
  }
  lines_.insert(lines_.end(), after.begin(), after.end());
}

std::string KernelText::Place(const std::string& operand, const RegionOperand& memory) {
  if (!linear_.empty() && IsDense(space_, memory.strides)) return linear_;
  std::vector<std::string> terms;
  for (const SpaceDim& dim : space_) {
    const std::int64_t stride = memory.strides[dim.dim];
    if (stride == 0) continue;
    terms.push_back(IndexName(dim));
    if (stride != 1) terms.back() += StrCat(" * ", Count(StrCat(operand, "_s", dim.dim), stride));
  }
  return terms.empty() ? "0" : Join(terms, " + ");
}

std::string KernelText::ElementOf(const std::string& operand, const RegionOperand& memory) {
  return StrCat("p.", operand, "[", Place(operand, memory), "]");
}

std::string KernelText::ConstantText(const ExprNode& node) {
  std::string text = InlineConstant({.dtype = node.dtype, .bits = node.bits});
  if (!text.empty()) return text;
  const std::string type = StrCat("Word<", DeviceTypeName(node.dtype), ">");
  return StrCat(Parameter(type, StrCat("c", nodes_.number.at(&node)), node.bits), ".value");
}

std::string KernelText::InputText(const ExprNode& node) {
  const std::string operand = StrCat("in", node.number);
  if (IsValue(node.number)) return StrCat("p.", operand);
  const std::string element = ElementOf(operand, region_.inputs[node.number]);
  return node.dtype == DType::kBool ? StrCat(element, " != 0") : element;
}

std::string KernelText::ValueText(const ExprNode& node) {
  if (node.op == ExprOp::kInput) return InputText(node);
  if (node.op == ExprOp::kIndex) {
    for (const SpaceDim& dim : space_) {
      if (dim.dim == node.number) return IndexName(dim);
    }
    return "0";  // of a dimension of one element
  }
  std::vector<std::string> operands;
  for (const ExprNode* operand : node.Operands()) operands.push_back(NameOf(operand));
  const bool says_type = node.op == ExprOp::kCast || node.op == ExprOp::kUniform;
  return StrCat(DeviceFunction(node.op), says_type ? StrCat("<", DeviceTypeName(node.dtype), ">") : "", "(",
                Join(operands, ", "), ")");
}

bool KernelText::IsDeclared(const ExprNode* node) const {
  return std::ranges::any_of(declared_, [&](const auto& nodes) { return nodes.contains(node); });
}

std::string KernelText::NameOf(const ExprNode* node) {
  if (node->op == ExprOp::kConstant) return ConstantText(*node);
  if (node->op == ExprOp::kRequire) return NameOf(node->operands[0]);
  return StrCat("v", nodes_.number.at(node));
}

void KernelText::DeclareAs(const ExprNode* node, const std::string& value) {
  Line(StrCat("const ", DeviceTypeName(node->dtype), " ", NameOf(node), " = ", value, ";"));
  declared_.back().insert(node);
}

static std::string KeptName(const std::string& name) { return StrCat(name, "_kept"); }

void KernelText::Keep(std::span<const ExprNode* const> nodes, int count) {
  for (const ExprNode* node : nodes) {
    Line(StrCat(DeviceTypeName(node->dtype), " ", KeptName(NameOf(node)), "[", count, "];"));
    kept_.emplace(node, false);
  }
}

bool KernelText::IsKnown(const ExprNode* node) const {
  const auto found = kept_.find(node);
  return found != kept_.end() && found->second;
}

void KernelText::Declare(std::span<const ExprNode* const> wanted, bool of_rows_only) {
  std::unordered_set<const ExprNode*> needed;
  std::vector<const ExprNode*> left(wanted.begin(), wanted.end());
  while (!left.empty()) {
    const ExprNode* node = left.back();
    left.pop_back();
    if (IsDeclared(node) || !needed.insert(node).second || IsKnown(node)) continue;
    left.insert(left.end(), OperandsHere(*node).begin(), OperandsHere(*node).end());
  }
  for (const ExprNode* node : nodes_.all) {
    if (!needed.contains(node) || node->op == ExprOp::kConstant || node->op == ExprOp::kRequire) continue;
    if (of_rows_only && nodes_.Varies(node)) continue;
    const auto kept = kept_.find(node);
    const std::string place = kept == kept_.end() ? "" : StrCat(KeptName(NameOf(node)), "[j]");
    DeclareAs(node, IsKnown(node) ? place : ValueText(*node));
    if (kept == kept_.end() || kept->second) continue;
    Line(StrCat(place, " = ", NameOf(node), ";"));
    kept->second = true;
  }
}

std::string KernelText::OutputElement(int output) {
  return ElementOf(StrCat("out", output), region_.outputs[output].memory);
}

void KernelText::Store(int output, const ExprNode* value) {
  Line(StrCat(OutputElement(output), " = ", NameOf(value), ";"));
}

void KernelText::CheckRequirements(const std::string& element) {
  for (size_t k = 0; k < nodes_.requirements.size(); ++k) {
    const ExprNode& require = *nodes_.requirements[k];
    std::string values;
    for (const ExprNode* shown : require.Operands().subspan(1)) values += StrCat(", Bits(", NameOf(shown), ")");
    Line(StrCat(k == 0 ? "" : "else ", "if (!", NameOf(&require), ") NoteFault(p.fault, p.site, ", element, ", ", k,
                values, ");"));
  }
}

RegionLaunch KernelText::PrintParameters(std::string* text) const {
  RegionLaunch launch{.kernel = kernel_};
  *text += StrCat("struct ", kernel_, "_parameters {\n");
  for (const Member& member : members_) {
    *text += StrCat("  ", member.type, " ", member.name, ";\n");
    launch.words.insert(launch.words.end(), member.words.begin(), member.words.end());
  }
  *text += "};\n";
  return launch;
}

std::string KernelText::OpeningText() const {
  return StrCat("  typedef ", is_narrow_ ? "int" : "long long", " Index;\n");
}

RegionLaunch KernelText::Finish(std::int64_t threads_needed, int threads_of_block, std::string* text) {
  RegionLaunch launch = PrintParameters(text);
  launch.threads = threads_of_block;
  launch.blocks = (threads_needed + threads_of_block - 1) / threads_of_block;
  *text +=
      StrCat("extern \"C\" __global__ void __launch_bounds__(", threads_of_block, ") ", kernel_, "(const ", kernel_,
             "_parameters p) {\n", OpeningText(), "  WaitForKernelsBefore();\n  if (IsStopped(p.stop)) return;\n");
  for (const std::string& line : lines_) *text += line;
  *text += "}\n";
  return launch;
}

RegionLaunch KernelText::FinishFunction(std::string* text) {
  RegionLaunch launch = PrintParameters(text);
  *text += StrCat("static __device__ __forceinline__ void ", kernel_, "(const ", kernel_,
                  "_parameters& p, unsigned long long* shared) {\n", OpeningText());
  for (const std::string& line : lines_) *text += line;
  *text += "}\n";
  return launch;
}

}  // namespace stepnet
