// Layers: recurrent layers on top of each other in one step net, with a temporary that all of them write.
#pragma once

#include <string>

#include "stepnet/core/workspace.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

// Layers of h = tanh(w·below + u·h_prev). Inputs x and, of layer l, l<l>_w, l<l>_u, l<l>_init; outputs l<l>_all. With
// `training` also the gradients of the sum of the first and the last layer's outputs.
NetDef Layers(int layers, bool training);

// Random inputs of a net of `layers` layers, in double.
void FeedLayers(int layers, std::int64_t steps, unsigned seed, Workspace& workspace);

// The same blobs in both, with the same tensors, bit for bit.
void ExpectSameBlobs(const Workspace& a, const Workspace& b, const std::string& what);

}  // namespace stepnet
