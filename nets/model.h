// Model: what a model file gives: a net, the net that fills its parameters, and parameters kept beside it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/core/tensor.h"
#include "stepnet/core/workspace.h"
#include "stepnet/io/named_tensors.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

class MetaNetDef;

struct Model {
  NetDef init_net;  // to be run once, before the net; without operators when there is none
  NetDef net;
  std::map<std::string, Tensor> parameters;  // to be put into the workspace before either net runs
  std::vector<std::string> inputs;           // blobs that the user feeds
  std::vector<std::string> outputs;          // blobs that the model gives

  // Puts the parameters into `workspace`, which shares their memory, and runs init_net there.
  void Initialize(Workspace& workspace, const RunOptions& options = {}) const;
};

// `net_path` is a NetDef, a MetaNetDef, or a minidb with the MetaNetDef and the parameters (Caffe2's
// predictor_exporter); NetDef and MetaNetDef as binary or text. `init_path`, where not "", is a NetDef that fills
// parameters (init_net.pb), or a file of tensors (tensor_io.h: safetensors, .npz, TensorProtos, minidb) that are the
// parameters. What it gives is so, also where a model has or fills it itself.
// Throws kInputOutput, and kInvalidNet for a bundle without the net that predicts.
Model LoadModel(const std::string& net_path, const std::string& init_path = "");
// Does what LoadModel does, with what LoadParameters gave.
Model LoadModel(const std::string& net_path, Model parameters);

// The init_net and the parameters that `path` gives, as `init_path` above, without a net; of a file of tensors those
// that are wanted. Throws kInputOutput.
Model LoadParameters(const std::string& path, const NameFilter& wanted = {});

// Whether the file is a checkpoint of training.
bool IsCheckpoint(const std::string& path);

// The tensors that `path` gives as parameters: those of a file of tensors, of a model that has them beside its net, or
// what a net fills, which is run once (NamesGivenBy). A checkpoint of training gives those of the net that was
// trained, with its states, and none of its optimizer's. Throws kInputOutput, kInvalidArgument for a net that reads
// what nothing fills, and what running it throws.
NamedTensors ReadParameterTensors(const std::string& path, const NameFilter& wanted = {},
                                  const RunOptions& options = {});

// What Initialize puts into a workspace for others: the parameters, and what init_net lists as its outputs or, where it
// lists none, writes and does not read.
std::vector<std::string> NamesGivenBy(const Model& model);

// The parameters alone, which files of tensors hold as they are.
std::vector<std::string> HeldBy(const Model& model);

// The blobs that Initialize fills: the parameters, and what init_net writes.
std::vector<std::string> FilledBy(const Model& model);

// Promises that nobody writes to the tensors of `blobs` any more (Tensor::SetConstant), as whoever serves a model may
// of its parameters; nor to what a net gives that follows from them alone (Net::Run). Leaves out what `net` writes,
// what shares memory with that, and blobs without tensors.
void SetConstant(const std::vector<std::string>& blobs, const NetDef& net, const Workspace& workspace);

// Whether a minidb holds a blob. Throws kInputOutput.
bool HoldsBlob(const std::string& path, const std::string& blob);
// Whether a minidb holds a net beside its blobs. Throws kInputOutput.
bool HoldsBundle(const std::string& path);
// The bundle in a minidb model. Throws kInputOutput when there is none.
MetaNetDef ReadBundle(const std::string& path);

}  // namespace stepnet
