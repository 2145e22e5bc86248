// LoadedNet: a net from files and its parameters, ready to be called with arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "stepnet/nets/model.h"
#include "stepnet/nets/training_net.h"
#include "stepnet/proto/train.pb.h"
#include "stepnet/python/src/arrays.h"
#include "stepnet/python/src/program.h"

namespace stepnet::python {

// An argument of nets: parameters that are defaults of inputs of the file that a net was made of, as
// stepnet.onnx.convert writes it. They are trained where they are named alone.
inline constexpr const char* kDefaultsOfInputs = "defaults_of_inputs";

// How a net is trained.
struct Training {
  std::string loss;                     // a blob of the net, one element
  std::vector<std::string> parameters;  // what changes; none: all floating ones that the loss depends on
  OptimizerDef optimizer;
  ExactNumbers exact;  // of the optimizer, where parameters are double
};

// A net and what fills its parameters, with the files that they are from, which errors name; "" for none.
struct ModelOfFiles {
  Model model = {};
  std::string net_file = {};
  std::string init_file = {};
};

// What Python gives as a net: a text or, where that is "", what a file holds. A text may be made from a file, too,
// which errors name.
struct GivenNet {
  std::string text;
  std::string file;
};

// `init` is empty where the net needs none; `params` come beside it. Throws kInputOutput, and kInvalidArgument for a
// cell, and for a name in `params` that the net neither reads nor writes.
ModelOfFiles ReadModel(const GivenNet& net, const GivenNet& init, const std::map<std::string, Tensor>& params);

class LoadedNet {
 public:
  // Fills the parameters. Throws kInvalidNet with all problems of the net.
  LoadedNet(const ModelOfFiles& files, const RunOptions& options);
  // The net whose runs are iterations of `training`. Throws kInvalidArgument, too, for what makes no sense in it.
  LoadedNet(const ModelOfFiles& files, const RunOptions& options, const Training& training);

  const std::string& name() const { return name_; }
  const std::string& file() const { return file_; }
  std::string Described() const { return name_.empty() ? "the net" : "the net \"" + name_ + "\""; }
  const std::vector<std::string>& inputs() const { return inputs_; }
  const std::vector<std::string>& outputs() const { return outputs_; }
  const std::vector<std::string>& parameters() const { return parameters_; }
  // Names those that runs of a net that trains change; none of others.
  const std::vector<std::string>& trained() const { return trained_; }
  // What the optimizer hands on from one iteration to the next, beside the parameters.
  const std::vector<std::string>& state() const { return state_; }
  // Parameters, and what else was filled.
  const std::vector<std::string>& filled() const { return filled_; }
  // Where a call may find arrays.
  ArrayPlace place() const { return {.device = def_.options.device()}; }

  // One tensor for each input, by name. Throws kInvalidArgument for names that are missing or unknown. Needs the GIL.
  std::vector<Tensor> TakeInputs(const nanobind::dict& given) const;

  const std::shared_ptr<Program>& program() const { return program_; }
  // The program that gives gradients by these inputs and parameters, too; made once, for which it runs on `inputs`: the
  // dtypes of outputs are known behind a run.
  std::shared_ptr<Program> ProgramWithGradients(const std::vector<std::string>& names, const GradientRequests& requests,
                                                const std::vector<Tensor>& inputs);
  // All inputs and parameters that may have a gradient, or those of `names`. Throws kInvalidArgument for others.
  std::vector<std::string> Differentiable(const std::vector<std::string>& names,
                                          const std::vector<Tensor>& inputs) const;

  // Sets parameters and state; with the number of iterations random numbers are those of the ones that follow. Throws
  // kInvalidArgument for names that neither has, kTypeMismatch and kShapeMismatch for other tensors than those that are
  // there; nothing has changed then. Needs the GIL.
  void Restore(const nanobind::dict& tensors);

  // What another net is made of that goes on as this one does: the net as it was given, which of a net that trains is
  // the one that computes the loss, with the outputs of calls; the tensors that it keeps; and how many runs there were.
  // KeptTensors throws kInvalidArgument where it keeps something else.
  NetDef GivenNetDef() const;
  std::map<std::string, Tensor> KeptTensors(std::uint64_t* num_runs) const;
  // The next run draws what it would behind `num_runs`.
  void SetNumRuns(std::uint64_t num_runs) { *def_.num_runs = num_runs; }

  const ProgramDef& def() const { return def_; }

 private:
  void Load(const ModelOfFiles& files, const RunOptions& options);
  void Train(const NetDef& net, const RunOptions& options, const Training& training);

  std::string name_;
  std::string file_;
  std::vector<std::string> inputs_;
  std::vector<std::string> outputs_;
  std::vector<std::string> parameters_;
  std::vector<std::string> trained_;
  std::vector<std::string> state_;
  std::string iteration_;  // of the state; "" without training
  std::vector<std::string> filled_;
  NetDef loss_net_;  // of a net that trains; empty otherwise
  ProgramDef def_;
  std::shared_ptr<Program> program_;
  std::mutex mutex_;
  std::map<std::pair<std::vector<std::string>, GradientRequests>, std::shared_ptr<Program>> with_gradients_;
};

}  // namespace stepnet::python
