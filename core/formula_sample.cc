#include "stepnet/core/formula_sample.h"

#include "stepnet/core/strings.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

std::optional<FormulaRegion> SampleFormula(const OperatorSchema& schema) {
  if (!schema.formula) return {};
  OperatorDef def;
  def.set_type(schema.type);
  for (const Formal& formal : schema.inputs) {
    def.add_input(formal.name);
    if (formal.variadic) def.add_input(formal.name);
  }
  for (const Formal& formal : schema.outputs) def.add_output(StrCat("of ", formal.name));
  for (const DType dtype : {DType::kFloat, DType::kBool}) {
    try {
      const OperatorCall call(def);
      const std::vector<TensorInfo> inputs(def.input_size(), {.dtype = dtype, .shape = Shape({2, 3})});
      const ShapeQuery query(call, inputs);
      const std::vector<TensorInfo> outputs = schema.shapes(query);  // which says what dtypes there are
      return MakeFormulaRegion(query, outputs);
    } catch (const Error&) {  // the other dtype may do
    }
  }
  return {};
}

bool IsElementwise(const OperatorSchema& schema) {
  if (schema.elementwise) return true;
  const std::optional<FormulaRegion> sample = SampleFormula(schema);
  return sample && sample->is_elementwise;
}

}  // namespace stepnet
