#include "layers.h"

#include <gtest/gtest.h>

#include "recurrent_case.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/op_builder.h"

namespace stepnet {

NetDef Layers(int layers, bool training) {
  NetDef step;
  step.set_name("layers");
  std::vector<std::string> inputs = {"x"};
  std::vector<std::string> states, internal = {"x_t"}, external = {"x"}, outputs, parameters;
  std::vector<std::int64_t> initial, offsets = {0};
  for (int l = 0; l < layers; ++l) {
    const auto name = [&](const char* blob) { return StrCat("l", l, "_", blob); };
    const std::string below = l == 0 ? "x_t" : StrCat("l", l - 1, "_h");
    AddOp(&step, "FC", {below, name("w")}, {"shared"}).Int("axis", 2);
    AddOp(&step, "FC", {name("prev"), name("u")}, {name("past")}).Int("axis", 2);
    AddOp(&step, "Sum", {name("past"), "shared"}, {name("past")});
    AddOp(&step, "Tanh", {name("past")}, {name("h")});
    initial.push_back(static_cast<std::int64_t>(inputs.size()));
    inputs.push_back(name("init"));
    states.push_back(name("states"));
    outputs.push_back(name("all"));
    internal.insert(internal.end(), {name("prev"), name("h")});
    external.insert(external.end(), {name("states"), name("states")});
    offsets.insert(offsets.end(), {0, 1});
    parameters.insert(parameters.end(), {name("w"), name("u")});
  }
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  const std::vector<std::string> all = outputs;
  outputs.emplace_back("record");
  NetDef net;
  AddOp(&net, "RecurrentNetwork", inputs, outputs)
      .Net("step_net", step)
      .Strings("recurrent_states", states)
      .Ints("initial_recurrent_state_ids", initial)
      .Strings("link_internal", internal)
      .Strings("link_external", external)
      .Ints("link_offset", offsets)
      .Strings("alias_src", states)
      .Strings("alias_dst", all)
      .Ints("alias_offset", std::vector<std::int64_t>(states.size(), 1));
  if (!training) return net;
  AddBackwardStepNets(&net);
  parameters.emplace_back("x");
  return AddGradients(net, {all.back(), all.front()}, parameters).net;
}

void FeedLayers(int layers, std::int64_t steps, unsigned seed, Workspace& workspace) {
  constexpr std::int64_t kHidden = 12;  // with such a batch, large enough for products to leave the loop
  const std::int64_t batch = 3;
  workspace.SetTensor("x", Random({steps, batch, kHidden}, seed));
  for (int l = 0; l < layers; ++l) {
    const unsigned s = seed + 10 * static_cast<unsigned>(l);
    workspace.SetTensor(StrCat("l", l, "_w"), Random({kHidden, kHidden}, s + 1));
    workspace.SetTensor(StrCat("l", l, "_u"), Random({kHidden, kHidden}, s + 2));
    workspace.SetTensor(StrCat("l", l, "_init"), Random({batch, kHidden}, s + 3));
  }
}

void ExpectSameBlobs(const Workspace& a, const Workspace& b, const std::string& what) {
  ASSERT_EQ(a.LocalBlobs(), b.LocalBlobs()) << what;
  for (const std::string& name : a.LocalBlobs()) {
    const Blob* other = b.FindBlob(name);
    ASSERT_EQ(a.FindBlob(name)->HasTensor(), other->HasTensor()) << name;
    if (other->HasTensor()) ExpectSame(a.GetTensor(name), other->GetTensor(), what + ": " + name);
  }
}

}  // namespace stepnet
