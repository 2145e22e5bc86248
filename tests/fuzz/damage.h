// Damage that leaves things well formed, so that it reaches checks and kernels more often than damaged bytes do.
// Everything is a function of the state of `random`.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "stepnet/io/tensor_io.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

// Below n, which is above 0.
int Below(int n, std::mt19937& random);
// A number near another one, or one that arithmetic goes wrong with: 0, -1, 2^31, 2^32 + 1, 2^63 - 1, …
std::int64_t DamagedInteger(std::int64_t number, std::mt19937& random);
// Gives what DamagedInteger does, also infinite or no number.
double DamagedNumber(double number, std::mt19937& random);
// One character is lost, doubled or another; rarely something follows that shells, paths or terminals would obey.
std::string Misspelt(std::string name, std::mt19937& random);

// Changes one thing in the net or in a net within it: a name becomes another that the net uses or is misspelt, in one
// place or everywhere; a number becomes another one; an operator gets another type or argument; operators, links,
// states and other entries of lists that belong together are lost, doubled, added or put in another order.
void Damage(NetDef* net, std::mt19937& random);

// Changes one thing in any message: a field is set, cleared, doubled, or gets another value. Required fields stay.
void DamageMessage(google::protobuf::Message* message, std::mt19937& random);

// Changes one tensor: its dtype, shape or elements; or loses it. No tensors stay as they are.
void Damage(NamedTensors* tensors, std::mt19937& random);

// Changes a few tokens of a text: names, numbers, signs.
std::string DamagedText(const std::string& text, std::mt19937& random);

// Flips bits, cuts off, overwrites or doubles a part.
std::string DamagedBytes(std::string bytes, std::mt19937& random);

}  // namespace stepnet
