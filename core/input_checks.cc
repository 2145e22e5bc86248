#include "stepnet/core/input_checks.h"

#include <algorithm>
#include <utility>

#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/formulas/formula_kernel.h"

namespace stepnet {

std::string InputText(const ShapeQuery& query, int i) {
  return StrCat(query.op().inputs()[i], " is ", query.In(i).Description());
}

Error WrongInputs(const ShapeQuery& query, std::initializer_list<int> shown, const std::string& what, ErrorCode code) {
  std::string message = StrCat(query.op().type(), " ", what);
  const int* const last = shown.end() - 1;
  for (const int* i = shown.begin(); i <= last; ++i) {
    message += StrCat(i == shown.begin() ? "; " : i == last ? " and " : ", ", InputText(query, *i));
  }
  return {code, message};
}

void ExpectType(const ShapeQuery& query, int i, const std::vector<DType>& dtypes) {
  const auto is_declared = [&](DType dtype) { return std::ranges::count(dtypes, dtype) > 0; };
  const auto takes = [&](DType dtype) {
    if (is_declared(dtype)) return true;
    return IsStoredFloat(dtype) && is_declared(ComputedIn(dtype)) &&
           RunsFormulaOfStored(query, i == 0 ? dtype : query.In(0).dtype);
  };
  if (takes(query.In(i).dtype)) return;
  std::vector<DType> taken = dtypes;
  for (const DType stored : {DType::kFloat16, DType::kBFloat16}) {
    if (!is_declared(stored) && takes(stored)) taken.push_back(stored);
  }
  std::ranges::sort(taken);
  std::string names;
  for (size_t k = 0; k < taken.size(); ++k) {
    names += StrCat(k == 0 ? "" : k + 1 == taken.size() ? " and " : ", ", taken[k]);
  }
  throw WrongInputs(query, {i}, StrCat("works on ", names), ErrorCode::kTypeMismatch);
}

void ExpectFloat(const ShapeQuery& query, int i) { ExpectType(query, i, {DType::kFloat, DType::kDouble}); }

namespace {

bool TakesBFloat16(const ShapeQuery& query, int i, DeviceKind device) {
  const Kernel* kernel = query.op().schema().FindKernel(device);
  return kernel != nullptr && std::ranges::count(kernel->bfloat16_weights, i) > 0;
}

// Whether input i is weights in bfloat16 that the device of the run computes with. Throws where only others do.
bool IsBFloat16Weights(const ShapeQuery& query, int i) {
  if (query.In(i).dtype != DType::kBFloat16 || query.In(0).dtype != DType::kFloat) return false;
  const Device device = query.op().options().device();
  if (TakesBFloat16(query, i, device.kind)) return true;
  if (!TakesBFloat16(query, i, DeviceKind::kCpu)) return false;
  throw WrongInputs(query, {i},
                    StrCat("takes weights in bfloat16 on the CPU alone, and ", device, " is another device"),
                    ErrorCode::kTypeMismatch);
}

}  // namespace

void ExpectFloats(const ShapeQuery& query) {
  ExpectFloat(query, 0);
  for (int i = 1; i < query.num_inputs(); ++i) {
    if (!IsBFloat16Weights(query, i)) ExpectSameType(query, 0, i);
  }
}

void ExpectSameType(const ShapeQuery& query, int i, int j) {
  if (query.In(i).dtype == query.In(j).dtype) return;
  throw WrongInputs(query, {i, j}, "needs inputs of one type", ErrorCode::kTypeMismatch);
}

void ExpectSameShape(const ShapeQuery& query, int i, int j) {
  if (query.In(i).shape == query.In(j).shape) return;
  throw WrongInputs(query, {i, j}, "needs inputs of one shape");
}

void ExpectAlike(const ShapeQuery& query, int i, int j) {
  ExpectSameType(query, i, j);
  ExpectSameShape(query, i, j);
}

void ExpectOneElement(const ShapeQuery& query, int i, const char* what) {
  if (query.In(i).shape.size() == 1) return;
  throw WrongInputs(query, {i}, StrCat("needs ", what, " of one element"));
}

std::function<void(const OperatorCall&, std::vector<NetProblem>*)> CheckBy(
    std::function<void(const OperatorCall&)> rule) {
  return [rule = std::move(rule)](const OperatorCall& op, std::vector<NetProblem>* problems) {
    try {
      rule(op);
    } catch (const Error& error) {
      problems->push_back({.message = error.message()});
    }
  };
}

void ExpectInputsKept(const GradientBuilder& g) {
  for (int i = 0; i < g.op().num_inputs(); ++i) ExpectInputKept(g.op(), i);
}

}  // namespace stepnet
