// Where the weights and biases of recurrent layers lie in the one vector in which MXNet's operator RNN and cuDNN keep
// them: the layout that the operator RNN, `rnn_runner convert --packed` and stepnet.packed of Python have in common.
//
// First come all weights, by layer, then by direction (forward, reverse): i2h [G*H, D], h2h [G*H, R] and, with a
// projection, h2r [P, H], each row by row; then in the same order all biases, i2h [G*H] and h2h [G*H]. D is the size of
// what a layer reads, R that of h: P, or H. Rows hold gates, i, f, g, o (lstm) or r, z, n (gru). cuDNN 9.19 gives the
// same offsets (tests/golden_mxnet/README.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stepnet/core/shape.h"

namespace stepnet {

// Sizes are at least 1, but for an input, which may be empty, and a projection, which is 0 where there is none.
struct PackedLayers {
  std::string mode;  // one of PackedModes()
  std::int64_t layers = 1;
  std::int64_t input = 0;  // D of the first layer
  std::int64_t state = 1;  // H
  std::int64_t projection = 0;
  bool bidirectional = false;
  bool has_biases = true;

  std::int64_t directions() const { return bidirectional ? 2 : 1; }
  std::int64_t gates() const;                                                  // G
  std::int64_t output() const { return projection > 0 ? projection : state; }  // R, of one direction
};

const std::vector<std::string>& PackedModes();

// A matrix or bias in the vector.
struct PackedPart {
  Shape shape;
  std::int64_t offset = 0;  // elements
};

struct PackedLayout {
  // They come by layer, then by direction: i2h, h2h, h2r where there is one, and the biases of the first two where
  // there are some.
  std::vector<PackedPart> parts;
  std::int64_t size = 0;  // of the vector
};

// Throws kShapeMismatch where there would be more than 2^63 elements.
PackedLayout LayoutOf(const PackedLayers& layers);

// What the parameters of a cell of such layers are called that stepnet.layers of Python makes, in the order of the
// layout's parts: weight_ih, weight_hh, weight_hr, bias_ih, bias_hh, behind the places of one of several layers and of
// the reverse direction, as layer1/reverse/weight_ih.
std::vector<std::string> NamesOf(const PackedLayers& layers);

}  // namespace stepnet
