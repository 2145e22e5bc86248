// Numbers of arguments with more digits than a float has: nets that compute in double take what was written.
#pragma once

#include <optional>

namespace stepnet {

class Argument;

// The double that the shortest decimal of `value` stands for: 0.1 of 0.1f, which as a double is 0.100000001490116….
double AsWritten(float value);

// Sets the value of an argument: a float where it is `value`, otherwise a tensor of one double. Whoever needs a float
// reads it rounded.
void SetDouble(double value, Argument* argument);
// A float where its shortest decimal stands for `value`: what a text says, of which AsWritten makes the double again.
void SetWritten(double value, Argument* argument);

// The double of an argument that is a tensor of one.
std::optional<double> DoubleOf(const Argument& argument);

}  // namespace stepnet
