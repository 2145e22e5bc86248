// A recurrent net with one state, for benchmarks of steps of many sizes.
#pragma once

#include <string>
#include <vector>

#include "stepnet/nets/op_builder.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

// Runs `step`, which makes h of x_t and h_prev, over the rows of x, from h0; the rows of h are h_all. The step may read
// `captured` blobs, too.
inline NetDef OneStateNet(const NetDef& step, const std::vector<std::string>& captured = {}) {
  std::vector<std::string> inputs = {"x", "h0"};
  inputs.insert(inputs.end(), captured.begin(), captured.end());
  NetDef net;
  AddOp(&net, "RecurrentNetwork", inputs, {"h_all", "record"})
      .Net("step_net", step)
      .Strings("recurrent_states", {"h_states"})
      .Ints("initial_recurrent_state_ids", {1})
      .Strings("link_internal", {"x_t", "h_prev", "h"})
      .Strings("link_external", {"x", "h_states", "h_states"})
      .Ints("link_offset", {0, 0, 1})
      .Strings("alias_src", {"h_states"})
      .Strings("alias_dst", {"h_all"})
      .Ints("alias_offset", {1});
  return net;
}

}  // namespace stepnet
