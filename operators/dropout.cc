// Dropout: y = x / (1 - ratio) where a random mask is set, 0 elsewhere.
// Source: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", JMLR 2014, with the
// scaling moved from testing to training.
#include <algorithm>
#include <cmath>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/formula.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

// Selects rather than multiplies: a NaN that is dropped is gone.
template <typename T>
void Select(const T* x, const bool* mask, T scale, T* y, std::int64_t n) {
  InBlocks(n, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] = mask[i] ? x[i] * scale : T{0};
  });
}

// A word of 32 random bits keeps its element when it is not below this.
std::uint64_t DropsBelow(float ratio) {
  return static_cast<std::uint64_t>(std::ceil(static_cast<double>(ratio) * 0x1p32));
}

void DrawMask(const RandomStream& random, std::uint64_t drops_below, bool* mask, std::int64_t n) {
  constexpr std::int64_t kWorkOfGroup = 16;
  for (std::int64_t i = 0; i < n; i += 4) {
    CountWork(kWorkOfGroup);
    const auto words = random.Block(static_cast<std::uint64_t>(i / 4));
    for (std::int64_t k = 0; k < 4 && i + k < n; ++k) mask[i + k] = words[static_cast<size_t>(k)] >= drops_below;
  }
}

// What elements that stay are multiplied by.
Expr ScaleOf(const Formula& f, DType dtype) { return 1 / (1 - Cast(dtype, f.Number("ratio"))); }

struct Dropout {
  explicit Dropout(const OperatorCall& op)
      : is_test(op.Bool("is_test")),
        same_each_step(op.Bool("same_mask_each_step")),
        ratio(op.Float("ratio")),
        seed(op.seed()),
        id(op.random_id()) {}

  void Run(const OpRun& run) const {
    const TensorView& x = run.In(0);
    const TensorView& y = run.Out(0);
    const std::int64_t n = x.size();
    bool* mask = run.num_outputs() > 1 ? run.Out(1).As<bool>() : nullptr;
    if (is_test) {
      CopyElements(x, y);
      if (mask != nullptr) std::fill_n(mask, n, true);
      return;
    }
    if (mask == nullptr) mask = run.ScratchOf<bool>(n);
    // The step is part of where a number is drawn; step 0 stands for all where they share a mask.
    const RandomStream random(seed, id, run.context().RunNumber(), same_each_step ? 0 : run.step());
    DrawMask(random, DropsBelow(ratio), mask, n);
    ForFloatType(x.dtype, "Dropout", [&](auto zero) {
      using T = decltype(zero);
      Select(x.As<T>(), mask, 1 / (1 - static_cast<T>(ratio)), y.As<T>(), n);
    });
  }

  bool is_test;
  bool same_each_step;
  float ratio;
  std::uint64_t seed;
  std::uint64_t id;
};

std::vector<ArgumentSpec> DropoutArgs() {
  return {{.name = "ratio",
           .type = ArgumentType::kFloat,
           .default_value = {.f = 0.5f},
           .doc = "probability that an element is dropped; less than 1",
           .constraint = AtLeast(0)},
          {.name = "is_test", .type = ArgumentType::kBool, .doc = "y = x"},
          {.name = "same_mask_each_step",
           .type = ArgumentType::kBool,
           .doc = "in a step net, every step of a run draws the same mask"}};
}

void CheckRatio(const OperatorCall& op, std::vector<NetProblem>* problems) {
  if (op.Float("ratio") < 1) return;
  problems->push_back({.message = StrCat(op.type(), ": ratio is ", op.Float("ratio"), ", must be less than 1")});
}

const Registration dropout =
    Operator("Dropout")
        .Doc(
            "Sets random elements to 0 and scales the others by 1 / (1 - ratio). The mask is a function of seed, "
            "operator, run, step and element alone, so that it is the same wherever and however often it is drawn.")
        .Input("x", "any shape, float or double")
        .Output("y", "the shape of x")
        .OptionalOutput("mask", "bool, the shape of x: true where x is kept; all true with is_test")
        .Args(DropoutArgs())
        .Check(CheckRatio)
        .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
          ExpectFloat(query, 0);
          const TensorInfo& x = query.In(0);
          return {{.dtype = x.dtype, .shape = x.shape}, {.dtype = DType::kBool, .shape = x.shape}};
        })
        .InPlace({{0, 0}})
        .Gradient([](GradientBuilder& g) {
          GradientOp op{.type = "DropoutGrad", .inputs = {g.GO(0)}, .outputs = {g.GI(0)}};
          if (!g.op().Bool("is_test")) {
            if (g.op().num_outputs() < 2) {
              throw Error(ErrorCode::kInvalidNet, "the gradient of Dropout needs its mask, a second output");
            }
            op.inputs.push_back(g.O(1));
          }
          g.Add(std::move(op));
        })
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [dropout = Dropout(op)](const OpRun& run) { dropout.Run(run); };
        });

void ExpectMask(const OperatorCall& op) {
  if (op.Bool("is_test") || op.num_inputs() > 1) return;
  throw Error(ErrorCode::kInvalidArgument, "DropoutGrad needs the mask as a second input, or is_test");
}

std::vector<TensorInfo> DropoutGradShapes(const ShapeQuery& query) {
  ExpectFloat(query, 0);
  const TensorInfo& dy = query.In(0);
  if (!query.op().Bool("is_test")) {
    ExpectMask(query.op());
    ExpectType(query, 1, {DType::kBool});
    if (query.In(1).shape != dy.shape) {
      throw Error(ErrorCode::kShapeMismatch, StrCat(InputText(query, 0), " and ", InputText(query, 1),
                                                    "; DropoutGrad needs dy and mask of one shape"));
    }
  }
  return {{.dtype = dy.dtype, .shape = dy.shape}};
}

const Registration dropout_grad =
    Operator("DropoutGrad")
        .Doc("dx = dy / (1 - ratio) where the mask is set, 0 elsewhere; dx = dy with is_test.")
        .Input("dy", "any shape, float or double")
        .OptionalInput("mask", "bool, the shape of dy; not needed with is_test")
        .Output("dx", "the shape of dy")
        .Args(DropoutArgs())
        .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) {
          CheckRatio(op, problems);
          CheckBy(ExpectMask)(op, problems);
        })
        .Shapes(DropoutGradShapes)
        .InPlace({{0, 0}})
        .Formula([](Formula& f) {
          const Expr dy = f.In("dy");
          f.Out({f.Bool("is_test") ? dy : Where(f.In("mask"), ScaleOf(f, dy.dtype()) * dy, 0)});
        });

}  // namespace
}  // namespace stepnet
