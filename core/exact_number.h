// Numbers of arguments with more digits than a float has: nets that compute in double take what was written.
#pragma once

#include <optional>
#include <string>
#include <vector>

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

// The same of lists: floats where all numbers are, otherwise a tensor [n] of doubles. ParseArgument gives such a tensor
// as decimals among `strings`, since lists of numbers are floats there.
void SetDoubles(const std::vector<double>& values, Argument* argument);
void SetWritten(const std::vector<double>& values, Argument* argument);
// The doubles of an argument that is a tensor [n]; none where it is something else.
std::vector<double> DoublesOf(const Argument& argument);
// The number that a decimal stands for.
std::optional<double> NumberOfDecimal(const std::string& text);

}  // namespace stepnet
