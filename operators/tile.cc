// Tile: x repeated along one dimension. It copies runs, and its gradient adds them up, as their expansions say; the
// gradient is no formula: those sum over the last dimensions, or over all that come before.
#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/expansion.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/core/operator.h"
#include "stepnet/operators/dim_groups.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/elementwise.h"

namespace stepnet {
namespace {

const Registration tile =
    Operator("Tile")
        .Doc("Repeats x along a dimension: y[:, j, :] = x[:, j mod A, :].")
        .Input("x", "[…, A, …], any dtype")
        .Output("y", "[…, tiles * A, …]")
        .Arg("tiles", 1, "how many times x stands in y", AtLeast(0))
        .Arg("axis", 0, "dimension; negative counts from the end")
        .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
          const TensorInfo& x = query.In(0);
          const int axis = x.shape.CanonicalAxis(query.op().Int("axis"));
          std::int64_t size = 0;
          if (__builtin_mul_overflow(x.shape[axis], query.op().Int("tiles"), &size)) {
            throw Error(ErrorCode::kShapeMismatch, StrCat(InputText(query, 0), "; ", query.op().Int("tiles"),
                                                          " times dimension ", axis, " is more than 2^63"));
          }
          return {{.dtype = x.dtype, .shape = x.shape.With(axis, size)}};
        })
        .Expands([](Expansion& e) {
          const Shape& x = e.In(0).shape;
          const int axis = x.CanonicalAxis(e.op().Int("axis"));
          const std::int64_t block = x.SizeFrom(axis), tiles = e.op().Int("tiles");
          const StridedDim dims[] = {{x.SizeTo(axis), block}, {tiles, 0}, {block, 1}};
          if (x.size() > 0 && tiles > 0) e.Permute(dims);
        })
        .Gradient("TileGradient", {"dy"}, {"dx"})
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [axis = op.Int("axis"), tiles = op.Int("tiles")](const OpRun& run) {
            const TensorView& x = run.In(0);
            const int first = x.shape->CanonicalAxis(axis);
            const std::int64_t block = x.shape->SizeFrom(first);
            const BoxDim box[] = {{x.shape->SizeTo(first), block, tiles * block}, {tiles, 0, block}, {block, 1, 1}};
            CopyBox(x.dtype, box, At(x, 0), At(run.Out(0), 0));
          };
        });

const Registration tile_gradient =
    GradientOf("Tile", "Adds up the gradients of all copies of x, float or double.")
        .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) {
          if (op.Int("tiles") > 0) return;
          problems->push_back({.message = "TileGradient with 0 tiles: nothing says what shape x has"});
        })
        .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
          ExpectFloat(query, 0);
          const TensorInfo& dy = query.In(0);
          const int axis = dy.shape.CanonicalAxis(query.op().Int("axis"));
          const std::int64_t tiles = query.op().Int("tiles");
          if (dy.shape[axis] % tiles != 0) {
            throw Error(ErrorCode::kShapeMismatch,
                        StrCat(InputText(query, 0), "; dimension ", axis, " is no multiple of ", tiles, " tiles"));
          }
          return {{.dtype = dy.dtype, .shape = dy.shape.With(axis, dy.shape[axis] / tiles)}};
        })
        .Expands([](Expansion& e) {
          const Shape& dy = e.In(0).shape;
          const int axis = dy.CanonicalAxis(e.op().Int("axis"));
          const std::int64_t tiles = e.op().Int("tiles");
          e.Sum(0, {.sizes = {dy.SizeTo(axis), tiles, dy.SizeFrom(axis) / tiles}, .summed = {false, true, false}});
        })
        .Cpu([](const OperatorCall& op) -> RunFn {
          return FloatKernel(op, [axis = op.Int("axis"), tiles = op.Int("tiles")]<typename T>(const OpRun& run) {
            const TensorView& dx = run.Out(0);
            const std::int64_t block = dx.shape->SizeFrom(dx.shape->CanonicalAxis(axis));
            if (dx.size() > 0) SumMiddle(run.In(0).As<T>(), dx.As<T>(), dx.size() / block, tiles, block);
          });
        });

}  // namespace
}  // namespace stepnet
