#include "stepnet/nets/recurrent_spec.h"

#include <algorithm>
#include <utility>

#include "stepnet/core/index_of.h"
#include "stepnet/core/thread_pool.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

using Faults = std::vector<Error>;

void Refuse(const std::string& message, Faults* faults) { faults->emplace_back(ErrorCode::kInvalidArgument, message); }

// Models that a very old Caffe2 wrote hold their step nets as text.
std::shared_ptr<const NetDef> StepNet(const OperatorCall& op, const std::string& name, Faults* faults) {
  if (std::shared_ptr<const NetDef> net = op.Net(name)) return net;
  const auto found = op.arguments().find(name);
  if (found == op.arguments().end() || !found->second.s || found->second.s->empty()) return nullptr;
  auto net = std::make_shared<NetDef>();
  try {
    ParseMessageText(*found->second.s, StrCat(name, " of ", op.type()), net.get());
    return net;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInputOutput) throw;
    faults->push_back(error);
    return nullptr;
  }
}

std::vector<Link> ParseLinks(const OperatorCall& op, const std::string& prefix, Faults* faults) {
  const std::vector<std::string>& internal = op.Strings(prefix + "internal");
  const std::vector<std::string>& external = op.Strings(prefix + "external");
  const std::vector<std::int64_t>& offsets = op.Ints(prefix + "offset");
  const std::vector<std::int64_t>& windows = op.Ints(prefix + "window");
  if (internal.size() != external.size() || internal.size() != offsets.size()) {
    Refuse(StrCat(prefix, "internal has ", internal.size(), " entries, ", prefix, "external ", external.size(), " and ",
                  prefix, "offset ", offsets.size(), "; they belong together one by one"),
           faults);
    return {};
  }
  if (!windows.empty() && windows.size() != internal.size()) {
    Refuse(StrCat(prefix, "window has ", windows.size(), " entries for ", internal.size(), " links"), faults);
    return {};
  }
  std::vector<Link> links;
  links.reserve(internal.size());
  for (size_t i = 0; i < internal.size(); ++i) {
    const std::int64_t window = windows.empty() ? 1 : windows[i];
    links.push_back({.internal = internal[i], .external = external[i], .offset = offsets[i], .window = window});
    // Far beyond any sequence, and far from overflow when added to a number of steps.
    constexpr std::int64_t kFarthest = std::int64_t{1} << 40;
    if (offsets[i] < 0) {
      Refuse(StrCat(prefix, "offset of \"", internal[i], "\" is ", offsets[i], ", must be at least 0"), faults);
    } else if (window < 1) {
      Refuse(StrCat(prefix, "window of \"", internal[i], "\" is ", window, ", must be at least 1"), faults);
    } else if (offsets[i] > kFarthest || window > kFarthest) {
      Refuse(StrCat("the link of \"", internal[i], "\" has offset ", offsets[i], " and window ", window), faults);
    }
  }
  return links;
}

// The indices in a list of inputs or outputs. An int holds every index that there is; whether these are among them is
// checked where both operators are known.
std::vector<int> Indices(const OperatorCall& op, const std::string& name, const char* of, Faults* faults) {
  std::vector<int> indices;
  for (const std::int64_t index : op.Ints(name)) {
    const bool is_int = std::in_range<int>(index);
    if (!is_int) {
      Refuse(StrCat(name, " names ", of, " ", index, "; there are ",
                    std::string_view(of) == "input" ? op.inputs().size() : op.outputs().size()),
             faults);
    }
    indices.push_back(is_int ? static_cast<int>(index) : 0);  // in its place, so that no other entry moves
  }
  return indices;
}

void ParseStates(const OperatorCall& op, RecurrentSpec* spec, Faults* faults) {
  const std::vector<std::string>& names = op.Strings("recurrent_states");
  const std::vector<int> initial = Indices(op, "initial_recurrent_state_ids", "input", faults);
  if (names.size() != initial.size()) {
    Refuse(StrCat("recurrent_states has ", names.size(), " entries and initial_recurrent_state_ids ", initial.size(),
                  "; they belong together one by one"),
           faults);
  }
  for (size_t i = 0; i < names.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (names[k] == names[i]) Refuse(StrCat("recurrent_states names \"", names[i], "\" twice"), faults);
    }
    spec->states.push_back({.name = names[i], .initial = i < initial.size() ? initial[i] : 0});
  }
}

void ParseAliases(const OperatorCall& op, RecurrentSpec* spec, Faults* faults) {
  const std::vector<std::string>& sources = op.Strings("alias_src");
  const std::vector<std::string>& destinations = op.Strings("alias_dst");
  const std::vector<std::int64_t>& offsets = op.Ints("alias_offset");
  if (sources.size() != destinations.size() || sources.size() != offsets.size()) {
    Refuse(StrCat("alias_src has ", sources.size(), " entries, alias_dst ", destinations.size(), " and alias_offset ",
                  offsets.size(), "; they belong together one by one"),
           faults);
  }
  for (size_t i = 0; i < std::min({sources.size(), destinations.size(), offsets.size()}); ++i) {
    spec->aliases.push_back({.source = sources[i], .destination = destinations[i], .offset = offsets[i]});
  }
  const std::vector<std::string>& blobs = op.Strings("step_output_src");
  const std::vector<std::string>& outputs = op.Strings("step_output_dst");
  if (blobs.size() != outputs.size()) {
    Refuse(StrCat("step_output_src has ", blobs.size(), " entries and step_output_dst ", outputs.size()), faults);
  }
  for (size_t i = 0; i < std::min(blobs.size(), outputs.size()); ++i) {
    spec->step_outputs.push_back({.blob = blobs[i], .destination = outputs[i]});
  }
}

void ParseGradients(const OperatorCall& op, RecurrentSpec* spec, Faults* faults) {
  spec->params = Indices(op, "param", "input", faults);
  spec->param_grads = op.Strings("param_grads");
  if (!spec->param_grads.empty() && spec->param_grads.size() != spec->params.size()) {
    Refuse(StrCat("param has ", spec->params.size(), " entries and param_grads ", spec->param_grads.size()), faults);
  }
  spec->outputs_with_grads = Indices(op, "outputs_with_grads", "output", faults);
  spec->recompute = op.Strings("recompute_blobs_on_backward");
  for (const std::string& request : op.Strings("gradient_requests")) {
    try {
      spec->requests.push_back(ParseGradientRequest(request, "gradient_requests holds"));
    } catch (const Error& error) {
      Refuse(error.message(), faults);
    }
  }
  for (const auto& [name, value] : op.arguments()) {
    if (!name.ends_with(kRenameSuffix) || !value.s) continue;
    spec->renames[name.substr(0, name.size() - kRenameSuffix.size())] = *value.s;
  }
}

RunOptions OptionsOf(const OperatorCall& op) {
  RunOptions options = op.options();
  if (op.HasArg("enable_rnn_executor") && !op.Bool("enable_rnn_executor")) options.executor = "serial";
  if (options.threads == 0) {
    // At most kMaxThreads, as declared; below 0 as 0.
    options.threads = static_cast<int>(std::max<std::int64_t>(0, op.Int("rnn_executor.num_threads")));
  }
  return options;
}

// The spec, and what is wrong with it.
struct Parsed {
  RecurrentSpec spec;
  Faults faults;
};

std::shared_ptr<const void> Parse(const OperatorCall& op) {
  const auto parsed = std::make_shared<Parsed>();
  RecurrentSpec& spec = parsed->spec;
  Faults* const faults = &parsed->faults;
  spec.step_net = StepNet(op, "step_net", faults);
  if (spec.step_net == nullptr && faults->empty()) Refuse("step_net is empty; it holds the net of one step", faults);
  spec.backward_step_net = StepNet(op, "backward_step_net", faults);
  ParseStates(op, &spec, faults);
  spec.private_states = op.Bool("private_states");
  spec.links = ParseLinks(op, "link_", faults);
  spec.backward_links = ParseLinks(op, "backward_link_", faults);
  ParseAliases(op, &spec, faults);
  ParseGradients(op, &spec, faults);
  spec.timestep = op.String("timestep");
  spec.options = OptionsOf(op);
  spec.prints_schedules = op.Int("rnn_executor_debug") != 0 && !spec.options.quiet;
  spec.num_workspaces = static_cast<int>(op.Int("num_workspaces"));
  spec.max_streams = static_cast<int>(std::max<std::int64_t>(0, op.Int("rnn_executor.max_cuda_streams")));
  return parsed;
}

std::shared_ptr<const Parsed> ParsedOf(const OperatorCall& op) {
  return std::static_pointer_cast<const Parsed>(op.Parsed(Parse));
}

}  // namespace

const std::shared_ptr<const NetDef>& RecurrentSpec::BackwardStep() const {
  static const auto kEmpty = std::make_shared<const NetDef>();
  return backward_step_net != nullptr ? backward_step_net : kEmpty;
}

std::string RecurrentSpec::Renamed(const std::string& blob) const {
  const auto found = renames.find(blob);
  return found == renames.end() ? blob : found->second;
}

int RecurrentSpec::StateIndex(const std::string& name) const { return IndexOf(states, name, &RecurrentState::name); }

int RecurrentSpec::StepOutputIndex(const std::string& output) const {
  int index = static_cast<int>(step_outputs.size()) - 1;
  while (index >= 0 && step_outputs[index].destination != output) --index;
  return index;
}

std::string ProblemOfFirstInputLink(const Link& link) {
  if (link.offset == 0 && link.window == 1) return "";
  return StrCat("\"", link.internal, "\" is linked to \"", link.external, "\" with offset ", link.offset,
                " and window ", link.window,
                "; the first input has a row for each step and no more: offset 0 and window 1");
}

void ExpectGradientTaken(const RecurrentSpec& spec, const std::string& output) {
  if (spec.StepOutputIndex(output) < 0) return;
  const std::string gradient = spec.Renamed(output + "_grad");
  const auto takes_it = [&](const Link& link) { return spec.Renamed(link.external) == gradient; };
  if (std::ranges::any_of(spec.backward_links, takes_it)) return;
  throw Error(ErrorCode::kInvalidNet,
              StrCat("output \"", output, "\" is a blob of the step net, and no backward link names \"", output,
                     "_grad\": the backward step net would ignore its gradient"));
}

std::shared_ptr<const RecurrentSpec> RecurrentSpecOf(const OperatorCall& op) {
  const std::shared_ptr<const Parsed> parsed = ParsedOf(op);
  if (!parsed->faults.empty()) throw parsed->faults.front();
  return {parsed, &parsed->spec};
}

std::shared_ptr<const RecurrentSpec> RecurrentSpecOf(const OperatorCall& op, std::vector<Error>* faults) {
  const std::shared_ptr<const Parsed> parsed = ParsedOf(op);
  faults->insert(faults->end(), parsed->faults.begin(), parsed->faults.end());
  return {parsed, &parsed->spec};
}

std::string RenamedBy(const OperatorCall& op, const std::string& blob) {
  const auto found = op.arguments().find(StrCat(blob, kRenameSuffix));
  return found != op.arguments().end() && found->second.s ? *found->second.s : blob;
}

std::vector<ArgumentSpec> RecurrentArguments() {
  const auto list = [](const char* name, ArgumentType type, const char* doc) {
    const bool names_blobs = type == ArgumentType::kStrings && std::string_view(name) != "gradient_requests";
    return ArgumentSpec{.name = name, .type = type, .doc = doc, .names_blobs = names_blobs};
  };
  const auto number = [](const char* name, std::int64_t value, const char* doc, Constraint constraint) {
    return ArgumentSpec{.name = name,
                        .type = ArgumentType::kInt,
                        .default_value = {.i = value},
                        .doc = doc,
                        .constraint = std::move(constraint)};
  };
  using enum ArgumentType;
  return {
      {.name = "step_net", .type = kNet, .required = true, .doc = "the net of one step"},
      list("backward_step_net", kNet, "the net that computes one step's gradients; absent: forward only"),
      list("recurrent_states", kStrings, "names of the states, [T + L, B, …] each"),
      list("initial_recurrent_state_ids", kInts, "for each state the index of the input with its initial value"),
      {.name = "private_states",
       .type = kBool,
       .default_value = {.i = 0},
       .doc = "1: states are not readable under their names after a run, which then may keep but a few rows of them"},
      list("link_internal", kStrings, "blobs of the step net that are rows of a blob outside"),
      list("link_external", kStrings, "for each link the blob outside: a state or an input, [T + …, …]"),
      list("link_offset", kInts, "for each link the row that step 0 sees first"),
      list("link_window", kInts, "for each link the number of rows that a step sees; 1 when empty"),
      list("backward_link_internal", kStrings, "as link_internal, for gradients in the backward step net"),
      list("backward_link_external", kStrings,
           "for each backward link a state's or an input's gradient, \"<blob>_grad\""),
      list("backward_link_offset", kInts, "for each backward link the row that step 0 sees first"),
      list("backward_link_window", kInts, "for each backward link the number of rows; 1 when empty"),
      list("alias_src", kStrings, "states that become outputs"),
      list("alias_dst", kStrings, "for each alias the output"),
      list("alias_offset", kInts,
           "for each alias the first row; negative from the end: 1 gives all steps, -1 the last"),
      list("step_output_src", kStrings, "blobs of the step net that become outputs [T, …]"),
      list("step_output_dst", kStrings, "for each of these the output"),
      {.name = "timestep",
       .type = kString,
       .default_value = {.s = "timestep"},
       .doc = "blob of the step net that holds the number of the step, int32 [1]",
       .names_blobs = true},
      list("param", kInts, "indices of the inputs that get a gradient summed over the steps"),
      list("param_grads", kStrings, "for each param its gradient's name in the backward step net"),
      list("outputs_with_grads", kInts, "indices of the outputs that have a gradient"),
      list("recompute_blobs_on_backward", kStrings, "blobs that the backward step net computes again"),
      list("gradient_requests", kStrings, "for each output of the gradient operator: write, add or none"),
      {.name = "enable_rnn_executor",
       .type = kBool,
       .default_value = {.i = 0},
       .doc = "0, where it is given: on one thread, whatever the executor of the run"},
      number("rnn_executor.num_threads", 0,
             "threads, where the run does not say; at most 0: as many as are worth having", {.max = kMaxThreads}),
      number("rnn_executor.max_cuda_streams", 0, "streams of a GPU that stages run in; at most 0: as many as suit it",
             {.max = kMaxThreads}),
      number("rnn_executor_debug", 0, "1: prints schedules to standard error when they are made", {}),
      number("num_workspaces", 0, "steps of a loop that may be under way at once; 0: as many as suit the threads",
             Between(0, kMaxThreads)),
      {.name = "*.rename",
       .type = kString,
       .doc = "the name that Caffe2's memory optimiser gave to the gradient of this blob",
       .names_blobs = true},
  };
}

}  // namespace stepnet
