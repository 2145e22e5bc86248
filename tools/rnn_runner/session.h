// A net with its workspace, as the operand or --net, --init_net and the input flags say: what `run`, `bench` and
// `gradcheck` start from.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stepnet/nets/net.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tools/rnn_runner/cell_file.h"
#include "stepnet/tools/rnn_runner/command.h"

namespace stepnet::runner {

// --net, --init_net, inputs, executor, --weights.
std::vector<FlagUse> SessionFlags();

struct Session {
  NetDef def;
  std::unique_ptr<Workspace> workspace;  // parameters and inputs are in it
  std::vector<std::string> outputs;      // what the file calls outputs, otherwise what no operator reads
  std::vector<std::string> parameters;   // what the model, its init_net or --init_net gives
  std::vector<std::string> made_up;      // of a cell, what nobody gave: made up, or as the cell fills it
};

struct SessionUse {
  std::vector<std::string> also_read = {};  // inputs that somebody else takes care of
  MadeUpLengths lengths = MadeUpLengths::kWhole;
  bool draws = false;           // random numbers of its own
  bool becomes_double = false;  // what is float and what is double will both be double
  bool with_gradients = false;  // those that --loss asks for
};

// Throws UsageError where --seed is given, and neither these nets draw random numbers nor inputs are filled with such.
void RefuseIdleSeed(const std::vector<const NetDef*>& nets);

// Reads the nets, runs what fills parameters, feeds inputs; those of a cell that nobody gave are made up. Weights
// become what --weights says. Throws what reading and running throw, with the file; kInvalidArgument for inputs on the
// command line that the net does not read; UsageError for flags that would do nothing.
Session OpenSession(const RunOptions& options, const SessionUse& use = {});
// Does what OpenSession does, where no device needs to be there: what fills parameters runs on the CPU, whatever it
// says itself. With the gradients that --loss asks for.
Session OpenSessionOnHost(const RunOptions& options);

// Takes what a net says of devices away; seeds stay.
void PlaceOnHost(NetDef* net);

// Checks that no input is missing and creates the net. What it throws names the file.
std::unique_ptr<Net> CreateNet(const NetDef& def, Workspace& workspace, const RunOptions& options);

// Runs the net once, to its end. Returns the seconds that the host took: a device goes on behind it, and `is_given` is
// called when it has been given everything. What it throws names the file.
double RunNet(Net& net, const std::function<void()>& is_given = {});

}  // namespace stepnet::runner
