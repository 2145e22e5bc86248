// What is damaged, and the damaged: nets with what they read, cells, expressions, training configs, files of tensors.
// Everything follows from a seed.
#pragma once

#include <random>
#include <string>

#include "stepnet/io/tensor_io.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

struct NetSubject {
  NetDef net;
  NamedTensors feeds;
};

// A net that was whole: a small one that Caffe2 ran, a cell of examples/cells over a short sequence, or a random step
// net, with or without gradients.
NetSubject AnyNet(std::mt19937& random);

// One of those, and what it reads, with a few parts damaged.
NetSubject DamagedNet(std::mt19937& random);
// The gradients that are made for a damaged net. Throws Error where none can be made.
NetSubject GradientsOfDamagedNet(std::mt19937& random);

// The text of a cell of examples/cells, or of its message, damaged.
std::string DamagedCell(std::mt19937& random);

// The text of random expressions, damaged, or one that is hard on parsers and printers: deep, long or wide.
std::string DamagedExprs(std::mt19937& random);

// The text of a graph of a step of any net, behind any pass, damaged.
std::string DamagedGraph(std::mt19937& random);

// A config whose text is in the file "text" and whose cell is in "elman.cell", both of which are small.
std::string TrainingConfig();
std::string TrainingText();
std::string TrainingCell();
std::string DamagedConfig(std::mt19937& random);

// A tensor as .npy, TensorProtos, minidb, safetensors or .npz, damaged: its parts, its header or its bytes.
std::string DamagedTensorFile(std::mt19937& random);

}  // namespace stepnet
