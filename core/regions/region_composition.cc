// A part is computed at places of the composed region: for each dimension of the part its index, as an affine function
// of the region's indices. Places of the parts that give what is wanted follow from the order of elements; those of
// others from where their elements are read: an address is an affine function too, and which element of a producer lies
// there follows from the producer's strides, the largest first, as digits follow from a number. Where a dimension of
// the region crosses one of a producer, it is cut in two, and all is done again.
#include "stepnet/core/regions/region_composition.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "stepnet/core/error.h"
#include "stepnet/core/regions/region_in_place.h"
#include "stepnet/core/regions/region_places.h"
#include "stepnet/core/regions/region_roots.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

using Kind = CompositionObstacle::Kind;

// Where an input of a place comes from: an output of another place, or memory.
struct Source {
  int place = -1;  // -1: memory
  int output = 0;
  Affine address = {};  // in memory
};

// A part at some place of the region.
struct Place {
  int part = 0;
  PartIndex index = {};
  std::vector<bool> is_needed = {};                 // by root of the part
  std::vector<std::optional<Source>> sources = {};  // of the inputs that are read
};

// In a region without elements, an output that has none either.
RegionOutput NothingOf(DType dtype, const RegionIndex& sizes) {
  RegionOutput nothing{.value = Expr::Constant(dtype, 0), .memory = {.dtype = dtype}};
  std::int64_t stride = 1;
  for (int d = kRegionDims - 1; d >= 0; --d) {
    nothing.memory.strides[d] = stride;
    stride *= std::max<std::int64_t>(sizes[d], 1);
  }
  return nothing;
}

// What gives the wanted tensors of parts that compute nothing.
ComposedRegion Nothing(std::span<const RegionPart> parts, const CompositionRequest& request) {
  ComposedRegion nothing{.region = {.sizes = {1, 1, 1, 0}}};
  for (const int tensor : request.wanted) {
    for (const RegionPart& part : parts) {
      const auto found = std::ranges::find(part.outputs, tensor);
      if (found == part.outputs.end()) continue;
      const RegionOperand& memory = part.region.outputs[found - part.outputs.begin()].memory;
      nothing.region.outputs.push_back(NothingOf(memory.dtype, nothing.region.sizes));
      nothing.outputs.push_back(tensor);
    }
  }
  return nothing;
}

class Composer {
 public:
  Composer(std::span<const RegionPart> parts, const CompositionRequest& request) : parts_(parts), request_(request) {
    for (size_t p = 0; p < parts.size(); ++p) {
      roots_of_.push_back(RootsOf(parts[p].region, request.operations_of_function));
      for (size_t o = 0; o < parts[p].outputs.size(); ++o) {
        givers_[parts[p].outputs[o]].push_back({static_cast<int>(p), static_cast<int>(o)});
      }
    }
    FindGoals();
  }

  std::variant<ComposedRegion, CompositionObstacle> Run() {
    const auto is_nothing = [this](const Goal& goal) { return ComputesNothing(RegionOf(goal.part)); };
    if (std::ranges::all_of(goals_, is_nothing)) return Nothing(parts_, request_);
    // Beside them rows and sums of no elements.
    const bool has_nothing = std::erase_if(goals_, is_nothing) > 0;
    const int first_goal = goals_.front().part;
    if (has_nothing && RegionOf(first_goal).NumElements() > 0) {
      return CompositionObstacle{
          .kind = Kind::kSizes, .part = first_goal, .what = "has elements, and others have none"};
    }
    std::optional<CompositionObstacle> first;
    const auto try_all = [&](const std::vector<Domain>& starts) {
      for (const Domain& start : starts) {
        Compose(start);
        if (!obstacle_) return true;
        if (!first) first = obstacle_;
      }
      return false;
    };
    bool is_composed = try_all(StartDomains());
    for (const std::int64_t columns : is_composed ? std::vector<std::int64_t>() : ColumnsOfBlocks()) {
      columns_of_block_ = columns;
      const std::int64_t rows = RegionOf(goals_.front().part).NumElements() / columns;
      is_composed = try_all({Domain({1, 1, rows, columns}, /*has_row=*/false)});
      if (is_composed) break;
    }
    if (!is_composed) return first ? *std::move(first) : *std::move(obstacle_);
    CheckRegion(result_.region);
    return std::move(result_);
  }

 private:
  struct Giver {
    int part;
    int output;
  };
  // A part that has to be computed at all of its elements.
  struct Goal {
    int part = 0;
    std::vector<int> places = {};  // one, or one for each block
    bool is_by_row = false;        // once a row of the region
  };

  // Obstacles are no exceptions: plans try many compositions that meet one.
  void Refuse(Kind kind, int part, const std::string& what) {
    const bool is_about_sizes = kind == Kind::kSizes || kind == Kind::kRows;
    const std::int64_t elements = is_about_sizes ? domain_.NumElements() : 0;
    if (!obstacle_) obstacle_ = {.kind = kind, .part = part, .what = what, .region_elements = elements};
  }

  // Makes result_, or obstacle_.
  void Compose(const Domain& start) {
    domain_ = start;
    obstacle_.reset();
    while (!obstacle_ && !PlaceAll()) {
    }
    if (!obstacle_) Collapse();
    if (!obstacle_) Build();
    for (const auto& [read, written] : request_.in_place) {
      if (obstacle_ || ShareMemory(read, written, &result_)) continue;
      Refuse(Kind::kInPlace, 0,
             StrCat(NameOf(written), " cannot overwrite ", NameOf(read), ", of which other elements are read"));
    }
  }

  const Region& RegionOf(int part) const { return parts_[part].region; }

  void FindGoals() {
    for (const int tensor : request_.wanted) {
      const auto found = givers_.find(tensor);
      if (found == givers_.end()) {
        throw Error(ErrorCode::kInvalidArgument, StrCat("no part of a region gives ", NameOf(tensor)));
      }
      for (const Giver& giver : found->second) AddGoal(giver.part);
    }
    for (size_t p = 0; p < parts_.size(); ++p) {
      if (roots_of_[p].has_require) AddGoal(static_cast<int>(p));
    }
  }

  void AddGoal(int part) {
    if (std::ranges::find(goals_, part, &Goal::part) == goals_.end()) goals_.push_back({.part = part});
  }
  // Null for one without elements.
  const Goal* GoalOf(int part) const {
    const auto found = std::ranges::find(goals_, part, &Goal::part);
    return found == goals_.end() ? nullptr : &*found;
  }

  std::string NameOf(int tensor) const {
    return tensor < static_cast<int>(request_.names.size()) ? request_.names[tensor] : StrCat("tensor ", tensor);
  }

  // The last part that what is wanted depends on and whose rows count; -1: there is none.
  int PartOfRows() {
    int last = -1;
    std::vector<bool> needed(parts_.size());
    for (const Goal& goal : goals_) needed[goal.part] = true;
    for (int p = static_cast<int>(parts_.size()) - 1; p >= 0; --p) {
      if (!needed[p]) continue;
      if (roots_of_[p].keeps_rows) last = std::max(last, p);
      for (const int tensor : parts_[p].inputs) {
        const auto found = givers_.find(tensor);
        if (found == givers_.end()) continue;
        for (const Giver& giver : found->second) {
          needed[giver.part] = true;
          const bool is_sum = RegionOf(giver.part).outputs[giver.output].kind == RegionOutputKind::kSums;
          if (is_sum) Refuse(Kind::kSum, p, StrCat("reads ", NameOf(tensor)));
        }
      }
    }
    return last;
  }

  // What may be iterated over, in the order in which it is tried; none with obstacle_.
  std::vector<Domain> StartDomains() {
    const Region& goal = RegionOf(goals_.front().part);
    const int part = PartOfRows();
    if (obstacle_) return {};
    if (part < 0) return {Domain(goal.sizes, /*has_row=*/false)};
    const RegionIndex& of_rows = RegionOf(part).sizes;
    std::vector<Domain> domains = {Domain(of_rows, /*has_row=*/true)};
    const std::int64_t columns = of_rows[kRegionDims - 1];
    const std::int64_t elements = goal.NumElements();  // rows may be repeated
    if (columns > 0 && elements % columns == 0 && elements != RegionOf(part).NumElements()) {
      domains.push_back(Domain({1, 1, elements / columns, columns}, /*has_row=*/true));
    }
    return domains;
  }

  // How many columns blocks may have, where some goals have several times as many elements as others: as the parts of
  // the fewest elements have them, which are the first goal afterwards.
  std::vector<std::int64_t> ColumnsOfBlocks() {
    const auto elements = [this](const Goal& goal) { return RegionOf(goal.part).NumElements(); };
    const auto [fewest, most] = std::ranges::minmax_element(goals_, {}, elements);
    if (elements(*fewest) == elements(*most) || PartOfRows() >= 0) return {};
    std::vector<std::int64_t> columns;
    for (const RegionPart& part : parts_) {
      const std::int64_t size = part.region.sizes[kRegionDims - 1];
      if (part.region.NumElements() == elements(*fewest) && size > 0) columns.push_back(size);
    }
    std::iter_swap(goals_.begin(), fewest);
    std::ranges::sort(columns);
    columns.erase(std::ranges::unique(columns).begin(), columns.end());
    return columns;
  }

  // False with obstacle_, or when the domain has been cut and all places are to be found again.
  bool PlaceAll() {
    places_.clear();
    places_of_part_.clear();
    times_computed_.clear();
    to_place_.clear();
    cut_.reset();
    for (Goal& goal : goals_) {
      if (!PlaceGoal(&goal)) break;
    }
    while (!cut_ && !obstacle_ && !to_place_.empty()) {
      const auto [place, root] = to_place_.back();
      to_place_.pop_back();
      FindSources(place, root);
    }
    if (obstacle_) return false;
    if (!cut_) return true;
    if (!domain_.Cut(*cut_)) Refuse(Kind::kDimensions, goals_.front().part, "has too many dimensions");
    return false;
  }

  // False with obstacle_, and with cut_ when the domain is to be cut.
  bool PlaceGoal(Goal* goal) {
    const RegionRoots& of_part = roots_of_[goal->part];
    const RegionIndex& sizes = RegionOf(goal->part).sizes;
    PlaceResult found = AlignElements(domain_, sizes, of_part.keeps_rows);
    goal->is_by_row = !found.index && !found.cut && domain_.has_row && !of_part.keeps_rows;
    if (goal->is_by_row) found = AlignRows(domain_, sizes);
    BlocksResult blocks = {.first = found};
    if (!found.index && !found.cut && columns_of_block_ > 0) blocks = AlignBlocks(domain_, sizes, columns_of_block_);
    if (blocks.first.cut) {
      cut_ = blocks.first.cut;
      return false;
    }
    if (!blocks.first.index) {
      Refuse(of_part.keeps_rows ? Kind::kRows : Kind::kSizes, goal->part,
             StrCat("a part over [", Join(sizes, ", "), "] in a region over ", domain_.Text()));
      return false;
    }
    goal->places.clear();
    for (std::int64_t block = 0; block < blocks.count; ++block) {
      const int place = PlaceOf(goal->part, blocks.IndexOf(block));
      goal->places.push_back(place);
      for (int root = 0; root < static_cast<int>(of_part.roots.size()); ++root) {
        if (IsGoal(goal->part, root)) Need(place, root);
      }
    }
    return true;
  }

  // Whether an output of the part is wanted, or something is required for it.
  bool IsGoal(int part, int root) const {
    const std::vector<int>& outputs = parts_[part].outputs;
    const bool is_output = root < static_cast<int>(outputs.size());
    return roots_of_[part].roots[root]->has_require() ||
           (is_output && std::ranges::count(request_.wanted, outputs[root]) > 0);
  }

  int PlaceOf(int part, const PartIndex& index) {
    constexpr size_t kMaxPlaces = 4096;
    std::vector<int>& known = places_of_part_[part];
    for (const int place : known) {
      if (places_[place].index == index) return place;
    }
    if (places_.size() == kMaxPlaces) Refuse(Kind::kPlaces, part, "is read in too many ways");
    known.push_back(static_cast<int>(places_.size()));
    places_.push_back({.part = part, .index = index});
    places_.back().is_needed.resize(roots_of_[part].roots.size());
    places_.back().sources.resize(RegionOf(part).inputs.size());
    return known.back();
  }

  void Need(int place, int root) {
    if (places_[place].is_needed[root]) return;
    places_[place].is_needed[root] = true;
    to_place_.emplace_back(place, root);
    const int part = places_[place].part;
    double& times = times_computed_[{part, root}];
    times += static_cast<double>(domain_.NumValues(places_[place].index));
    const auto elements = static_cast<double>(RegionOf(part).NumElements());
    if (roots_of_[part].operations[root] * (times - elements) <= request_.max_repeated_operations) return;
    Refuse(Kind::kRepeats, part,
           StrCat("has ", elements, " elements, of which ", times, " would be computed in a region over ",
                  domain_.Text()));
  }

  void FindSources(int place, int root) {
    const int part = places_[place].part;
    const PartIndex index = places_[place].index;
    const Region& region = RegionOf(part);
    const RegionRoots& of_part = roots_of_[part];
    if (of_part.roots[root]->has_row_reduction() && !domain_.IsWholeRow(index, region.sizes[kRegionDims - 1])) {
      Refuse(Kind::kRows, part, "computes something of whole rows, of which not whole ones are read");
      return;
    }
    for (const int input : of_part.inputs[root]) {
      if (places_[place].sources[input]) continue;
      const Affine address = domain_.AddressOf(region.inputs[input], index);
      const std::optional<Source> source = SourceOf(part, input, address);
      if (!source || obstacle_) return;
      places_[place].sources[input] = source;
    }
  }

  // Nothing with obstacle_, and with cut_ when the domain is to be cut.
  std::optional<Source> SourceOf(int part, int input, const Affine& address) {
    const int tensor = parts_[part].inputs[input];
    const auto givers = givers_.find(tensor);
    if (givers == givers_.end()) return Source{.address = address};
    for (const Giver& giver : givers->second) {
      const Region& region = RegionOf(giver.part);
      const PlaceResult found = IndexAt(domain_, address, region.sizes, region.outputs[giver.output]);
      if (found.index) {
        const int place = PlaceOf(giver.part, *found.index);
        Need(place, giver.output);
        return Source{.place = place, .output = giver.output};
      }
      if (!cut_) cut_ = found.cut;
    }
    if (cut_) return {};
    Refuse(Kind::kAccess, part,
           StrCat("reads ", NameOf(tensor), " otherwise than it is given, in a region over ", domain_.Text()));
    return {};
  }

  // Joins dimensions along which all operands move as one.
  void Collapse() {
    std::vector<Affine> operands;
    bool has_index = false;
    for (const Place& place : places_) {
      for (const std::optional<Source>& source : place.sources) {
        if (source && source->place < 0) operands.push_back(source->address);
      }
      for (const ExprNode* node : ExprNodes(NeededRoots(place))) has_index |= node->op == ExprOp::kIndex;
    }
    for (const int tensor : request_.wanted) {
      for (const Giver& giver : givers_.at(tensor)) {
        const Goal* const goal = GoalOf(giver.part);
        for (size_t block = 0; goal != nullptr && block < goal->places.size(); ++block) {
          operands.push_back(AddressOf(giver, goal->places[block]));
        }
      }
    }
    joined_ = domain_.Joined(operands, /*may_join=*/!has_index);
    if (joined_.size() > kRegionDims) {
      Refuse(Kind::kDimensions, goals_.front().part,
             StrCat("a region over ", domain_.Text(), " has too many dimensions"));
      return;
    }
    result_ = {};
    values_of_inputs_.clear();
    for (size_t d = 0; d < joined_.size(); ++d) result_.region.sizes[SlotOf(d)] = joined_[d].size;
  }

  size_t SlotOf(size_t dimension) const { return kRegionDims - joined_.size() + dimension; }

  // Where what is wanted lies in the giver's memory.
  Affine AddressOf(const Giver& giver, int place) const {
    return domain_.AddressOf(RegionOf(giver.part).outputs[giver.output].memory, places_[place].index);
  }

  std::vector<Expr> NeededRoots(const Place& place) const {
    std::vector<Expr> roots;
    for (size_t root = 0; root < place.is_needed.size(); ++root) {
      if (place.is_needed[root]) roots.push_back(roots_of_[place.part].roots[root]);
    }
    return roots;
  }

  RegionOperand OperandAt(const RegionOperand& memory, const Affine& address) const {
    RegionOperand operand{.dtype = memory.dtype, .size = memory.size, .offset = address.offset};
    for (size_t d = 0; d < joined_.size(); ++d) operand.strides[SlotOf(d)] = address.strides[joined_[d].inner];
    return operand;
  }

  // Parts before those that read them.
  void Build() {
    std::vector<int> order(places_.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](int place) { return places_[place].part; });
    values_.clear();
    values_.resize(places_.size());
    for (const int place : order) BuildPlace(place);
    for (const int tensor : request_.wanted) {
      for (const Giver& giver : givers_.at(tensor)) AddOutput(giver);
    }
    for (const Goal& goal : goals_) {
      for (const int place : goal.places) AddRequirements(place);
    }
  }

  // Values of a part's expressions at a place.
  void BuildPlace(int number) {
    const Place& place = places_[number];
    std::unordered_map<const ExprNode*, Expr>& values = values_[number];
    for (const ExprNode* node : ExprNodes(NeededRoots(place))) {
      if (node->op == ExprOp::kInput) {
        values.emplace(node, ValueOf(place, *node));
        continue;
      }
      if (node->op == ExprOp::kIndex) {
        values.emplace(node, IndexValue(place.index[node->number]));
        continue;
      }
      std::array<Expr, kMaxExprOperands> operands;
      bool is_same = true;
      for (int k = 0; k < node->num_operands; ++k) {
        operands[k] = values.at(node->operands[k]);
        is_same &= operands[k].node() == node->operands[k];
      }
      const std::span<const Expr> used(operands.data(), node->num_operands);
      const ExprParts parts{.dtype = node->dtype, .text = node->text};
      values.emplace(node, is_same ? Expr::Of(node) : MakeExpr(node->op, used, parts));
    }
  }

  Expr ValueOf(const Place& place, const ExprNode& input) {
    const Source& source = *place.sources[input.number];
    if (source.place >= 0) {
      const Expr& value = roots_of_[places_[source.place].part].roots[source.output];
      return values_[source.place].at(value.node());
    }
    const int tensor = parts_[place.part].inputs[input.number];
    const RegionOperand operand = OperandAt(RegionOf(place.part).inputs[input.number], source.address);
    Region& region = result_.region;
    size_t i = 0;
    while (i < region.inputs.size() && !(result_.inputs[i] == tensor && region.inputs[i].offset == operand.offset &&
                                         region.inputs[i].strides == operand.strides)) {
      ++i;
    }
    if (i == region.inputs.size()) {
      region.inputs.push_back(operand);
      result_.inputs.push_back(tensor);
      const bool has_name = tensor < static_cast<int>(request_.names.size());
      values_of_inputs_.push_back(
          Expr::Input(static_cast<int>(i), has_name ? request_.names[tensor] : input.text, operand.dtype));
    }
    return values_of_inputs_[i];
  }

  Expr IndexValue(const Affine& index) const {
    Expr sum = Cast(DType::kInt64, Expr(index.offset));
    for (size_t d = 0; d < joined_.size(); ++d) {
      const std::int64_t stride = index.strides[joined_[d].inner];
      if (stride != 0) sum = sum + stride * Index(static_cast<int>(SlotOf(d)));
    }
    return sum;
  }

  void AddOutput(const Giver& giver) {
    const Goal* goal = GoalOf(giver.part);
    const RegionOutput& output = RegionOf(giver.part).outputs[giver.output];
    const int tensor = parts_[giver.part].outputs[giver.output];
    if (goal == nullptr) {
      result_.outputs.push_back(tensor);
      result_.region.outputs.push_back(NothingOf(output.memory.dtype, result_.region.sizes));
      return;
    }
    for (const int place : goal->places) {
      result_.outputs.push_back(tensor);
      result_.region.outputs.push_back({.value = values_[place].at(output.value.node()),
                                        .memory = OperandAt(output.memory, AddressOf(giver, place)),
                                        .kind = goal->is_by_row ? RegionOutputKind::kRows : output.kind,
                                        .adds = output.adds});
    }
  }

  void AddRequirements(int place) {
    for (const ExprNode* node : ExprNodes(NeededRoots(places_[place]))) {
      if (node->op == ExprOp::kRequire) result_.region.requirements.push_back(values_[place].at(node));
    }
  }

  std::span<const RegionPart> parts_;
  const CompositionRequest& request_;
  std::map<int, std::vector<Giver>> givers_;  // of tensors
  std::vector<RegionRoots> roots_of_;         // by part
  std::vector<Goal> goals_;
  std::int64_t columns_of_block_ = 0;  // 0: all goals have as many elements
  Domain domain_;
  std::optional<CutDimension> cut_;              // that what follows is to wait for
  std::optional<CompositionObstacle> obstacle_;  // the first
  std::vector<JoinedDimension> joined_;
  std::vector<Place> places_;
  std::map<int, std::vector<int>> places_of_part_;
  std::map<std::pair<int, int>, double> times_computed_;           // elements, by part and root
  std::vector<std::pair<int, int>> to_place_;                      // place, root: whose inputs are to be found
  std::vector<std::unordered_map<const ExprNode*, Expr>> values_;  // by place
  std::vector<Expr> values_of_inputs_;
  ComposedRegion result_;
};

}  // namespace

std::variant<ComposedRegion, CompositionObstacle> ComposeRegions(std::span<const RegionPart> parts,
                                                                 const CompositionRequest& request) {
  return Composer(parts, request).Run();
}

}  // namespace stepnet
