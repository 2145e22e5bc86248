// Checks that shape rules and gradient rules share. Their messages name the operator and its blobs.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "stepnet/core/operator.h"

namespace stepnet {

// "x is float [32, 64]": input i by the name of its blob.
std::string InputText(const ShapeQuery& query, int i);

// What shape rules throw: "FC needs x [M, K]; x is float [3] and w is float [4]", of these inputs.
Error WrongInputs(const ShapeQuery& query, std::initializer_list<int> shown, const std::string& what,
                  ErrorCode code = ErrorCode::kShapeMismatch);

// Throws kTypeMismatch, with all that the operator takes, unless input i is one of `dtypes`, or in 16 bits where these
// hold float and a formula runs (RunsFormulaOfStored).
void ExpectType(const ShapeQuery& query, int i, const std::vector<DType>& dtypes);
// ExpectType of float and double.
void ExpectFloat(const ShapeQuery& query, int i);
// Throws kTypeMismatch unless all inputs are of one type that ExpectFloat lets pass; of floats, weights may be bfloat16
// where the kernel of the device says so (Kernel::bfloat16_weights).
void ExpectFloats(const ShapeQuery& query);
// Throws kTypeMismatch unless inputs i and j are of one type.
void ExpectSameType(const ShapeQuery& query, int i, int j);
// Throws kShapeMismatch unless inputs i and j are of one shape.
void ExpectSameShape(const ShapeQuery& query, int i, int j);
// Throws kTypeMismatch or kShapeMismatch unless input j is of the type and shape of input i.
void ExpectAlike(const ShapeQuery& query, int i, int j);

// Throws kShapeMismatch unless input i, which is `what`, has one element.
void ExpectOneElement(const ShapeQuery& query, int i, const char* what);

// A check that reports what `rule` throws: for rules of the operator alone, which shape rules and kernels ask too.
std::function<void(const OperatorCall&, std::vector<NetProblem>*)> CheckBy(
    std::function<void(const OperatorCall&)> rule);

// Gradient rules that read the operator's inputs call it: throws kInvalidNet when its output overwrites one.
void ExpectInputsKept(const GradientBuilder& g);

}  // namespace stepnet
