#include "stepnet/python/src/operator.h"

#include <nanobind/stl/vector.h>

#include <algorithm>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/python/src/arrays.h"
#include "stepnet/python/src/bindings.h"
#include "stepnet/python/src/text_caster.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

constexpr DType kDTypes[] = {DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBFloat16,
                             DType::kInt8,  DType::kInt16,  DType::kInt32,   DType::kInt64,
                             DType::kUInt8, DType::kUInt16, DType::kBool};

DType DTypeOfNumpyName(const std::string& name) {
  const auto* const found = std::ranges::find(kDTypes, name, NumpyName);
  if (found != std::end(kDTypes)) return *found;
  throw Error(ErrorCode::kTypeMismatch, StrCat("there are no tensors of dtype ", name));
}

template <typename T>
nb::object NumbersOf(const std::vector<T>& values) {
  return nb::cast(values);
}

nb::object AnyOf(const ArgumentValue& value) {
  if (value.f) return nb::cast(*value.f);
  if (value.i) return nb::cast(*value.i);
  if (value.s) return StrOf(*value.s);
  if (!value.floats.empty()) return NumbersOf(value.floats);
  if (!value.ints.empty()) return NumbersOf(value.ints);
  return ListOf(value.strings);
}

nb::object ArgumentOf(const OperatorCall& call, const std::string& name, const ArgumentValue& value,
                      ArgumentType type) {
  switch (type) {
    case ArgumentType::kFloat: return nb::cast(call.Number(name));
    case ArgumentType::kInt: return nb::cast(value.i.value_or(0));
    case ArgumentType::kBool: return nb::cast(value.i.value_or(0) != 0);
    case ArgumentType::kString: return StrOf(value.s.value_or(""));
    case ArgumentType::kFloats: return NumbersOf(value.floats);
    case ArgumentType::kInts: return NumbersOf(value.ints);
    case ArgumentType::kStrings: return ListOf(value.strings);
    case ArgumentType::kNumber:
    case ArgumentType::kAny: return AnyOf(value);
    case ArgumentType::kNet: return nb::none();
  }
  return nb::none();
}

template <typename T>
Tensor TensorOf(const Shape& shape, nb::handle elements) {
  return Tensor::Of<T>(shape, nb::cast<std::vector<T>>(elements));
}

TensorInfo InfoOf(nb::handle given) {
  const auto parts = nb::cast<nb::tuple>(given);
  TensorInfo info{.dtype = DTypeOfNumpyName(nb::cast<std::string>(parts[0])),
                  .shape = Shape(nb::cast<std::vector<std::int64_t>>(parts[1]))};
  if (parts[2].is_none()) return info;
  switch (info.dtype) {
    case DType::kFloat: info.value = TensorOf<float>(info.shape, parts[2]); break;
    case DType::kDouble: info.value = TensorOf<double>(info.shape, parts[2]); break;
    case DType::kInt32: info.value = TensorOf<std::int32_t>(info.shape, parts[2]); break;
    default: info.value = TensorOf<std::int64_t>(info.shape, parts[2]);
  }
  return info;
}

std::vector<std::int64_t> SizesOf(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

}  // namespace

nb::dict Operator::Arguments() const {
  nb::dict arguments;
  for (const ArgumentSpec& spec : call_.schema().arguments) {
    const auto given = call_.arguments().find(spec.name);
    const bool is_given = given != call_.arguments().end();
    const ArgumentValue& value = is_given ? given->second : spec.default_value;
    const bool is_list =
        spec.type == ArgumentType::kFloats || spec.type == ArgumentType::kInts || spec.type == ArgumentType::kStrings;
    arguments[StrOf(spec.name)] =
        value.empty() && !is_list ? nb::none() : ArgumentOf(call_, spec.name, value, spec.type);
  }
  return arguments;
}

nb::list Operator::InferShapes(const nb::list& inputs) const {
  std::vector<TensorInfo> infos;
  for (const nb::handle input : inputs) infos.push_back(InfoOf(input));
  const ShapeRule& rule = call_.schema().shapes;
  nb::list outputs;
  try {
    if (!rule) throw ValueUnknown{0};
    for (const TensorInfo& info : rule(ShapeQuery(call_, infos))) {
      outputs.append(nb::make_tuple(NumpyName(info.dtype), nb::tuple(nb::cast(SizesOf(info.shape)))));
    }
  } catch (const ValueUnknown&) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("the shapes of what ", call_.type(), " gives follow from the elements of its inputs"));
  }
  return outputs;
}

nb::dict Operator::Recurrent() const {
  const std::shared_ptr<const RecurrentSpec> owner = RecurrentSpecOf(call_);
  const RecurrentSpec& spec = *owner;
  nb::list states, links, aliases, step_outputs;
  for (const RecurrentState& state : spec.states) states.append(nb::make_tuple(StrOf(state.name), state.initial));
  for (const Link& link : spec.links) {
    links.append(nb::make_tuple(StrOf(link.internal), StrOf(link.external), link.offset, link.window));
  }
  for (const OffsetAlias& alias : spec.aliases) {
    aliases.append(nb::make_tuple(StrOf(alias.source), StrOf(alias.destination), alias.offset));
  }
  for (const StepOutput& output : spec.step_outputs) {
    step_outputs.append(nb::make_tuple(StrOf(output.blob), output.destination));
  }
  nb::dict parts;
  parts["step"] = OperatorsOf(*spec.step_net);
  parts["states"] = states;
  parts["links"] = links;
  parts["aliases"] = aliases;
  parts["step_outputs"] = step_outputs;
  parts["timestep"] = StrOf(spec.timestep);
  return parts;
}

nb::list OperatorsOf(const NetDef& net) {
  nb::list operators;
  for (const OperatorDef& op : net.op()) operators.append(nb::cast(Operator(op)));
  return operators;
}

void BindOperator(nb::module_& module) {
  nb::class_<Operator>(module, "Operator")
      .def_prop_ro("type", [](const Operator& op) { return StrOf(op.call().type()); })
      .def_prop_ro("inputs", [](const Operator& op) { return ListOf(op.call().inputs()); })
      .def_prop_ro("outputs", [](const Operator& op) { return ListOf(op.call().outputs()); })
      .def_prop_ro("text", [](const Operator& op) { return StrOf(op.call().Text()); })
      .def_prop_ro("draws", [](const Operator& op) { return op.call().schema().draws != nullptr; })
      .def("has_argument", [](const Operator& op, const std::string& name) { return op.call().HasArg(name); })
      .def("arguments", &Operator::Arguments)
      .def("infer_shapes", &Operator::InferShapes)
      .def("recurrent", &Operator::Recurrent);
}

}  // namespace stepnet::python
