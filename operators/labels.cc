#include "stepnet/operators/labels.h"

#include "stepnet/core/input_checks.h"
#include "stepnet/operators/dtypes.h"

namespace stepnet {

void CheckLabelsInfo(const ShapeQuery& query, int i, const Rows& rows) {
  ExpectType(query, i, {DType::kInt32, DType::kInt64});
  if (rows.count > 0 && rows.size == 0) throw WrongInputs(query, {0}, "needs at least one class for its labels");
  if (query.In(i).shape.size() == rows.count) return;
  throw WrongInputs(query, {0, i}, StrCat("on ", rows.count, " rows of ", rows.size, " classes needs one label a row"));
}

std::int64_t LabelAt(const OpRun& run, int input, std::int64_t i, std::int64_t num_classes) {
  const std::int64_t label = IntAt(run.In(input), i);
  if (label >= 0 && label < num_classes) return label;
  run.Fault(input, i, [&](std::int64_t element) {
    return Error(ErrorCode::kInvalidArgument,
                 StrCat("label ", element, " is ", label, "; there are classes 0 to ", num_classes - 1));
  });
  return kNoClass;
}

}  // namespace stepnet
