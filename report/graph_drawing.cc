#include "stepnet/report/graph_drawing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "stepnet/core/strings.h"
#include "stepnet/report/text.h"

namespace stepnet {
namespace {

constexpr size_t kMaxNodes = 150;
constexpr size_t kMaxLine = 36;  // bytes of a line
// In pixels: of letters of 12 pixels, of boxes, and between them.
constexpr double kLetter = 6.8, kLine = 15, kPadding = 7, kGap = 14, kLayerGap = 34;

struct Box {
  std::vector<std::string> lines = {};  // none: an arrow goes through it
  std::string title = {};               // what it is, in full
  const char* style = "";
  int layer = 0;
  double place = 0;  // in the layer, from the left: the smaller ones first
  double x = 0, width = 0, height = 0;
};

// The graph as boxes and arrows between them.
class Boxes {
 public:
  explicit Boxes(const StepGraph& graph) : graph_(graph) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) AddNode(static_cast<int>(n));
    for (size_t n = 0; n < graph.nodes.size(); ++n) AddArrowsTo(static_cast<int>(n));
    for (size_t v = 0; v < graph.values.size(); ++v) AddResult(static_cast<int>(v));
  }

  std::vector<Box> boxes;
  std::vector<std::pair<int, int>> arrows;  // each from a box to one that is made of it

 private:
  static const char* StyleOf(const StepNode& node) {
    switch (node.kind) {
      case StepNode::Kind::kCall: return "call";
      case StepNode::Kind::kRegion: return "region";
      case StepNode::Kind::kProduct: return "product";
      case StepNode::Kind::kMove: return "move";
      case StepNode::Kind::kPack: return "pack";
    }
    return "";
  }

  static std::string TypesOf(const StepNode& node) {
    if (node.kind == StepNode::Kind::kMove) return "copy";
    if (node.kind == StepNode::Kind::kPack) return "pack";
    if (node.call != nullptr) return node.call->type();
    std::vector<std::string> types;
    for (const RegionCall& call : node.calls()) types.push_back(call.call->type());
    return Join(types, ", ");
  }

  std::string NamesOf(auto&& values) const {
    std::vector<std::string> names;
    for (const int value : values) names.push_back(graph_.values[value].blob);
    return Join(names, ", ");
  }

  void AddNode(int n) {
    const StepNode& node = graph_.nodes[n];
    const std::string given = NamesOf(node.given()), types = TypesOf(node);
    const bool adds = std::ranges::any_of(node.given(), [&](int value) { return graph_.values[value].added; });
    Box box{.title = StrCat(given, adds ? " += " : " = ", types, "(", NamesOf(node.inputs), ")"),
            .style = StyleOf(node)};
    box.lines = {Shortened(types, kMaxLine), StrCat(adds ? "adds to " : "", Shortened(given, kMaxLine))};
    boxes.push_back(std::move(box));
  }

  int AddValue(std::string text) {
    boxes.push_back({.lines = {Shortened(text, kMaxLine)}, .title = std::move(text), .style = "value"});
    return static_cast<int>(boxes.size()) - 1;
  }

  void AddArrowsTo(int n) {
    const StepNode& node = graph_.nodes[n];
    std::set<int> read(node.inputs.begin(), node.inputs.end());
    if (node.packed != kNoValue) read.insert(node.packed);
    std::set<int> from;
    for (const int value : read) {
      const int producer = graph_.values[value].producer;
      if (producer < 0 && !read_.contains(value)) read_[value] = AddValue(graph_.values[value].blob);
      from.insert(producer < 0 ? read_.at(value) : producer);
    }
    // What it adds to was written by another node.
    for (const int value : node.given()) {
      const int home = graph_.values[value].home;
      if (graph_.values[value].added && writer_.contains(home)) from.insert(writer_.at(home));
      writer_[home] = n;
    }
    for (const int box : from) arrows.emplace_back(box, n);
  }

  // The values that a step finds in memory outside where an earlier one has left this one.
  std::vector<int> FoundLater(const StepValue& left) const {
    std::vector<int> found;
    const Slot& slot = graph_.homes[left.home].slot;
    for (const auto& [value, box] : read_) {
      const Home& home = graph_.homes[graph_.values[value].home];
      const bool is_same = home.kind == Home::Kind::kOutside && home.slot.base == slot.base &&
                           home.slot.row_bytes == slot.row_bytes && slot.row_bytes != 0;
      if (is_same && home.slot.offset != slot.offset) found.push_back(value);
    }
    return found;
  }

  void AddResult(int v) {
    const StepValue& value = graph_.values[v];
    if (value.producer < 0 || graph_.homes[value.home].kind != Home::Kind::kOutside) return;
    const std::vector<int> later = FoundLater(value);
    const std::string text = later.empty() ? value.blob : StrCat(value.blob, ", then ", NamesOf(later));
    arrows.emplace_back(value.producer, AddValue(text));
  }

  const StepGraph& graph_;
  std::map<int, int> read_;    // a value that is there before the step → its box
  std::map<int, int> writer_;  // a home → the last node that wrote it
};

// Boxes in layers, so that all arrows go down by one; after K. Sugiyama, S. Tagawa, M. Toda: Methods for Visual
// Understanding of Hierarchical System Structures, IEEE Transactions on Systems, Man, and Cybernetics 11 (1981).
class Layers {
 public:
  explicit Layers(Boxes graph) : boxes_(std::move(graph.boxes)), arrows_(std::move(graph.arrows)) {
    FindLayers();
    CutArrows();
    Order();
    Place();
  }

  std::string Svg() const {
    std::string svg =
        StrCat("<svg class=graph width=\"", Pixels(width_), "\" height=\"", Pixels(height_), "\" role=img>\n");
    for (const auto& [from, to] : arrows_) {
      const Box &a = boxes_[from], &b = boxes_[to];
      const double x = a.x + a.width / 2, y = Top(a) + a.height, to_x = b.x + b.width / 2, to_y = Top(b);
      const double middle = (y + to_y) / 2;
      svg += StrCat("<path d=\"M", Pixels(x), " ", Pixels(y), "C", Pixels(x), " ", Pixels(middle), " ", Pixels(to_x),
                    " ", Pixels(middle), " ", Pixels(to_x), " ", Pixels(to_y), "\"/>\n");
      if (b.lines.empty())
        svg += StrCat("<path d=\"M", Pixels(to_x), " ", Pixels(to_y), "v", Pixels(b.height), "\"/>\n");
    }
    for (const Box& box : boxes_) svg += Drawn(box);
    return svg + "</svg>\n";
  }

 private:
  static std::string Pixels(double number) { return Number(std::round(10 * number) / 10, 6); }
  double Top(const Box& box) const { return tops_[box.layer]; }

  std::string Drawn(const Box& box) const {
    if (box.lines.empty()) return "";
    std::string svg =
        StrCat("<g class=", box.style, "><title>", HtmlText(box.title), "</title><rect x=\"", Pixels(box.x), "\" y=\"",
               Pixels(Top(box)), "\" width=\"", Pixels(box.width), "\" height=\"", Pixels(box.height), "\" rx=\"4\"/>");
    for (size_t i = 0; i < box.lines.size(); ++i) {
      svg += StrCat("<text x=\"", Pixels(box.x + kPadding), "\" y=\"",
                    Pixels(Top(box) + kPadding + kLine * (static_cast<double>(i) + 0.75)), "\">",
                    HtmlText(box.lines[i]), "</text>");
    }
    return svg + "</g>\n";
  }

  // Puts boxes as far up as they can be, but what nothing leads to near what reads it first.
  void FindLayers() {
    for (bool changes = true; changes;) {
      changes = false;
      for (const auto& [from, to] : arrows_) {
        if (boxes_[to].layer > boxes_[from].layer) continue;
        boxes_[to].layer = boxes_[from].layer + 1;
        changes = true;
      }
    }
    std::vector<bool> is_led_to(boxes_.size(), false);
    std::vector<int> first_reader(boxes_.size(), -1);
    for (const auto& [from, to] : arrows_) {
      is_led_to[to] = true;
      int& first = first_reader[from];
      if (first < 0 || boxes_[to].layer < boxes_[first].layer) first = to;
    }
    for (size_t b = 0; b < boxes_.size(); ++b) {
      if (!is_led_to[b] && first_reader[b] >= 0) boxes_[b].layer = boxes_[first_reader[b]].layer - 1;
    }
    for (const Box& box : boxes_) num_layers_ = std::max(num_layers_, box.layer + 1);
  }

  // Leads arrows through a box without text in each layer that they cross.
  void CutArrows() {
    std::vector<std::pair<int, int>> cut;
    for (const auto& [from, to] : arrows_) {
      int last = from;
      for (int layer = boxes_[from].layer + 1; layer < boxes_[to].layer; ++layer) {
        boxes_.push_back({.layer = layer});
        cut.emplace_back(last, static_cast<int>(boxes_.size()) - 1);
        last = cut.back().second;
      }
      cut.emplace_back(last, to);
    }
    arrows_ = std::move(cut);
  }

  // Puts each box below the middle of those above it, then above the middle of those below, a few times.
  void Order() {
    layers_.resize(static_cast<size_t>(num_layers_));
    for (size_t b = 0; b < boxes_.size(); ++b) layers_[boxes_[b].layer].push_back(static_cast<int>(b));
    std::vector<std::vector<int>> above(boxes_.size()), below(boxes_.size());
    for (const auto& [from, to] : arrows_) {
      below[from].push_back(to);
      above[to].push_back(from);
    }
    const auto sort = [&](std::vector<int>& layer, const std::vector<std::vector<int>>& neighbors) {
      std::map<int, double> middle;
      for (const int box : layer) {
        middle[box] = boxes_[box].place;
        if (neighbors[box].empty()) continue;
        const auto add = [&](double sum, int other) { return sum + boxes_[other].place; };
        middle[box] = std::accumulate(neighbors[box].begin(), neighbors[box].end(), 0.0, add) /
                      static_cast<double>(neighbors[box].size());
      }
      std::ranges::stable_sort(layer, {}, [&](int box) { return middle.at(box); });
      for (size_t i = 0; i < layer.size(); ++i)
        boxes_[layer[i]].place = (static_cast<double>(i) + 0.5) / static_cast<double>(layer.size());
    };
    for (std::vector<int>& layer : layers_) sort(layer, above);
    constexpr int kSweeps = 4;
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      for (size_t l = layers_.size(); l-- > 0;) sort(layers_[l], below);
      for (std::vector<int>& layer : layers_) sort(layer, above);
    }
  }

  void Place() {
    std::vector<double> widths;
    for (const std::vector<int>& layer : layers_) {
      double x = 0, height = 0;
      for (const int b : layer) {
        Box& box = boxes_[b];
        size_t letters = 0;
        for (const std::string& line : box.lines) letters = std::max(letters, line.size());
        box.width = box.lines.empty() ? 0 : kLetter * static_cast<double>(letters) + 2 * kPadding;
        box.height = box.lines.empty() ? 0 : kLine * static_cast<double>(box.lines.size()) + 2 * kPadding;
        box.x = x;
        x += box.width + kGap;
        height = std::max(height, box.height);
      }
      for (const int b : layer) {
        if (boxes_[b].lines.empty()) boxes_[b].height = height;
      }
      tops_.push_back(height_ + 1);
      height_ += height + kLayerGap;
      widths.push_back(x - kGap);
      width_ = std::max(width_, widths.back() + 2);
    }
    height_ += 2 - kLayerGap;
    for (size_t l = 0; l < layers_.size(); ++l) {
      for (const int box : layers_[l]) boxes_[box].x += (width_ - widths[l]) / 2;
    }
  }

  std::vector<Box> boxes_;
  std::vector<std::pair<int, int>> arrows_;
  int num_layers_ = 0;
  std::vector<std::vector<int>> layers_;
  std::vector<double> tops_;  // by layer
  double width_ = 0, height_ = 0;
};

}  // namespace

std::string GraphDrawing(const StepGraph& graph) {
  if (graph.nodes.empty() || graph.nodes.size() > kMaxNodes) return "";
  return Layers(Boxes(graph)).Svg();
}

}  // namespace stepnet
