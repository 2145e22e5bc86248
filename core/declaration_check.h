// What can be wrong with a declaration by itself: names, numbers of operands, and what it says beside a formula.
#pragma once

#include <string>

#include "stepnet/core/operator.h"

namespace stepnet {

// What is wrong with the declaration, whatever its operators are given, and what to do; "": nothing.
// REQUIRES: the schema is as it was declared, without what follows from its formula.
std::string DeclarationProblem(const OperatorSchema& schema);

// The rule, which throws kInternal, naming the type, where it names operands that the operator does not have.
RowsRule CheckedRows(RowsRule rule);

}  // namespace stepnet
