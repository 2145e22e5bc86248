#include "joined_regions.h"

#include <cstring>
#include <utility>

#include "stepnet/core/regions/region_groups.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

Expr In(int number) { return Expr::Input(number, StrCat("x", number), DType::kFloat); }

RegionOutput Out(Expr value, RegionOperand memory, RegionOutputKind kind = RegionOutputKind::kElements) {
  return {.value = std::move(value), .memory = memory, .kind = kind};
}

// Arrays of floats, and regions over them by their numbers.
class JoinedCase {
 public:
  JoinedCase(std::int64_t rows, std::int64_t units, std::int64_t heads) : rows_(rows), units_(units), heads_(heads) {
    gates_ = NewArray(4 * rows * units);
    for (int* of_units : {&cell_, &hidden_, &softer_, &doubled_}) *of_units = NewArray(rows * units);
    AddNormalised();
    AddGates();
    AddRows();
    AddElements();
    AddHeads();
  }

  // "" or what differs.
  std::string DifferenceOn(RegionRunner& runner, const std::string& name) {
    std::vector<RegionOfMemory> of_memory;
    std::vector<const Region*> pointers;
    Region all;  // says how large operands are
    for (size_t k = 0; k < regions_.size(); ++k) {
      CheckRegion(regions_[k]);
      pointers.push_back(&regions_[k]);
      of_memory.push_back({&regions_[k], inputs_[k], outputs_[k]});
      all.inputs.insert(all.inputs.end(), regions_[k].inputs.begin(), regions_[k].inputs.end());
      all.outputs.insert(all.outputs.end(), regions_[k].outputs.begin(), regions_[k].outputs.end());
    }
    if (GroupsApart(of_memory) != rows_) return StrCat(GroupsApart(of_memory), " groups, not ", rows_);
    const PrintedRegion printed{.region = all, .source = PrintRegions(pointers, rows_, {.name = name})};
    std::vector<std::vector<float>> want = arrays_, got = arrays_;
    for (size_t k = 0; k < regions_.size(); ++k) {
      EvaluateRegion(regions_[k], Inputs(want, k), Outputs(want, k));
    }
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (size_t k = 0; k < regions_.size(); ++k) {
      for (const void* input : Inputs(got, k)) inputs.push_back(input);
      for (void* output : Outputs(got, k)) outputs.push_back(output);
    }
    runner.Compile({&printed, 1});
    runner.Run(printed, inputs, outputs, nullptr);
    for (size_t a = 0; a < want.size(); ++a) {
      for (size_t i = 0; i < want[a].size(); ++i) {
        if (std::memcmp(&want[a][i], &got[a][i], sizeof(float)) == 0) continue;
        return StrCat("array ", a, " [", i, "] of ", rows_, " rows and ", units_, " units: ", got[a][i], ", not ",
                      want[a][i], "\n", printed.source.kernels);
      }
    }
    return "";
  }

 private:
  int NewArray(std::int64_t size) {
    std::vector<float>& array = arrays_.emplace_back(size);
    for (float& x : array) x = static_cast<float>(next_ = (next_ * 7919 + 13) % 1009) / 512 - 1;
    return static_cast<int>(arrays_.size()) - 1;
  }
  void Add(Region region, std::vector<int> inputs, std::vector<int> outputs) {
    regions_.push_back(std::move(region));
    inputs_.push_back(std::move(inputs));
    outputs_.push_back(std::move(outputs));
  }
  RegionOperand Matrix(std::int64_t columns, std::int64_t offset = 0) const {
    return {.size = rows_ * columns, .offset = offset, .strides = {0, 0, columns, 1}};
  }

  // Rows of four gates, less their mean, by a row that all share.
  void AddNormalised() {
    const std::int64_t columns = 4 * units_;
    const Expr mean = RowSum(In(0)) / static_cast<double>(columns);
    Add({.sizes = {1, 1, rows_, columns},
         .inputs = {Matrix(columns), {.size = columns, .strides = {0, 0, 0, 1}}},
         .outputs = {Out((In(0) - mean) * In(1), Matrix(columns))}},
        {NewArray(rows_ * columns), NewArray(columns)}, {gates_});
  }
  void AddGates() {
    std::vector<RegionOperand> inputs;
    for (int gate = 0; gate < 4; ++gate) inputs.push_back(Matrix(4 * units_, gate * units_));
    inputs.push_back(Matrix(units_));
    const Expr c = In(0) * In(4) + In(1) * In(3);
    Add({.sizes = {1, 1, rows_, units_},
         .inputs = inputs,
         .outputs = {Out(c, Matrix(units_)), Out(In(2) * c, Matrix(units_))},
         .in_place = {{.input = 4, .output = 0}}},
        {gates_, gates_, gates_, gates_, cell_}, {cell_, hidden_});
  }
  void AddRows() {
    const RegionOperand of_rows{.size = rows_, .strides = {0, 0, 1, 0}};
    const Expr most = RowMax(In(0));
    Add({.sizes = {1, 1, rows_, units_},
         .inputs = {Matrix(units_), Matrix(units_)},
         .outputs = {Out(In(0) - most + RowSum((In(0) - most) * In(1)), Matrix(units_)),
                     Out(most, of_rows, RegionOutputKind::kRows)}},
        {hidden_, cell_}, {softer_, NewArray(rows_)});
  }
  // As one row of all elements, of which each group has a part.
  void AddElements() {
    const std::int64_t size = rows_ * units_;
    const RegionOperand flat{.size = size, .strides = {0, 0, 0, 1}};
    Add({.sizes = {1, 1, 1, size}, .inputs = {flat, flat}, .outputs = {Out(In(0) * In(0) + In(1), flat)}},
        {softer_, cell_}, {doubled_});
  }
  // Several rows in each group.
  void AddHeads() {
    const std::int64_t columns = units_ / heads_;
    const RegionOperand elements{.size = rows_ * units_, .strides = {0, units_, columns, 1}};
    const RegionOperand of_rows{.size = rows_ * heads_, .strides = {0, heads_, 1, 0}};
    Add({.sizes = {1, rows_, heads_, columns},
         .inputs = {elements},
         .outputs = {Out(In(0) * RowSum(In(0)), elements), Out(RowSum(In(0)), of_rows, RegionOutputKind::kRows)}},
        {doubled_}, {NewArray(rows_ * units_), NewArray(rows_ * heads_)});
  }

  std::vector<const void*> Inputs(const std::vector<std::vector<float>>& arrays, size_t k) const {
    std::vector<const void*> inputs;
    for (const int a : inputs_[k]) inputs.push_back(arrays[a].data());
    return inputs;
  }
  std::vector<void*> Outputs(std::vector<std::vector<float>>& arrays, size_t k) const {
    std::vector<void*> outputs;
    for (const int a : outputs_[k]) outputs.push_back(arrays[a].data());
    return outputs;
  }

  const std::int64_t rows_, units_, heads_;
  int gates_ = 0, cell_ = 0, hidden_ = 0, softer_ = 0, doubled_ = 0;
  unsigned next_ = 1;
  std::vector<std::vector<float>> arrays_;
  std::vector<Region> regions_;
  std::vector<std::vector<int>> inputs_, outputs_;
};

}  // namespace

std::string FirstWrongJoined(RegionRunner& runner) {
  int number = 0;
  for (const auto& [rows, units, heads] :
       {std::tuple(3, 8, 2), {2, 40, 20}, {5, 320, 4}, {2, 96, 1}, {2, 96, 96}, {2, 1100, 2}}) {
    JoinedCase joined(rows, units, heads);
    std::string difference = joined.DifferenceOn(runner, StrCat("case", number++));
    if (!difference.empty()) return difference;
  }
  return "";
}

}  // namespace stepnet
