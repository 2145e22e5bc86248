// What an operator computes, as a line that people read.
#pragma once

#include <string>
#include <vector>

#include "stepnet/core/operator.h"

namespace stepnet {

// "a = exp(x); y = a / (1 + a)" of the formula, "" where there is none, or where it depends on more than an operator of
// default arguments. Arguments that are numbers stand there by name (arg_NAME where an input or a function has it),
// unless the formula depends on them otherwise than by arithmetic; then they have their default values, required ones
// one that is found, which are said before: "with to = \"int32\": y = int32(x)". So are inputs of another dtype than
// float, "of int32 lengths: …", and how many dimensions they have where the formula is another one for more of them,
// "of 2 dimensions: …". Sizes are row_size, num_rows and num_elements, their product, of what is computed over (with
// "the_" in front where an operand or argument has the name), or size1, size2, …, of which the text says that they
// follow from the shapes. What is summed over rows is sum_over_rows(…); require(condition, message) is what the formula
// checks; an input that is read in several ways is x and x_of_row, x_of_column, x_0_of_2 and the like.
std::string FormulaText(const OperatorSchema& schema);

// What the formula is with other values of an argument, or without optional inputs, where that is another text: "with
// drop_states = true: h = …", "with exponent = 2: y = x * x", "without seq_lengths: h = …"; and what it checks of whole
// numbers alone: "of whole numbers: require(…); c = a / b". Of numbers some that are often special are tried.
std::vector<std::string> FormulaVariants(const OperatorSchema& schema);

// What the formula of a gradient operator does not say of an operator that repeats its inputs: "db is summed over what
// b is repeated over", or "". `schema` may be the gradient operator itself, where nothing else is known.
std::string RepeatedGradientsText(const OperatorSchema& schema, const OperatorSchema& gradient);

}  // namespace stepnet
