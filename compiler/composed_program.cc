#include "stepnet/compiler/composed_program.h"

#include <bit>
#include <cstdint>
#include <string>
#include <utility>

#include "stepnet/core/kept_by_key.h"

namespace stepnet {
namespace {

KeptByKey<ComposedProgram>& KeptPrograms() {
  static auto* const kept = new KeptByKey<ComposedProgram>(/*max_kept=*/128);  // as FindFormula's
  return *kept;
}

// Which parts are joined, and how. What is kept holds the parts, so that no others have their addresses.
std::string KeyOf(std::span<const OperatorToCompose> operators, const CompositionRequest& request) {
  std::string key;
  const auto add = [&](std::uint64_t number) { key.append(reinterpret_cast<const char*>(&number), sizeof(number)); };
  const auto add_all = [&](const std::vector<int>& numbers) {
    add(numbers.size());
    for (const int number : numbers) add(static_cast<std::uint64_t>(number));
  };
  for (const OperatorToCompose& op : operators) {
    add(reinterpret_cast<std::uintptr_t>(op.parts.get()));
    add_all(op.tensors);
    add(static_cast<std::uint64_t>(op.run_values));
  }
  add(0);
  add_all(request.wanted);
  for (const auto& [read, written] : request.in_place) add_all({read, written});
  add(std::bit_cast<std::uint64_t>(request.max_repeated_operations));
  add(std::bit_cast<std::uint64_t>(request.operations_of_function));
  return key;
}

}  // namespace

const RegionProgram& ComposedProgram::program() const {
  std::call_once(once_, [this] { program_.emplace(composed_.region); });
  return *program_;
}

std::variant<std::shared_ptr<const ComposedProgram>, CompositionObstacle> FindComposed(
    std::span<const OperatorToCompose> operators, const CompositionRequest& request) {
  bool is_shared = true;
  for (const OperatorToCompose& op : operators) is_shared &= op.parts->is_shared;
  const std::string key = is_shared ? KeyOf(operators, request) : "";
  if (is_shared) {
    if (auto found = KeptPrograms().Find(key)) return found;
  }
  std::vector<RegionPart> parts;
  std::vector<int> operator_of;  // parts
  std::vector<std::shared_ptr<const OperatorParts>> made_of;
  for (const OperatorToCompose& op : operators) {
    made_of.push_back(op.parts);
    for (RegionPart part : op.parts->parts) {
      for (std::vector<int>* tensors : {&part.inputs, &part.outputs}) {
        for (int& tensor : *tensors) {
          tensor = IsRunValue(tensor) ? op.run_values + (tensor - kStepOfRun) : op.tensors[tensor];
        }
      }
      parts.push_back(std::move(part));
      operator_of.push_back(static_cast<int>(made_of.size()) - 1);
    }
  }
  auto result = ComposeRegions(parts, request);
  if (auto* obstacle = std::get_if<CompositionObstacle>(&result)) {
    obstacle->part = operator_of[obstacle->part];
    return std::move(*obstacle);
  }
  auto program =
      std::make_shared<const ComposedProgram>(std::move(std::get<ComposedRegion>(result)), std::move(made_of));
  if (is_shared) KeptPrograms().Keep(key, program);
  return program;
}

}  // namespace stepnet
