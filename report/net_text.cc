#include "stepnet/report/net_text.h"

#include <algorithm>
#include <optional>
#include <set>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/device.h"
#include "stepnet/core/error.h"
#include "stepnet/core/exact_number.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/nets/placement.h"
#include "stepnet/report/text.h"

namespace stepnet {
namespace {

constexpr int kDeepest = 100;  // nets within nets; text within text could go on for ever

template <typename Names>
std::string NameList(const Names& names) {
  std::vector<std::string> items;
  for (const std::string& name : names) items.push_back(NameText(name));
  return Join(items, ", ");
}

// The first few of many.
template <typename Items, typename Fn>
std::string Listed(const Items& items, Fn text) {
  constexpr int kShown = 16;
  std::vector<std::string> shown;
  for (int i = 0; i < items.size() && i < kShown; ++i) shown.push_back(text(items[i]));
  if (items.size() > kShown) shown.push_back(StrCat("… ", items.size(), " in all"));
  return StrCat("[", Join(shown, ", "), "]");
}

std::string StringText(const std::string& text) {
  constexpr size_t kShown = 80;
  if (text.size() <= kShown) return Quoted(text);
  const std::string shown = Shortened(text, kShown);
  return Quoted(shown.substr(0, shown.size() - std::string_view("…").size())) + "…";
}

// "device: cuda:0"; "" of the CPU. What is no device here has the number that the file gives it.
std::string DeviceText(const DeviceOption& option) {
  if (option.device_type() == kCpuType) return "";
  if (option.device_type() != kCudaType) return StrCat("device type: ", option.device_type());
  return StrCat("device: ", DeviceKindName(DeviceKind::kCuda), ":", option.cuda_gpu_id());
}

// What Caffe2's Python layer writes to every operator for back ends that are not ours.
bool IsHint(const std::string& argument) {
  return argument == "order" || argument == "use_cudnn" || argument == "cudnn_exhaustive_search";
}

// The arguments by which RecurrentNetwork says what its step net is connected to: parallel lists that mean little when
// they are read one by one.
class Connections {
 public:
  explicit Connections(const OperatorDef& op) : op_(op) {
    if (op.type() != "RecurrentNetwork" && op.type() != "RecurrentNetworkGradient") return;
    AddStates();
    AddLinks("links", "link_internal", "link_external", "link_offset", "link_window");
    AddLinks("backward links", "backward_link_internal", "backward_link_external", "backward_link_offset", "");
    AddAliases();
    AddStepOutputs();
    AddParameters();
  }

  // Blocks of lines, with their titles.
  const std::vector<std::pair<std::string, std::vector<std::string>>>& blocks() const { return blocks_; }
  bool Shows(const std::string& argument) const { return shown_.contains(argument); }

 private:
  std::vector<std::string> Strings(const std::string& name) const {
    const Argument* argument = FindArgument(op_, name);
    if (argument == nullptr) return {};
    return {argument->strings().begin(), argument->strings().end()};
  }
  std::vector<std::int64_t> Ints(const std::string& name) const {
    const Argument* argument = FindArgument(op_, name);
    if (argument == nullptr) return {};
    return {argument->ints().begin(), argument->ints().end()};
  }
  // The gradient operator lists gradients of outputs before the inputs of the forward operator.
  std::string Input(std::int64_t i) const {
    if (op_.type() == "RecurrentNetworkGradient") i += static_cast<std::int64_t>(Ints("outputs_with_grads").size());
    return i >= 0 && i < op_.input_size() ? NameText(op_.input(static_cast<int>(i))) : StrCat("input ", i);
  }
  // Nothing is shown of lists of different lengths: the arguments then appear as they are.
  void Add(const std::string& title, std::vector<std::string> lines, const std::vector<std::string>& arguments) {
    if (!lines.empty()) blocks_.emplace_back(title, std::move(lines));
    shown_.insert(arguments.begin(), arguments.end());
  }

  void AddStates() {
    const std::vector<std::string> states = Strings("recurrent_states");
    const std::vector<std::int64_t> ids = Ints("initial_recurrent_state_ids");
    if (states.size() != ids.size()) return;
    std::vector<std::string> lines;
    for (size_t i = 0; i < states.size(); ++i) lines.push_back(NameText(states[i]) + " starts as " + Input(ids[i]));
    const Argument* const are_private = FindArgument(op_, "private_states");
    const char* const title = are_private != nullptr && are_private->i() != 0 ? "private states" : "states";
    Add(title, std::move(lines), {"recurrent_states", "initial_recurrent_state_ids", "private_states"});
  }

  void AddLinks(const std::string& title, const std::string& internal, const std::string& external,
                const std::string& offset, const std::string& window) {
    const std::vector<std::string> inside = Strings(internal);
    const std::vector<std::string> outside = Strings(external);
    const std::vector<std::int64_t> offsets = Ints(offset);
    std::vector<std::int64_t> windows = Ints(window);
    if (windows.empty()) windows.assign(inside.size(), 1);
    if (inside.size() != outside.size() || inside.size() != offsets.size() || inside.size() != windows.size()) return;
    std::vector<std::string> lines;
    for (size_t i = 0; i < inside.size(); ++i) {
      const std::string begin = offsets[i] == 0 ? "t" : StrCat("t", offsets[i] > 0 ? "+" : "", offsets[i]);
      const std::string rows = windows[i] == 1 ? begin : StrCat(begin, " : ", begin, "+", windows[i]);
      lines.push_back(StrCat(NameText(inside[i]), " = ", NameText(outside[i]), "[", rows, "]"));
    }
    Add(title, std::move(lines), {internal, external, offset, window});
  }

  void AddAliases() {
    const std::vector<std::string> sources = Strings("alias_src");
    const std::vector<std::string> names = Strings("alias_dst");
    const std::vector<std::int64_t> offsets = Ints("alias_offset");
    if (sources.size() != names.size() || sources.size() != offsets.size()) return;
    std::vector<std::string> lines;
    for (size_t i = 0; i < names.size(); ++i) {
      lines.push_back(StrCat(NameText(names[i]), " = ", NameText(sources[i]), "[", offsets[i], ":]"));
    }
    Add("outputs", std::move(lines), {"alias_src", "alias_dst", "alias_offset"});
  }

  void AddStepOutputs() {
    const std::vector<std::string> sources = Strings("step_output_src");
    const std::vector<std::string> names = Strings("step_output_dst");
    if (sources.size() != names.size()) return;
    std::vector<std::string> lines;
    for (size_t i = 0; i < names.size(); ++i) {
      lines.push_back(StrCat(NameText(names[i]), "[t] = ", NameText(sources[i])));
    }
    Add("step outputs", std::move(lines), {"step_output_src", "step_output_dst"});
  }

  void AddParameters() {
    const std::vector<std::int64_t> ids = Ints("param");
    std::vector<std::string> gradients = Strings("param_grads");
    if (!gradients.empty() && gradients.size() != ids.size()) return;
    std::vector<std::string> lines;
    for (size_t i = 0; i < ids.size(); ++i) {
      lines.push_back(Input(ids[i]) + (gradients.empty() ? "" : " with gradient " + NameText(gradients[i])));
    }
    Add("parameters", std::move(lines), {"param", "param_grads"});
  }

  const OperatorDef& op_;
  std::vector<std::pair<std::string, std::vector<std::string>>> blocks_;
  std::set<std::string> shown_;
};

class TextWriter {
 public:
  std::string Write(const NetDef& net) {
    WriteNet(net, "", "", 0);
    return std::move(text_);
  }

 private:
  void Line(const std::string& indent, const std::string& text) { text_ += indent + text + "\n"; }

  void WriteNet(const NetDef& net, const std::string& title, const std::string& indent, int depth) {
    Line(indent, StrCat(title, "net ", NameText(net.name()), "(", NameList(net.external_input()), ") -> (",
                        NameList(net.external_output()), ") {"));
    const std::string inside = indent + "  ";
    if (!net.type().empty()) Line(inside, "type: " + NameText(net.type()));
    if (const std::string device = DeviceText(net.device_option()); !device.empty()) Line(inside, device);
    for (const Argument& argument : net.arg()) Line(inside, NameText(argument.name()) + ": " + ArgumentText(argument));
    for (const OperatorDef& op : net.op()) WriteOperator(op, inside, depth);
    Line(indent, "}");
  }

  void WriteOperator(const OperatorDef& op, const std::string& indent, int depth) {
    constexpr std::int64_t kWork = 3'000;  // as text
    CountWork(kWork);
    const std::string call = StrCat(NameList(op.output()), op.output_size() == 0 ? "" : " = ", NameText(op.type()), "(",
                                    NameList(op.input()), ")");
    const Connections connections(op);
    std::vector<std::string> attributes;
    std::vector<std::pair<std::string, NetDef>> nets;
    for (const Argument& argument : op.arg()) {
      NetDef net;
      if (connections.Shows(argument.name()) || IsHint(argument.name())) continue;
      if (depth < kDeepest && NetOrNothing(argument, &net)) {
        nets.emplace_back(argument.name(), std::move(net));
      } else {
        attributes.push_back(NameText(argument.name()) + ": " + ArgumentText(argument));
      }
    }
    if (!op.engine().empty()) attributes.push_back("engine: " + NameText(op.engine()));
    if (std::string device = DeviceText(op.device_option()); !device.empty()) attributes.push_back(std::move(device));
    if (op.device_option().has_random_seed()) {
      attributes.push_back(StrCat("random seed: ", op.device_option().random_seed()));
    }
    if (op.control_input_size() > 0) attributes.push_back("after: " + NameList(op.control_input()));
    if (nets.empty() && connections.blocks().empty()) {
      Line(indent, call + (attributes.empty() ? "" : " {" + Join(attributes, ", ") + "}"));
      return;
    }
    Line(indent, call + " {");
    const std::string inside = indent + "  ";
    for (const std::string& attribute : attributes) Line(inside, attribute);
    for (const auto& [title, lines] : connections.blocks()) {
      Line(inside, title + ":");
      for (const std::string& line : lines) Line(inside + "  ", line);
    }
    for (const auto& [name, net] : nets) WriteNet(net, NameText(name) + ": ", inside, depth + 1);
    Line(indent, "}");
  }

  // A text that is no net is shown as text.
  static bool NetOrNothing(const Argument& argument, NetDef* net) {
    try {
      return NetOfArgument(argument, net);
    } catch (const Error&) {
      return false;
    }
  }

  std::string text_;
};

}  // namespace

std::string ArgumentText(const Argument& argument) {
  std::vector<std::string> values;
  if (argument.has_f()) values.push_back(ShortestText(argument.f()));
  const std::optional<double> number = DoubleOf(argument);
  if (number) values.push_back(ShortestText(*number));
  const bool has_numbers = !DoublesOf(argument).empty();
  if (has_numbers)
    values.push_back(Listed(argument.t().double_data(), [](double value) { return ShortestText(value); }));
  if (argument.has_i()) values.push_back(StrCat(argument.i()));
  if (argument.has_s()) values.push_back(StringText(argument.s()));
  if (argument.floats_size() > 0)
    values.push_back(Listed(argument.floats(), [](float value) { return ShortestText(value); }));
  if (argument.ints_size() > 0) values.push_back(Listed(argument.ints(), [](std::int64_t i) { return StrCat(i); }));
  if (argument.strings_size() > 0) values.push_back(Listed(argument.strings(), StringText));
  if (argument.has_n()) values.push_back(StrCat("a net of ", Count(argument.n().op_size(), "operator")));
  if (argument.nets_size() > 0) values.push_back(Count(argument.nets_size(), "net"));
  if ((argument.has_t() && !number && !has_numbers) || argument.tensors_size() > 0 || argument.qtensors_size() > 0)
    values.push_back("tensors");
  return values.empty() ? "[]" : Join(values, " ");
}

std::string NetAsText(const NetDef& net) { return TextWriter().Write(net); }

}  // namespace stepnet
