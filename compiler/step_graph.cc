#include "stepnet/compiler/step_graph.h"

#include <algorithm>
#include <iterator>

namespace stepnet {
namespace {

// The numbers that what is kept has when the rest is gone; meaningless for the rest.
std::vector<int> Renumbered(const std::vector<bool>& kept) {
  std::vector<int> numbers;
  int next = 0;
  for (const bool is_kept : kept) numbers.push_back(is_kept ? next++ : -1);
  return numbers;
}

template <typename T>
void Keep(const std::vector<bool>& kept, std::vector<T>* items) {
  size_t count = 0;
  for (size_t i = 0; i < items->size(); ++i) {
    if (!kept[i]) continue;
    if (count < i) (*items)[count] = std::move((*items)[i]);
    ++count;
  }
  items->erase(items->begin() + count, items->end());
}

}  // namespace

int StepNode::ValueOf(int operand) const {
  size_t number = static_cast<size_t>(operand);
  for (const std::span<const int> values : {std::span(inputs), std::span(outputs), locals()}) {
    if (number < values.size()) return values[number];
    number -= values.size();
  }
  return kNoValue;
}

std::string StepGraph::NameOf(int value) const {
  const StepValue& v = values[value];
  const char* mark = v.outside ? "^" : "";
  return v.version == 0 ? mark + v.blob : StrCat(mark, v.blob, ".", v.version);
}

bool StepGraph::GivesOnce(const StepNode& node) const {
  return std::ranges::all_of(node.given(),
                             [&](int value) { return homes[values[value].home].kind == Home::Kind::kOnce; });
}

int StepGraph::NumOnceNodes() const {
  int count = 0;
  for (const Stage& stage : stages) {
    const auto gives_once = [&](const StepNode& node) { return GivesOnce(node); };
    const bool is_once = stage.steps_at_once == kAllSteps && !stage.is_behind &&
                         std::all_of(nodes.begin() + stage.begin, nodes.begin() + stage.end, gives_once);
    if (!is_once) break;
    count = stage.end;
  }
  return count;
}

int StepGraph::AddOnce(std::vector<StepNode> added, std::int64_t min_steps) {
  const auto count = static_cast<int>(added.size());
  const int begin = NumOnceNodes();
  if (stages.empty() && !nodes.empty()) stages = {{.begin = 0, .end = static_cast<int>(nodes.size())}};
  const auto behind = std::ranges::find_if(stages, [&](const Stage& stage) { return stage.end > begin; });
  for (auto stage = behind; stage != stages.end(); ++stage) {
    stage->begin += count;
    stage->end += count;
  }
  if (behind != stages.begin() && std::prev(behind)->min_steps == min_steps) {
    std::prev(behind)->end += count;
  } else {
    stages.insert(behind, {.begin = begin, .end = begin + count, .steps_at_once = kAllSteps, .min_steps = min_steps});
  }
  nodes.insert(nodes.begin() + begin, std::make_move_iterator(added.begin()), std::make_move_iterator(added.end()));
  FindProducers();
  return begin;
}

std::vector<StepNode> StepGraph::TakeOnce() {
  const int count = NumOnceNodes();
  std::vector<StepNode> taken(std::make_move_iterator(nodes.begin()), std::make_move_iterator(nodes.begin() + count));
  nodes.erase(nodes.begin(), nodes.begin() + count);
  std::erase_if(stages, [&](const Stage& stage) { return stage.end <= count; });
  for (Stage& stage : stages) {
    stage.begin -= count;
    stage.end -= count;
  }
  FindProducers();
  return taken;
}

void StepGraph::AddBehind(std::vector<StepNode> added) {
  const auto begin = static_cast<int>(nodes.size());
  if (stages.empty() && begin > 0) stages = {{.begin = 0, .end = begin}};
  std::ranges::move(added, std::back_inserter(nodes));
  const auto end = static_cast<int>(nodes.size());
  stages.push_back({.begin = begin, .end = end, .steps_at_once = kAllSteps, .is_behind = true});
  FindProducers();
}

std::vector<StepNode> StepGraph::TakeBehind() {
  if (stages.empty() || !stages.back().is_behind) return {};
  const auto begin = nodes.begin() + stages.back().begin;
  std::vector<StepNode> taken(std::make_move_iterator(begin), std::make_move_iterator(nodes.end()));
  nodes.erase(begin, nodes.end());
  stages.pop_back();
  FindProducers();
  return taken;
}

std::vector<TensorInfo> StepGraph::InfosOf(std::span<const int> of) const {
  std::vector<TensorInfo> infos;
  infos.reserve(of.size());
  for (const int value : of) infos.push_back(values[value].info);
  return infos;
}

int StepGraph::AddBase(bool is_lent) {
  if (is_lent) lent.insert(num_bases);
  return num_bases++;
}

int StepGraph::AddValue(StepValue value) {
  const int first = value.outside || value.producer < 0 ? 0 : 1;
  int& next = (value.outside ? next_version_outside_ : next_version_)[value.blob];
  if (value.version < 0) value.version = std::max(first, next);
  next = std::max(next, value.version + 1);
  values.push_back(std::move(value));
  return static_cast<int>(values.size()) - 1;
}

void StepGraph::ForgetLast(int value) {
  const auto found = last.find(values[value].blob);
  if (found != last.end() && found->second == value) last.erase(found);
}

void StepGraph::FindProducers() {
  for (StepValue& value : values) value.producer = -1;
  for (size_t n = 0; n < nodes.size(); ++n) {
    for (const int output : nodes[n].given()) values[output].producer = static_cast<int>(n);
    for (const int local : nodes[n].locals()) values[local].producer = static_cast<int>(n);
  }
}

void StepGraph::Erase(const std::vector<bool>& gone) {
  std::vector<bool> kept = gone;
  kept.flip();
  std::vector<int> kept_before = {0};
  for (const bool is_kept : kept) kept_before.push_back(kept_before.back() + (is_kept ? 1 : 0));
  for (Stage& stage : stages) {
    stage.begin = kept_before[stage.begin];
    stage.end = kept_before[stage.end];
  }
  std::erase_if(stages, [](const Stage& stage) { return stage.begin == stage.end; });
  Keep(kept, &nodes);
  DropValues();
  std::vector<bool> kept_homes(homes.size(), false);
  for (const StepValue& value : values) kept_homes[value.home] = true;
  if (!std::ranges::count(kept_homes, false)) return;
  const std::vector<int> new_home = Renumbered(kept_homes);
  for (StepValue& value : values) value.home = new_home[value.home];
  std::erase_if(before, [&](const RowMove& move) { return move.to.sum >= 0 && !kept_homes[move.to.sum]; });
  for (RowMove& move : before) {
    if (move.to.sum >= 0) move.to.sum = new_home[move.to.sum];
  }
  Keep(kept_homes, &homes);
}

void StepGraph::DropValues() {
  std::vector<bool> kept(values.size(), false);
  const auto mention = [&](int value) {
    if (value != kNoValue) kept[value] = true;
  };
  for (const StepNode& node : nodes) {
    std::ranges::for_each(node.inputs, mention);
    std::ranges::for_each(node.outputs, mention);
    std::ranges::for_each(node.locals(), mention);
    mention(node.packed);
  }
  for (const auto& [blob, value] : last) mention(value);
  if (std::ranges::count(kept, false)) {
    RenumberValues(Renumbered(kept));
    Keep(kept, &values);
  }
  FindProducers();
}

void StepGraph::RenumberValues(const std::vector<int>& numbers) {
  const auto renumber = [&](int& value) {
    if (value != kNoValue) value = numbers[value];
  };
  for (StepNode& node : nodes) {
    std::ranges::for_each(node.inputs, renumber);
    std::ranges::for_each(node.outputs, renumber);
    if (node.body) {
      RegionBody body = *node.body;  // which copies of the graph share
      std::ranges::for_each(body.locals, renumber);
      node.body = std::make_shared<const RegionBody>(std::move(body));
    }
    renumber(node.packed);
  }
  for (auto& [blob, value] : last) renumber(value);
}

std::span<const int> PackedInputs(const StepNode& node, const Packing& packing) {
  const std::span<const int> inputs = node.inputs;
  const auto first = static_cast<size_t>(packing.input);
  if (first >= inputs.size()) return {};
  const std::vector<Formal>& formals = node.call->schema().inputs;
  const bool takes_any_number = first + 1 == formals.size() && formals.back().variadic;
  return inputs.subspan(first, takes_any_number ? inputs.size() - first : 1);
}

bool ShareBytes(const Home& a, const Home& b) {
  return a.kind == Home::Kind::kOutside && b.kind == Home::Kind::kOutside && ShareBytes(a.slot, b.slot);
}

}  // namespace stepnet
