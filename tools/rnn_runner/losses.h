// What a net's gradients are gradients of.
#pragma once

#include <string>
#include <vector>

#include "stepnet/core/workspace.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet::runner {

// One term of the loss: the sum over the elements of `blob`, each times `factor` or, where `weights` is not empty,
// times the element of the blob `weights`.
struct Loss {
  std::string blob;
  double factor = 1;
  std::string weights = {};
  std::string gradient = {};  // the blob that holds its gradient, where the net has one
};

bool HasGradients(const NetDef& net);

// The terms that the gradient operators of `net` start from: blobs whose gradient is a constant that is no gradient
// operator's, or comes from outside the net.
std::vector<Loss> SeededLosses(const NetDef& net);

// The net without its gradient operators and whatever depends on them; recurrent operators without their backward step
// nets.
NetDef WithoutGradients(const NetDef& net);

// "BLOB" or "BLOB:WEIGHTS", separated by commas.
std::vector<Loss> ParseLosses(const std::string& text);

// The operators on which the blobs depend, in order.
NetDef Needed(const NetDef& net, const std::vector<Loss>& losses);

// The sum of all terms. Throws kTypeMismatch for blobs that hold no double, kShapeMismatch for weights of another size.
double LossValue(const std::vector<Loss>& losses, const Workspace& workspace);

}  // namespace stepnet::runner
