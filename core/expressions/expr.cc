// One table of all nodes. A node lives while handles or nodes above it use it; the last use ends under the table's
// lock, so that nobody can find a node that is about to go.
#include "stepnet/core/expressions/expr.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "stepnet/core/error.h"
#include "stepnet/core/expressions/expr_scalar.h"
#include "stepnet/core/expressions/expr_table.h"
#include "stepnet/core/expressions/node_numbers.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/stored_float.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

std::uint64_t Mixed(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

std::uint64_t HashOf(const ExprFields& node) {
  std::uint64_t hash = Mixed(static_cast<std::uint64_t>(node.op) << 16 | static_cast<std::uint64_t>(node.dtype) << 8 |
                                 static_cast<std::uint64_t>(node.is_whole),
                             static_cast<std::uint64_t>(node.number));
  hash = Mixed(hash, node.bits);
  for (const ExprNode* operand : node.Operands()) hash = Mixed(hash, reinterpret_cast<std::uintptr_t>(operand));
  return node.text.empty() ? hash : Mixed(hash, std::hash<std::string>()(node.text));
}

bool SameNode(const ExprFields& a, const ExprFields& b) {
  return a.op == b.op && a.dtype == b.dtype && a.is_whole == b.is_whole && a.number == b.number && a.bits == b.bits &&
         std::ranges::equal(a.Operands(), b.Operands()) && a.text == b.text;
}

}  // namespace

ExprNode::ExprNode(ExprFields fields, std::uint64_t hash) : ExprFields(std::move(fields)), hash_(hash) {
  has_row_reduction_ = op == ExprOp::kRowSum || op == ExprOp::kRowMax;
  has_require_ = op == ExprOp::kRequire;
  for (const ExprNode* operand : Operands()) {
    has_row_reduction_ |= operand->has_row_reduction_;
    has_require_ |= operand->has_require_;
  }
}

class ExprTable {
 public:
  // A process that ends may still hold expressions in other static objects.
  static ExprTable& Get() {
    static ExprTable& table = *new ExprTable();
    return table;
  }

  Expr Find(ExprFields fields) {
    const std::uint64_t hash = HashOf(fields);
    const std::lock_guard lock(mutex_);
    const Wanted wanted{fields, hash};
    auto found = nodes_.find(wanted);
    if (found == nodes_.end()) {
      std::unique_ptr<ExprNode> made(new ExprNode(std::move(fields), hash));
      found = nodes_.insert(made.get()).first;
      for (const ExprNode* operand : made.release()->Operands()) AddUse(operand);
    }
    return Expr::Of(*found);
  }

  static void AddUse(const ExprNode* node) { node->uses_.fetch_add(1, std::memory_order_relaxed); }

  void EndUse(const ExprNode* node) {
    std::int64_t uses = node->uses_.load(std::memory_order_relaxed);
    while (uses > 1) {
      if (node->uses_.compare_exchange_weak(uses, uses - 1, std::memory_order_acq_rel)) return;
    }
    const std::lock_guard lock(mutex_);
    if (node->uses_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    // Not by recursion: expressions may be deep. The list of what is to go is threaded through the nodes themselves,
    // because there may be no memory for another one.
    ExprNode* going = const_cast<ExprNode*>(node);
    nodes_.erase(going);
    going->next_ = nullptr;
    while (going != nullptr) {
      ExprNode* const gone = going;
      going = gone->next_;
      for (const ExprNode* operand : gone->Operands()) {
        if (operand->uses_.fetch_sub(1, std::memory_order_acq_rel) > 1) continue;
        ExprNode* unused = const_cast<ExprNode*>(operand);
        nodes_.erase(unused);
        unused->next_ = going;
        going = unused;
      }
      delete gone;
    }
  }

  std::int64_t Count() {
    const std::lock_guard lock(mutex_);
    return static_cast<std::int64_t>(nodes_.size());
  }

 private:
  struct Wanted {
    const ExprFields& fields;
    std::uint64_t hash;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(const ExprNode* node) const { return node->hash_; }
    size_t operator()(const Wanted& wanted) const { return wanted.hash; }
  };
  struct Same {
    using is_transparent = void;
    bool operator()(const ExprNode* a, const ExprNode* b) const { return a == b; }
    bool operator()(const Wanted& a, const ExprNode* b) const { return a.hash == b->hash_ && SameNode(a.fields, *b); }
    bool operator()(const ExprNode* a, const Wanted& b) const { return (*this)(b, a); }
  };

  std::mutex mutex_;
  std::unordered_set<ExprNode*, Hash, Same> nodes_;
};

Expr::Expr(const Expr& other) : node_(other.node_) {
  if (node_ != nullptr) ExprTable::AddUse(node_);
}

Expr::~Expr() {
  if (node_ != nullptr) ExprTable::Get().EndUse(node_);
}

Expr Expr::Of(const ExprNode* node) {
  Expr expr;
  ExprTable::AddUse(node);
  expr.node_ = node;
  return expr;
}

Expr SharedNode(ExprFields fields) { return ExprTable::Get().Find(std::move(fields)); }

std::int64_t NumExprNodes() { return ExprTable::Get().Count(); }

bool IsExprType(DType dtype) {
  return IsFloatOrDouble(dtype) || dtype == DType::kInt32 || dtype == DType::kInt64 || dtype == DType::kBool;
}

bool IsOperandType(DType dtype) { return IsExprType(dtype) || IsStoredFloat(dtype); }

void CheckOperandType(DType dtype, std::string_view what, std::string_view name) {
  if (IsOperandType(dtype)) return;
  throw Error(ErrorCode::kTypeMismatch,
              StrCat(what, name, " is ", dtype,
                     "; expressions are of float, double, int32, int64 and bool, and store float16 and bfloat16"));
}

static ExprScalar NaNOf(DType dtype) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  if (IsStoredFloat(dtype)) return Stored(dtype, kNaN);
  return dtype == DType::kFloat ? ScalarOf(kNaN) : ScalarOf<double>(kNaN);
}

Expr ConstantOf(ExprScalar value) {
  ExprFields node{.op = ExprOp::kConstant};
  node.dtype = value.dtype;
  node.bits = value.bits;
  // One NaN, or equal expressions would be different nodes.
  if (IsFloating(value.dtype) && std::isnan(DoubleOf(value))) node.bits = NaNOf(value.dtype).bits;
  return SharedNode(std::move(node));
}

Expr Expr::Input(int number, std::string_view name, DType dtype) {
  CheckOperandType(dtype, "input ", name);
  if (number < 0) throw Error(ErrorCode::kInvalidArgument, StrCat("input ", name, " has the number ", number));
  ExprFields node{.op = ExprOp::kInput};
  node.dtype = dtype;
  node.number = number;
  node.text = name;
  return SharedNode(std::move(node));
}

Expr Expr::Literal(double value) {
  ExprFields node{.op = ExprOp::kLiteral};
  node.bits = std::isnan(value) ? ScalarOf(std::numeric_limits<double>::quiet_NaN()).bits : ScalarOf(value).bits;
  return SharedNode(std::move(node));
}

Expr Expr::WholeLiteral(std::int64_t value) {
  ExprFields node{.op = ExprOp::kLiteral};
  node.bits = ScalarOf(value).bits;
  node.is_whole = true;
  return SharedNode(std::move(node));
}

std::vector<const ExprNode*> ExprNodes(std::span<const Expr> roots) {
  constexpr size_t kUsual = 64;  // nodes, which few expressions outgrow
  std::vector<const ExprNode*> order;
  order.reserve(kUsual);
  NodeNumbers met;
  struct Visit {
    const ExprNode* node;
    int next;  // operand
  };
  std::vector<Visit> path;
  path.reserve(kUsual);
  for (const Expr& root : roots) {
    if (met.Add(root.node(), 0)) path.push_back({root.node(), 0});
    while (!path.empty()) {
      auto& [node, next] = path.back();
      if (next < node->num_operands) {
        const ExprNode* operand = node->operands[next++];
        if (met.Add(operand, 0)) path.push_back({operand, 0});
      } else {
        order.push_back(node);
        path.pop_back();
      }
    }
  }
  return order;
}

}  // namespace stepnet
