// Gradients declared by the names of formals (`Operator::Gradient("EluGradient", {"y", "dy"}, {"dx"})`), and what can
// be wrong with how an operator and its gradient operator are declared.
//
// Both are registered on their own, maybe in different libraries, so nothing but a comparison finds out that they do
// not fit: operators bound to the wrong inputs, and defaults that differ, compute wrong gradients without a word.
#pragma once

#include <string>

#include "stepnet/core/operator.h"

namespace stepnet {

// Throws kInvalidNet, for gradient rules that read the input, when an output of the operator overwrites it.
void ExpectInputKept(const OperatorCall& op, int input);

// Whether the gradient of a type may read that of output number `output` of an operator: those that are declared by
// names do where they name it.
bool MayReadGradientOf(const OperatorSchema& schema, int output);

// The gradient operator that the type `forward` names (Operator::Gradient), as far as it follows from that: inputs,
// outputs, arguments and their check, what may be in place and, where they are known, shapes, as
// Operator::DerivedGradient has them; inputs behind those of `forward` must be like the outputs of it that they are, or
// are gradients of. `doc` is for people. What it computes is for the caller to say, and what else
// differs:
//   const Registration softsign_gradient =
//       GradientOf("Softsign", "dx = dy / (1 + |x|)^2.").Formula([](Formula& f) { … });
// The registration of `forward` stands before this one in the same file; otherwise each use of the gradient operator is
// an error that says so.
Operator GradientOf(const std::string& forward, std::string doc);

// The gradient operator of a type that declares it by Operator::DerivedGradient.
Operator DerivedGradientOf(const OperatorSchema& forward);

// The gradient rule of types that declare one by names. Throws kInvalidNet where a gradient arrives at an output that
// the names leave out, and where the formula of the gradient operator would take an optional operand for another one.
void AddDeclaredGradient(GradientBuilder& g);

// An input or output of `made` whose name in its own declaration says another blob of the forward operator than the one
// that it is bound to, or "": input "y" of EluGradient is given x. `made` names blobs as a declaration does, "x" or
// "dx"; what it calls otherwise is not compared. Nothing is said of types that were not written as gradients, none of
// whose outputs is named "d" and an input of `forward`: "x" of Squeeze may well be a dy.
std::string GradientBindingProblem(const OperatorSchema& forward, const GradientOp& made);

// An argument that `made` takes over from `forward` and for which the two declare different defaults, or "". A net that
// leaves it out would be differentiated with another value than it was run with.
std::string GradientDefaultProblem(const OperatorSchema& forward, const GradientOp& made);

// What is wrong with an operator that the gradient of `forward` is made of, or "": its type is not registered, or
// wrongly, or its defaults are others.
std::string GradientOpProblem(const OperatorSchema& forward, const GradientOp& made);

// What is wrong with the gradient that `schema` declares by names, or "": a name that it does not have, or any of the
// above. To be asked when all types are registered.
std::string DeclaredGradientProblem(const OperatorSchema& schema);

}  // namespace stepnet
