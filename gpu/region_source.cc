#include "stepnet/gpu/region_source.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <ranges>
#include <utility>

#include "stepnet/core/error.h"
#include "stepnet/core/regions/region_sums.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/region_printer.h"

namespace stepnet {
namespace {

constexpr int kThreadsOfElements = 256;

}  // namespace

std::string SharedMemory(std::int64_t words) {
  return words == 0 ? "unsigned long long* const shared = nullptr;"
                    : StrCat("__shared__ unsigned long long shared[", words, "];");
}

std::vector<int> RegionPrinter::OutputsOf(bool are_sums) const {
  std::vector<int> outputs;
  for (int o = 0; o < std::ssize(region_.outputs); ++o) {
    if ((region_.outputs[o].kind == RegionOutputKind::kSums) == are_sums) outputs.push_back(o);
  }
  return outputs;
}

// Sums over the same dimensions are one kernel.
std::vector<std::vector<int>> RegionPrinter::SumGroups() const {
  std::vector<std::vector<int>> groups;
  std::vector<unsigned> kept_of_group;
  for (const int o : OutputsOf(/*are_sums=*/true)) {
    unsigned kept = 0;
    for (int d = 0; d < kRegionDims; ++d) {
      if (region_.sizes[d] != 1 && region_.outputs[o].memory.strides[d] != 0) kept |= 1u << d;
    }
    if (SumsRows(region_, region_.outputs[o])) kept |= 1u << kRegionDims;
    const auto found = std::ranges::find(kept_of_group, kept);
    if (found != kept_of_group.end()) {
      groups[found - kept_of_group.begin()].push_back(o);
    } else {
      kept_of_group.push_back(kept);
      groups.push_back({o});
    }
  }
  return groups;
}

Nodes RegionPrinter::WantedOf(const KernelWork& work, bool of_elements) const {
  Nodes wanted;
  for (const int o : work.outputs) {
    if (of_elements != (region_.outputs[o].kind == RegionOutputKind::kRows)) {
      wanted.push_back(region_.outputs[o].value.node());
    }
  }
  if (!of_elements) wanted.insert(wanted.end(), work.to_scratch.begin(), work.to_scratch.end());
  if (!of_elements || !work.checks) return wanted;
  for (const Expr& require : nodes_.requirements) {
    wanted.insert(wanted.end(), require->Operands().begin(), require->Operands().end());
  }
  return wanted;
}

bool RegionPrinter::HasRows(const KernelWork& work) const {
  return !WantedOf(work, /*of_elements=*/false).empty() || !nodes_.ReductionsOf(WantedOf(work, true)).empty();
}

// Gives the strides of all operands that the work touches.
std::vector<RegionIndex> RegionPrinter::StridesOf(const KernelWork& work) const {
  Nodes wanted = WantedOf(work, true);
  std::ranges::copy(WantedOf(work, false), std::back_inserter(wanted));
  std::vector<RegionIndex> strides;
  for (const ExprNode* node : nodes_.Below(wanted)) {
    if (node->op == ExprOp::kInput) strides.push_back(region_.inputs[node->number].strides);
  }
  for (const int o : work.outputs) strides.push_back(region_.outputs[o].memory.strides);
  return strides;
}

unsigned RegionPrinter::UsedIndices(const KernelWork& work) const {
  Nodes wanted = WantedOf(work, true);
  std::ranges::copy(WantedOf(work, false), std::back_inserter(wanted));
  unsigned used = 0;
  for (const ExprNode* node : nodes_.Below(wanted)) {
    if (node->op == ExprOp::kIndex) used |= 1u << node->number;
  }
  return used;
}

bool RegionPrinter::IsNarrow(const std::vector<SpaceDim>& space, const KernelWork& work, std::int64_t count) const {
  return !options_.is_always_wide && FitsNarrow(count) &&
         std::ranges::all_of(space, [](const SpaceDim& dim) { return FitsNarrow(dim.size); }) &&
         std::ranges::all_of(StridesOf(work), [&](const RegionIndex& strides) { return FitsNarrow(space, strides); });
}

void RegionPrinter::Add(KernelText& text, std::int64_t threads_needed, int threads_of_block, bool threads_exchange) {
  if (IsOfGroups()) {
    source_.launches.push_back(text.FinishFunction(&source_.kernels));
    return;
  }
  if (threads_needed == 0) return;
  source_.launches.push_back(text.Finish(threads_needed, threads_of_block, &source_.kernels));
  source_.launches.back().threads_exchange = threads_exchange;
}

void RegionPrinter::PrintElements(const KernelWork& work) {
  KernelText text(region_, options_, nodes_, work.kind);
  const std::vector<RegionIndex> strides = StridesOf(work);
  std::vector<SpaceDim> space = JoinDims(region_.sizes, 0, kRegionDims, strides, UsedIndices(work));
  const std::int64_t elements = region_.NumElements();
  const bool is_narrow = IsNarrow(space, work, elements);
  text.SetSpace(space, is_narrow, "e");
  if (IsOfGroups()) {
    PrintElementsOfGroup(text, work, space);
    return Add(text, elements, kThreadsOfElements);
  }
  text.Line(StrCat("const Index e = static_cast<Index>(blockIdx.x) * ", kThreadsOfElements,
                   " + static_cast<Index>(threadIdx.x);"));
  text.Line(StrCat("if (e >= ", text.Count("elements", elements), ") return;"));
  const int mark = text.Mark();
  text.Declare(WantedOf(work, true));
  if (work.checks) text.CheckRequirements("e");
  for (const int o : work.outputs) text.Store(o, region_.outputs[o].value.node());
  if (elements > 0) text.InsertIndices(mark, space, "e");
  Add(text, elements, kThreadsOfElements);
}

// A thread reads all that it needs before it writes, where that fits into its registers: reads would wait for each
// other behind writes.
void RegionPrinter::PrintElementsOfGroup(KernelText& text, const KernelWork& work,
                                         const std::vector<SpaceDim>& space) const {
  constexpr std::int64_t kMaxWords = 64;
  const std::int64_t elements = region_.NumElements() / blocks_.groups;
  const std::int64_t of_thread = (elements + blocks_.threads - 1) / blocks_.threads;
  const std::string of_group = text.Count("elements_of_group", elements);
  std::vector<int> marks;
  const auto open = [&] {
    text.Line("#pragma unroll");
    text.Open(StrCat("for (int j = 0; j < ", of_thread, "; ++j) {"));
    text.Line(StrCat("const Index k = static_cast<Index>(threadIdx.x) + ", blocks_.threads, " * j;"));
    text.Line(StrCat("if (k >= ", of_group, ") continue;"));
    text.Line(StrCat("const Index e = static_cast<Index>(blockIdx.x) * ", of_group, " + k;"));
    marks.push_back(text.Mark());
  };
  const Nodes wanted = WantedOf(work, true);
  Nodes inputs = nodes_.Below(wanted);
  std::erase_if(inputs, [](const ExprNode* node) { return node->op != ExprOp::kInput; });
  std::int64_t words = 0;
  for (const ExprNode* node : inputs) words += of_thread * std::max<std::int64_t>(DTypeBytes(node->dtype) / 4, 1);
  if (of_thread > 1 && words <= kMaxWords) {
    text.Keep(inputs, static_cast<int>(of_thread));
    open();
    text.Declare(inputs);
    text.Close();
  }
  open();
  text.Declare(wanted);
  for (const int o : work.outputs) text.Store(o, region_.outputs[o].value.node());
  for (const int mark : std::ranges::reverse_view(marks)) text.InsertIndices(mark, space, "e");
  text.Close();
}

std::string RegionPrinter::ScratchOf(KernelText& text, const ExprNode* reduction, const std::string& row) const {
  const auto slot = std::ranges::find(scratch_, reduction) - scratch_.begin();
  const std::string offset = text.Parameter("long long", StrCat("scratch", slot),
                                            static_cast<std::uint64_t>(slot * region_.NumRows()) * sizeof(double));
  return StrCat("reinterpret_cast<", DeviceTypeName(reduction->dtype), "*>(p.scratch + ", offset, ")[", row, "]");
}

void RegionPrinter::PrintMain(const KernelWork& work) {
  if (work.outputs.empty() && !work.checks && work.to_scratch.empty()) return;
  HasRows(work) ? PrintRows(work) : PrintElements(work);
}

RegionSource RegionPrinter::Print() {
  const std::vector<std::vector<int>> groups = SumGroups();
  std::vector<KernelWork> sums;
  Nodes wanted;
  for (const std::vector<int>& outputs : groups) {
    sums.push_back({.kind = StrCat("sums", outputs[0]), .outputs = outputs});
    std::ranges::copy(WantedOf(sums.back(), true), std::back_inserter(wanted));
  }
  scratch_ = nodes_.ReductionsOf(wanted);
  source_.scratch_bytes = std::ssize(scratch_) * region_.NumRows() * static_cast<std::int64_t>(sizeof(double));
  source_.requirements = nodes_.requirements;
  KernelWork main{.kind = "elements", .outputs = OutputsOf(false), .checks = !nodes_.requirements.empty()};
  const bool main_has_rows = HasRows(main);
  if (main_has_rows) main.kind = "rows";
  // What is in place is written last.
  const bool main_is_first = main_has_rows && region_.in_place.empty() && !scratch_.empty();
  if (main_is_first) {
    main.to_scratch = scratch_;
    PrintMain(main);
  } else {
    PrintMain({.kind = "row_values", .to_scratch = scratch_});
  }
  for (const KernelWork& work : sums) PrintSums(work);
  if (!main_is_first) PrintMain(main);
  return std::move(source_);
}

namespace {

void CheckValues(const Region& region, const RegionSourceOptions& options) {
  for (const int i : options.values) {
    const RegionOperand& input = region.inputs.at(i);
    bool moves = false;
    for (int d = 0; d < kRegionDims; ++d) moves |= region.sizes[d] > 1 && input.strides[d] != 0;
    if (!moves && input.dtype == DType::kInt64) continue;
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("input ", i, " of ", options.name, " is to be a parameter of the kernel and is ",
                       moves ? "not the same at every index" : StrCat(DTypeName(input.dtype), ", not int64")));
  }
}

// What of a name kernels may be called: types of operators may have dots.
std::string KernelName(std::string name) {
  const auto is_part_of_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  for (char& c : name) c = is_part_of_name(c) ? c : '_';
  return name;
}

}  // namespace

RegionSourceOptions SourceOptionsOf(const FormulaRegion& formula, std::string_view name) {
  RegionSourceOptions options{.name = std::string(name)};
  for (int i = 0; i < std::ssize(formula.inputs); ++i) {
    if (formula.inputs[i] == kOperatorOfRun || formula.inputs[i] == kSeedOfRun) options.values.push_back(i);
  }
  return options;
}

namespace {

// Adds what launches of the region are bound by.
void NoteOperands(const Region& region, RegionSource* source) {
  const auto bytes = [](const RegionOperand& operand) { return operand.offset * DTypeBytes(operand.dtype); };
  for (const RegionOperand& input : region.inputs) source->input_bytes.push_back(bytes(input));
  for (const RegionOutput& output : region.outputs) source->output_bytes.push_back(bytes(output.memory));
}

int ThreadsOfGroups(std::span<const Region* const> regions, std::int64_t groups) {
  std::int64_t most = 0;
  for (const Region* region : regions) most = std::max(most, region->NumElements() / groups);
  return most > kThreadsOfElements ? 2 * kThreadsOfElements : kThreadsOfElements;
}

}  // namespace

RegionSource PrintRegion(const Region& region, const RegionSourceOptions& named) {
  RegionSourceOptions options = named;
  options.name = KernelName(named.name);
  CheckValues(region, options);
  RegionSource source = RegionPrinter(region, options).Print();
  NoteOperands(region, &source);
  source.options = options;
  return source;
}

RegionSource PrintRegions(std::span<const Region* const> regions, std::int64_t groups,
                          const RegionSourceOptions& named) {
  if (regions.size() == 1) return PrintRegion(*regions[0], named);
  const std::string name = StrCat(KernelName(named.name), "_joined");
  const int threads = ThreadsOfGroups(regions, groups);
  RegionSource source;
  RegionLaunch launch{.kernel = name, .blocks = groups, .threads = threads, .threads_exchange = true};
  std::string parameters, calls;
  std::int64_t shared_words = 0;
  for (size_t k = 0; k < regions.size(); ++k) {
    RegionSourceOptions options = named;
    options.name = StrCat(name, k);
    RegionPrinter printer(*regions[k], options, {.groups = groups, .threads = threads});
    RegionSource& part = source.joined.emplace_back(printer.Print());
    NoteOperands(*regions[k], &part);
    part.options = options;
    shared_words = std::max(shared_words, printer.shared_words());
    const RegionLaunch& of_part = part.launches.at(0);
    source.kernels += part.kernels;
    launch.words.insert(launch.words.end(), of_part.words.begin(), of_part.words.end());
    parameters += StrCat("  ", of_part.kernel, "_parameters p", k, ";\n");
    calls += StrCat(k == 0 ? "" : "  __syncthreads();\n", "  ", of_part.kernel, "(p.p", k, ", shared);\n");
  }
  source.kernels +=
      StrCat("struct ", name, "_parameters {\n", parameters, "};\nextern \"C\" __global__ void ", "__launch_bounds__(",
             threads, ") ", name, "(const __grid_constant__ ", name, "_parameters p) {\n  ", SharedMemory(shared_words),
             "\n  WaitForKernelsBefore();\n  if (IsStopped(p.p0.stop)) return;\n", calls, "}\n");
  source.launches.push_back(std::move(launch));
  source.options = named;
  return source;
}

std::string RegionSource::Text() const {
  return StrCat(DeviceCodeText(), "\nusing namespace stepnet::device;\n", kernels);
}

std::vector<std::uint64_t> RegionSource::Bind(const RegionLaunch& launch, const RegionPointers& pointers) const {
  if (!joined.empty()) return BindJoined(pointers);
  std::vector<std::uint64_t> words = launch.words;
  size_t next = 0;
  const auto address = [](const void* pointer) { return std::uint64_t{std::bit_cast<std::uintptr_t>(pointer)}; };
  const auto bind = [&](const void* pointer, std::int64_t bytes) {
    words[next++] = address(pointer) + static_cast<std::uint64_t>(bytes);
  };
  for (size_t i = 0; i < input_bytes.size(); ++i) {
    if (std::ranges::count(options.values, static_cast<int>(i)) > 0) {
      std::memcpy(&words[next++], static_cast<const char*>(pointers.inputs[i]) + input_bytes[i], sizeof(std::int64_t));
    } else {
      bind(pointers.inputs[i], input_bytes[i]);
    }
  }
  for (size_t o = 0; o < output_bytes.size(); ++o) bind(pointers.outputs[o], output_bytes[o]);
  words[next++] = address(pointers.scratch);
  words[next++] = address(pointers.fault);
  for (const std::uint64_t word : std::bit_cast<std::array<std::uint64_t, 4>>(pointers.site)) words[next++] = word;
  words[next] = address(pointers.stop);
  return words;
}

std::vector<std::uint64_t> RegionSource::BindJoined(const RegionPointers& pointers) const {
  std::vector<std::uint64_t> words;
  RegionPointers of_part = pointers;
  size_t input = 0, output = 0;
  for (const RegionSource& part : joined) {
    of_part.inputs = pointers.inputs.subspan(input, part.input_bytes.size());
    of_part.outputs = pointers.outputs.subspan(output, part.output_bytes.size());
    input += part.input_bytes.size();
    output += part.output_bytes.size();
    std::ranges::copy(part.Bind(part.launches[0], of_part), std::back_inserter(words));
  }
  return words;
}

}  // namespace stepnet
