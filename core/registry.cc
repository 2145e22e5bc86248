// The table of operator types, and the declarations that fill it.
#include <algorithm>
#include <climits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>

#include "stepnet/core/declaration_check.h"
#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/formal_shapes.h"
#include "stepnet/core/formulas/formula_kernel.h"
#include "stepnet/core/operator.h"

namespace stepnet {
namespace {

struct Registry {
  std::mutex mutex;
  std::unordered_map<std::string, OperatorSchema> schemas;  // planning asks for each operator, many times
  std::map<std::string, std::string> problems;              // type → why nobody may use it
  std::vector<std::tuple<std::string, DeviceKind, Kernel>> early_kernels;  // registered before their type
};

// Never destroyed: each process ends, and few unload the library.
Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

void AddKernel(DeviceKind device, Kernel kernel, OperatorSchema* schema, Registry* registry) {
  if (schema->kernels.emplace(device, std::move(kernel)).second) return;
  registry->problems[schema->type] =
      StrCat("the kernel of operator type \"", schema->type, "\" for ", DeviceKindName(device), " is registered twice");
}

// Nets ask the shape rule before they run a kernel that takes no blobs.
void CheckShapeRule(const OperatorSchema& schema, Registry* registry) {
  if (schema.shapes) return;
  for (const auto& [device, kernel] : schema.kernels) {
    if (kernel.takes_blobs) continue;
    registry->problems.emplace(
        schema.type, StrCat("operator type \"", schema.type, "\", in ", schema.file, ", has a kernel for ",
                            DeviceKindName(device), " but nothing says what shapes its outputs have: add .Shapes() or ",
                            ".Formula(), or let the kernel set its outputs itself (Kernel::takes_blobs)"));
  }
}

int Count(const std::vector<Formal>& formals, bool required_only) {
  return static_cast<int>(
      std::ranges::count_if(formals, [&](const Formal& f) { return !required_only || !f.optional; }));
}

}  // namespace

int OperatorSchema::min_inputs() const { return Count(inputs, true); }
int OperatorSchema::max_inputs() const {
  return !inputs.empty() && inputs.back().variadic ? INT_MAX : Count(inputs, false);
}
int OperatorSchema::min_outputs() const { return Count(outputs, true); }
int OperatorSchema::max_outputs() const {
  return !outputs.empty() && outputs.back().variadic ? INT_MAX : Count(outputs, false);
}

const ArgumentSpec* OperatorSchema::FindArgument(std::string_view name) const {
  // Nearly all are asked for by the name that they are declared by, which is compared faster than an ending.
  auto found = std::ranges::find(arguments, name, &ArgumentSpec::name);
  if (found == arguments.end()) {
    found = std::ranges::find_if(arguments, [&](const ArgumentSpec& spec) { return spec.Matches(name); });
  }
  return found == arguments.end() ? nullptr : &*found;
}

bool OperatorSchema::ReadsShapeAlone(int input) const {
  const int last = static_cast<int>(inputs.size()) - 1;
  const int formal = last >= 0 && inputs[last].variadic ? std::min(input, last) : input;
  return std::ranges::count(shape_inputs, formal) > 0;
}

const Kernel* OperatorSchema::FindKernel(DeviceKind device) const {
  const auto found = kernels.find(device);
  if (found != kernels.end()) return &found->second;
  if (device == DeviceKind::kCpu) return nullptr;
  const DeviceSpec* spec = FindDeviceSpec(device);
  return spec != nullptr && spec->find_kernel ? spec->find_kernel(*this) : nullptr;
}

bool OperatorSchema::TakesBlobs(DeviceKind device) const {
  const Kernel* kernel = FindKernel(device);
  return kernel != nullptr ? kernel->takes_blobs : !shapes;
}

std::vector<int> OperatorSchema::HostInputs(DeviceKind device) const {
  std::set<int> inputs(shape_value_inputs.begin(), shape_value_inputs.end());
  if (const Kernel* kernel = FindKernel(device)) inputs.insert(kernel->host_inputs.begin(), kernel->host_inputs.end());
  return {inputs.begin(), inputs.end()};
}

bool OperatorSchema::AllowsInPlace(int input, int output) const {
  for (const auto* pairs : {&in_place, &enforced_in_place}) {
    for (const auto& [from, to] : *pairs) {
      if ((from == -1 && input == output) || (from == input && to == output)) return true;
    }
  }
  return false;
}

namespace {

void Register(OperatorSchema schema) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.schemas.find(schema.type);
  if (found != registry.schemas.end()) {
    const bool is_one_file = found->second.file == schema.file;
    registry.problems[schema.type] =
        StrCat("operator type \"", schema.type, "\" is registered twice: in ", found->second.file,
               is_one_file ? StrCat(", of which the process has two copies") : StrCat(" and in ", schema.file));
    return;
  }
  for (const auto& [type, device, kernel] : registry.early_kernels) {
    if (type == schema.type) AddKernel(device, kernel, &schema, &registry);
  }
  if (std::string problem = DeclarationProblem(schema); !problem.empty()) {
    registry.problems[schema.type] = std::move(problem);
  } else {
    if (schema.rows) schema.rows = CheckedRows(std::move(schema.rows));
    if (schema.formula) CompleteFromFormula(&schema);
    CheckShapeRule(schema, &registry);
  }
  std::string type = schema.type;
  registry.schemas.emplace(std::move(type), std::move(schema));
}

}  // namespace

Registration::Registration(const Operator& op) {
  OperatorSchema schema = op.schema_;
  CompleteFromFormals(&schema);
  std::optional<OperatorSchema> of_gradient;
  if (schema.derived_gradient && schema.formula) {
    of_gradient = DerivedGradientOf(schema).schema_;
    CompleteFromFormals(&*of_gradient);
  }
  Register(std::move(schema));
  if (of_gradient) Register(*std::move(of_gradient));
}

KernelRegistration::KernelRegistration(std::string type, DeviceKind device, Kernel kernel) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.schemas.find(type);
  if (found == registry.schemas.end()) {
    registry.early_kernels.emplace_back(std::move(type), device, std::move(kernel));
  } else {
    AddKernel(device, std::move(kernel), &found->second, &registry);
    CheckShapeRule(found->second, &registry);
  }
}

const OperatorSchema* FindOperator(const std::string& type) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto problem = registry.problems.find(type);
  if (problem != registry.problems.end()) throw Error(ErrorCode::kInvalidNet, problem->second);
  const auto found = registry.schemas.find(type);
  return found == registry.schemas.end() ? nullptr : &found->second;
}

const OperatorSchema& GetOperator(const std::string& type) {
  if (const OperatorSchema* schema = FindOperator(type)) return *schema;
  const std::vector<std::string> types = OperatorTypes();
  // Names with a dot are of libraries: MyLibrary.Type.
  const auto of_library =
      std::ranges::find_if(types, [&](const std::string& other) { return other.ends_with("." + type); });
  std::string hint =
      of_library != types.end() ? StrCat("; did you mean \"", *of_library, "\"?") : DidYouMean(type, types);
  if (hint.empty() && type.find('.') != std::string::npos) {
    hint =
        "; types with a dot come from libraries of operators, which --op_library, LoadOperatorLibrary or Python's "
        "load_operator_library loads";
  }
  throw Error(ErrorCode::kInvalidNet, StrCat("no operator type \"", type, "\"", hint));
}

std::map<std::string, std::string> RegistrationProblems() {
  Registry& registry = TheRegistry();
  std::map<std::string, std::string> problems;
  std::vector<const OperatorSchema*> others;
  {
    const std::lock_guard lock(registry.mutex);
    problems = registry.problems;
    for (const auto& [type, schema] : registry.schemas) {
      if (!problems.contains(type)) others.push_back(&schema);
    }
  }
  for (const OperatorSchema* schema : others) {
    if (std::string problem = DeclaredGradientProblem(*schema); !problem.empty()) problems[schema->type] = problem;
  }
  return problems;
}

std::vector<std::string> OperatorTypes() {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  std::vector<std::string> types;
  for (const auto& [type, schema] : registry.schemas) types.push_back(type);
  std::ranges::sort(types);
  return types;
}

Operator::Operator(std::string type, const char* file) {
  schema_.type = std::move(type);
  schema_.file = file;
}

Operator& Operator::Doc(std::string text) {
  schema_.doc = std::move(text);
  return *this;
}

Operator& Operator::Input(std::string name, FormalInfo info) {
  schema_.inputs.push_back({std::move(info), std::move(name)});
  return *this;
}
Operator& Operator::OptionalInput(std::string name, FormalInfo info) {
  schema_.inputs.push_back({std::move(info), std::move(name), /*optional=*/true});
  return *this;
}
Operator& Operator::Inputs(std::string name, FormalInfo info) {
  schema_.inputs.push_back({std::move(info), std::move(name), /*optional=*/false, /*variadic=*/true});
  return *this;
}
Operator& Operator::OptionalInputs(std::string name, FormalInfo info) {
  schema_.inputs.push_back({std::move(info), std::move(name), /*optional=*/true, /*variadic=*/true});
  return *this;
}
Operator& Operator::Output(std::string name, FormalInfo info) {
  schema_.outputs.push_back({std::move(info), std::move(name)});
  return *this;
}
Operator& Operator::OptionalOutput(std::string name, FormalInfo info) {
  schema_.outputs.push_back({std::move(info), std::move(name), /*optional=*/true});
  return *this;
}
Operator& Operator::Outputs(std::string name, FormalInfo info) {
  schema_.outputs.push_back({std::move(info), std::move(name), /*optional=*/false, /*variadic=*/true});
  return *this;
}
Operator& Operator::OptionalOutputs(std::string name, FormalInfo info) {
  schema_.outputs.push_back({std::move(info), std::move(name), /*optional=*/true, /*variadic=*/true});
  return *this;
}

ArgumentSpec& Operator::AddArg(std::string name, ArgumentType type, std::string doc, Constraint constraint) {
  schema_.arguments.push_back(
      {.name = std::move(name), .type = type, .doc = std::move(doc), .constraint = std::move(constraint)});
  return schema_.arguments.back();
}

Operator& Operator::Arg(std::string name, float value, std::string doc, Constraint constraint) {
  AddArg(std::move(name), ArgumentType::kFloat, std::move(doc), std::move(constraint)).default_value.f = value;
  return *this;
}
Operator& Operator::Arg(std::string name, int value, std::string doc, Constraint constraint) {
  return Arg(std::move(name), std::int64_t{value}, std::move(doc), std::move(constraint));
}
Operator& Operator::Arg(std::string name, std::int64_t value, std::string doc, Constraint constraint) {
  AddArg(std::move(name), ArgumentType::kInt, std::move(doc), std::move(constraint)).default_value.i = value;
  return *this;
}
Operator& Operator::Arg(std::string name, bool value, std::string doc) {
  AddArg(std::move(name), ArgumentType::kBool, std::move(doc), {}).default_value.i = value ? 1 : 0;
  return *this;
}
Operator& Operator::Arg(std::string name, const char* value, std::string doc, Constraint constraint) {
  AddArg(std::move(name), ArgumentType::kString, std::move(doc), std::move(constraint)).default_value.s = value;
  return *this;
}
Operator& Operator::Arg(std::string name, std::vector<std::int64_t> value, std::string doc, Constraint constraint) {
  AddArg(std::move(name), ArgumentType::kInts, std::move(doc), std::move(constraint)).default_value.ints =
      std::move(value);
  return *this;
}
Operator& Operator::Arg(std::string name, std::vector<float> value, std::string doc) {
  AddArg(std::move(name), ArgumentType::kFloats, std::move(doc), {}).default_value.floats = std::move(value);
  return *this;
}
Operator& Operator::Arg(std::string name, std::vector<std::string> value, std::string doc) {
  AddArg(std::move(name), ArgumentType::kStrings, std::move(doc), {}).default_value.strings = std::move(value);
  return *this;
}
Operator& Operator::NumberArg(std::string name, double value, std::string doc, Constraint constraint) {
  AddArg(std::move(name), ArgumentType::kNumber, std::move(doc), std::move(constraint)).default_value.f = value;
  return *this;
}
Operator& Operator::NetArg(std::string name, std::string doc) {
  AddArg(std::move(name), ArgumentType::kNet, std::move(doc), {});
  return *this;
}
Operator& Operator::RequiredArg(std::string name, ArgumentType type, std::string doc, Constraint constraint) {
  AddArg(std::move(name), type, std::move(doc), std::move(constraint)).required = true;
  return *this;
}
Operator& Operator::Args(const std::vector<ArgumentSpec>& specs) {
  schema_.arguments.insert(schema_.arguments.end(), specs.begin(), specs.end());
  return *this;
}
Operator& Operator::AnyArguments() {
  schema_.arguments_as_in_file = true;
  return *this;
}

Operator& Operator::InPlace(std::vector<std::pair<int, int>> pairs) {
  schema_.in_place = std::move(pairs);
  return *this;
}
Operator& Operator::EnforceInPlace(std::vector<std::pair<int, int>> pairs) {
  schema_.enforced_in_place = std::move(pairs);
  return *this;
}
Operator& Operator::Elementwise() {
  schema_.elementwise = true;
  return *this;
}
Operator& Operator::HasSideEffects() {
  schema_.has_side_effects = true;
  return *this;
}
Operator& Operator::DrawsRandomNumbers(DrawsRule rule) {
  schema_.draws = std::move(rule);
  return *this;
}
Operator& Operator::OutputsMayRepeat() {
  schema_.outputs_may_repeat = true;
  return *this;
}
Operator& Operator::Private() {
  schema_.is_private = true;
  return *this;
}
Operator& Operator::Shapes(ShapeRule rule) {
  schema_.shapes = std::move(rule);
  return *this;
}
Operator& Operator::CheckShapes(ShapeCheck check) {
  schema_.shape_check = std::move(check);
  return *this;
}
Operator& Operator::ShapesReadValues(std::vector<int> inputs) {
  schema_.shape_value_inputs = std::move(inputs);
  return *this;
}
Operator& Operator::ReadsShapes(std::vector<int> inputs) {
  schema_.shape_inputs = std::move(inputs);
  return *this;
}
Operator& Operator::SumsLike(int input) {
  schema_.sum_like = input;
  return ReadsShapes({input});
}
Operator& Operator::CostIs(CostRule rule) {
  schema_.cost = std::move(rule);
  return *this;
}

Operator& Operator::Rows(RowsRule rule) {
  schema_.rows = std::move(rule);
  return *this;
}
Operator& Operator::Formula(FormulaRule rule, FormulaOptions options) {
  schema_.formula = std::move(rule);
  schema_.formula_options = options;
  return *this;
}
Operator& Operator::Expands(ExpansionRule rule) {
  schema_.expansion = std::move(rule);
  return *this;
}
Operator& Operator::Check(std::function<void(const OperatorCall&, std::vector<NetProblem>* problems)> check) {
  schema_.check = std::move(check);
  return *this;
}
Operator& Operator::OpensFiles(FilesRule rule) {
  schema_.files = std::move(rule);
  return *this;
}
Operator& Operator::Gradient(GradientRule rule) {
  schema_.gradient_kind = GradientKind::kRule;
  schema_.gradient = std::move(rule);
  schema_.declared_gradient.reset();
  schema_.derived_gradient.reset();
  return *this;
}
Operator& Operator::StopsGradient() {
  schema_.gradient_kind = GradientKind::kStops;
  return *this;
}
Operator& Operator::OnEveryDevice(const Kernel& kernel) {
  for (const DeviceKind device : kDeviceKinds) schema_.kernels.emplace(device, kernel);
  return *this;
}
Operator& Operator::On(DeviceKind device, Kernel kernel) {
  schema_.kernels.insert_or_assign(device, std::move(kernel));
  return *this;
}

Operator& Operator::Gradient(std::string type, std::vector<std::string> inputs, std::vector<std::string> outputs) {
  Gradient(AddDeclaredGradient);
  schema_.declared_gradient =
      GradientOp{.type = std::move(type), .inputs = std::move(inputs), .outputs = std::move(outputs)};
  return *this;
}
Operator& Operator::DerivedGradient(std::vector<std::string> inputs, std::vector<std::string> outputs,
                                    std::string doc) {
  Gradient(schema_.type + "Gradient", std::move(inputs), std::move(outputs));
  schema_.derived_gradient = std::move(doc);
  return *this;
}

}  // namespace stepnet
