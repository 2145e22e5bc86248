#include "subjects.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <span>
#include <vector>

#include "damage.h"
#include "scratch_folder.h"
#include "stepnet/cells/cell_expand.h"
#include "stepnet/compiler/graph_text.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/error.h"
#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/io/npy.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/io/zip_archive.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/net.h"
#include "stepnet/proto/cell.pb.h"
#include "stepnet/proto/train.pb.h"
#include "stepnet/tests/core/expressions/random_exprs.h"
#include "stepnet/tests/core/source_path.h"
#include "stepnet/tests/executor/random_step.h"

namespace stepnet {
namespace {

using Paths = std::vector<std::filesystem::path>;

template <typename Items>
const auto& AnyOf(const Items& items, std::mt19937& random) {
  return items[Below(static_cast<int>(std::size(items)), random)];
}

// In a fixed order.
Paths PathsIn(const std::string& folder) {
  Paths paths;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath(folder))) paths.push_back(entry.path());
  std::ranges::sort(paths);
  return paths;
}

Tensor RandomTensor(DType dtype, const Shape& shape, std::mt19937& random) {
  Tensor tensor = Tensor::Zeros(dtype, shape);
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    const double number = static_cast<double>(random()) / 2147483648.0 - 1;
    if (dtype == DType::kFloat) tensor.data<float>()[i] = static_cast<float>(number);
    if (dtype == DType::kDouble) tensor.data<double>()[i] = number;
    if (dtype == DType::kInt32) tensor.data<std::int32_t>()[i] = static_cast<std::int32_t>(random() % 4);
    if (dtype == DType::kInt64) tensor.data<std::int64_t>()[i] = static_cast<std::int64_t>(random() % 4);
    if (dtype == DType::kBool) tensor.data<bool>()[i] = random() % 2 == 0;
  }
  return tensor;
}

// Every case with one run whose net is small.
std::vector<NetSubject> SmallGoldenCases() {
  constexpr std::uintmax_t kMaxNetBytes = 12'000;
  std::vector<NetSubject> cases;
  std::vector<std::filesystem::path> folders = PathsIn("tests/golden");
  std::ranges::copy(PathsIn("tests/golden_mxnet"), std::back_inserter(folders));
  for (const std::filesystem::path& folder : folders) {
    const std::filesystem::path net = folder / "net.pb", inputs = folder / "inputs.pb";
    if (!exists(net) || !exists(inputs) || file_size(net) > kMaxNetBytes) continue;
    NetSubject& subject = cases.emplace_back();
    ReadMessage(net.string(), &subject.net);
    subject.feeds = ReadTensors(inputs.string());
  }
  return cases;
}

// A cell over three steps of a batch of two.
NetSubject CellOverSequence(const std::string& path, std::mt19937& random) {
  const CellNet cell = ExpandCell(ReadCell(path), {.training = true});
  NetSubject subject{.net = cell.net, .feeds = {}};
  Workspace workspace;
  RunNetOnce(cell.init_net, workspace);
  for (const std::string& name : workspace.LocalBlobs()) {
    subject.feeds.emplace_back(name, workspace.GetTensor(name).Clone());
  }
  for (const CellNetInput& input : cell.inputs) {
    std::vector<std::int64_t> sizes;
    for (const std::int64_t size : input.dims) {
      sizes.push_back(size == CellNetInput::kSteps ? 3 : size == CellNetInput::kBatch ? 2 : size);
    }
    subject.feeds.emplace_back(input.blob, RandomTensor(input.dtype, Shape(sizes), random));
  }
  return subject;
}

Paths CellFiles() {
  Paths files = PathsIn("examples/cells");
  std::erase_if(files, [](const std::filesystem::path& path) { return path.extension() != ".cell"; });
  return files;
}

std::vector<NetSubject> Cells() {
  std::vector<NetSubject> cells;
  std::mt19937 random(1);
  for (const std::filesystem::path& path : CellFiles()) cells.push_back(CellOverSequence(path.string(), random));
  return cells;
}

// What is made once, in whatever time, whoever is the first to need it.
std::vector<NetSubject> Unlimited(std::vector<NetSubject> (*make)()) {
  const CancellationScope scope(nullptr);
  return make();
}

NetSubject RandomRecurrentNet(std::mt19937& random) {
  const RandomStep step(static_cast<unsigned>(random() % 100'000), random() % 2 == 0 ? 3 : 8, StepOperators::kAny);
  NetSubject subject;
  const bool trains = random() % 3 == 0;
  subject.net = trains ? step.Training() : step.Recurrent();
  constexpr std::int64_t kSteps[] = {1, 2, 3, 5, 9};
  for (const auto& [name, tensor] : step.Feeds(kSteps[random() % 5])) subject.feeds.emplace_back(name, tensor);
  return subject;
}

// The operators before the first gradient operator; of recurrent ones without what belongs to their gradients.
NetDef ForwardPart(const NetDef& net) {
  NetDef forward;
  for (const OperatorDef& op : net.op()) {
    if (op.is_gradient_op() || op.type().ends_with("Gradient")) break;
    OperatorDef& kept = *forward.add_op() = op;
    const auto is_backward = [](const Argument& argument) { return argument.name().starts_with("backward_"); };
    kept.mutable_arg()->erase(std::remove_if(kept.mutable_arg()->begin(), kept.mutable_arg()->end(), is_backward),
                              kept.mutable_arg()->end());
  }
  return forward;
}

TrainConfig SmallConfig() {
  TrainConfig config;
  config.set_text("text");
  config.set_cell("elman.cell");
  config.set_embedding(3);
  CellSize& size = *config.add_size();
  size.set_name("H");
  size.set_value(4);
  config.mutable_options()->set_layers(1);
  config.set_validation(0.2F);
  config.set_batch(2);
  config.set_steps(4);
  config.set_iterations(3);
  config.set_validate_every(2);
  config.set_checkpoint_every(2);
  config.mutable_optimizer()->set_clip_norm(1);
  config.mutable_optimizer()->set_schedule(OptimizerDef::COSINE);
  return config;
}

// The header is text: other dtypes, orders, sizes.
std::string DamagedNpy(const std::string& bytes, std::mt19937& random) {
  constexpr size_t kBeforeHeader = 10;
  const auto length = static_cast<unsigned char>(bytes[8]) + 256U * static_cast<unsigned char>(bytes[9]);
  std::string header = DamagedText(bytes.substr(kBeforeHeader, length), random);
  // Kept as long as it was, unless that is the damage.
  if (random() % 8 != 0) {
    header.resize(length, ' ');
    header.back() = '\n';
  }
  return bytes.substr(0, kBeforeHeader) + header + bytes.substr(kBeforeHeader + length);
}

std::string DamagedMiniDb(const NamedTensors& tensors, std::mt19937& random) {
  const std::string path = ScratchFolder() + "/tensors.minidb";
  WriteMiniDb(tensors, path, /*elements_of_chunk=*/1 + static_cast<std::int64_t>(random() % 8));
  return DamagedBytes(ReadFile(path), random);
}

// The header is text, and has a length before it that fits it, unless that is the damage.
std::string DamagedSafetensors(const NamedTensors& tensors, std::mt19937& random) {
  constexpr size_t kBeforeHeader = 8;
  const std::string path = ScratchFolder() + "/tensors.safetensors";
  WriteTensors(tensors, path);
  const std::string bytes = ReadFile(path);
  if (random() % 4 == 0) return DamagedBytes(bytes, random);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kBeforeHeader);
  const std::string header = DamagedText(bytes.substr(kBeforeHeader, length), random);
  std::string damaged = bytes.substr(0, kBeforeHeader) + header + bytes.substr(kBeforeHeader + length);
  if (random() % 8 != 0) length = header.size();
  std::memcpy(damaged.data(), &length, kBeforeHeader);
  return damaged;
}

// An archive, of which bytes are damaged or an array within, with a checksum that fits it.
std::string DamagedNpz(const NamedTensors& tensors, std::mt19937& random) {
  if (random() % 4 == 0) return DamagedBytes(ReadFile(SourcePath("tests/io/files/deflated.npz")), random);
  const std::string path = ScratchFolder() + "/tensors.npz";
  const bool damages_array = random() % 2 == 0;
  ZipWriter archive(path);
  for (const auto& [name, tensor] : tensors) {
    const NpyBytes npy = EncodeNpy(tensor, name);
    const auto* const elements = static_cast<const char*>(npy.elements.raw());
    std::string bytes = npy.header + std::string(elements, static_cast<size_t>(npy.elements.size_bytes()));
    if (damages_array) bytes = DamagedNpy(bytes, random);
    archive.Add(name + ".npy", {std::as_bytes(std::span(bytes))});
  }
  archive.Commit();
  return damages_array ? ReadFile(path) : DamagedBytes(ReadFile(path), random);
}

std::string Repeated(std::string_view part, int count) {
  std::string text;
  for (int k = 0; k < count; ++k) text += part;
  return text;
}

// Texts as long as `size` says, of the forms that take parsers deep, or far more work than their length.
std::string HardExprs(int size, std::mt19937& random) {
  const std::string input = "in 0 x: float\n";
  constexpr const char* kOpening[] = {"(", "-", "!", "tanh(", "x - (", "where(true, 0, ", "require(", "float(", "- -"};
  switch (random() % 6) {
    case 0: return StrCat(input, "out ", Repeated(AnyOf(kOpening, random), size), "x");
    case 1: return StrCat(input, "out x", Repeated(random() % 2 == 0 ? " - x" : " * x + 1", size));
    case 2: {  // by lines: as deep as there are, as many paths as two to their number
      std::string text = input + "t0 = x\n";
      const bool is_wide = random() % 2 == 0;
      for (int k = 0; k < size; ++k)
        text += StrCat("t", k + 1, is_wide ? StrCat(" = t", k, " * t", k) : StrCat(" = 1 - t", k), "\n");
      return StrCat(text, "out t", size, "\n");
    }
    case 3: return StrCat("in 0 ", Repeated("x", size), ": float\nout $0", Repeated("+$0", size));
    case 4: return StrCat(input, "out require(x < 0, \"", Repeated(random() % 2 == 0 ? "{}" : "\\x00", size), "\", x)");
    default: {
      std::string text;
      for (int k = 0; k < size; ++k) text += StrCat("in ", k, " \"same\": float\n");
      return StrCat(text, "out $0", Repeated(" + $1", size), "\nout $", size - 1, "\n");
    }
  }
}

}  // namespace

NetSubject AnyNet(std::mt19937& random) {
  static const std::vector<NetSubject> golden = Unlimited(SmallGoldenCases), cells = Unlimited(Cells);
  const NetSubject* chosen = nullptr;
  switch (random() % 4) {
    case 0: chosen = &AnyOf(golden, random); break;
    case 1: chosen = &AnyOf(cells, random); break;
    default: return RandomRecurrentNet(random);
  }
  NetSubject subject{.net = chosen->net, .feeds = {}};
  for (const auto& [name, tensor] : chosen->feeds) subject.feeds.emplace_back(name, tensor.Clone());
  return subject;
}

NetSubject DamagedNet(std::mt19937& random) {
  NetSubject subject = AnyNet(random);
  for (unsigned k = 1 + random() % 3; k > 0; --k) Damage(&subject.net, random);
  if (random() % 4 == 0) Damage(&subject.feeds, random);
  return subject;
}

NetSubject GradientsOfDamagedNet(std::mt19937& random) {
  NetSubject subject = AnyNet(random);
  subject.net = ForwardPart(subject.net);
  for (unsigned k = 1 + random() % 2; k > 0; --k) Damage(&subject.net, random);
  std::vector<std::string> losses, inputs;
  for (const OperatorDef& op : subject.net.op()) {
    if (op.output_size() > 0) losses = {op.output(Below(op.output_size(), random))};
  }
  for (const auto& [name, tensor] : subject.feeds) inputs.push_back(name);
  AddBackwardStepNets(&subject.net);
  subject.net = AddGradients(subject.net, losses, inputs).net;
  return subject;
}

std::string DamagedCell(std::mt19937& random) {
  static const Paths files = CellFiles();
  const std::string text = ReadFile(AnyOf(files, random).string());
  if (random() % 2 == 0) return DamagedText(text, random);
  CellDef cell = ParseCell(text, "cell").def;
  for (unsigned k = 1 + random() % 3; k > 0; --k) DamageMessage(&cell, random);
  try {
    if (random() % 2 == 0) return PrintShortCell(cell);
  } catch (const Error&) {  // what the short form cannot say
  }
  return PrintMessageText(cell);
}

std::string DamagedExprs(std::mt19937& random) {
  if (random() % 8 == 0) return HardExprs(1 + Below(4000, random), random);
  const std::vector<Expr> leaves = {Expr::Input(0, "x", DType::kFloat),      Expr::Input(1, "c/prev", DType::kDouble),
                                    Expr::Input(2, "in", DType::kInt32),     Expr::Input(3, "n", DType::kInt64),
                                    Expr::Input(4, "is_last", DType::kBool), Expr::Input(9, "x", DType::kFloat)};
  const auto steps = RandomExprSteps(
      leaves, {.steps = 1 + Below(30, random), .reductions = true, .requires_too = true, .stored_too = true}, random);
  std::vector<Expr> roots = {steps.back().result};
  if (random() % 2 == 0) roots.push_back(AnyOf(steps, random).result);
  std::erase_if(roots, [](const Expr& root) { return root->op == ExprOp::kLiteral; });
  const std::string text = PrintExprs(roots);
  switch (random() % 4) {
    case 0: return text;
    case 1: return DamagedBytes(text, random);
    default: return DamagedText(text, random);
  }
}

namespace {

// The same of what is done around the loop.
void DamageMoves(StepGraph* graph, std::mt19937& random) {
  std::vector<RowMove>& moves = random() % 2 == 0 || graph->after.empty() ? graph->before : graph->after;
  if (moves.empty()) return;
  RowMove& move = moves[Below(static_cast<int>(moves.size()), random)];
  BaseRows& rows = random() % 2 == 0 ? move.to : move.from;
  switch (random() % 9) {
    case 0: rows.base = Below(graph->num_bases + 1, random); break;
    case 1: rows.begin = Below(5, random) - 2; break;
    case 2: rows.end = random() % 2 == 0 ? BaseRows::kEnd : Below(5, random) - 2; break;
    case 3: rows.begins_at_steps = !rows.begins_at_steps; break;
    case 4: move.kind = static_cast<RowMove::Kind>(Below(5, random)); break;
    case 5: move.only_without_steps = !move.only_without_steps; break;
    case 6: std::swap(move, moves[Below(static_cast<int>(moves.size()), random)]); break;
    case 7: (random() % 2 == 0 ? graph->before : graph->after).push_back(RowMove(move)); break;
    default: moves.erase(moves.begin() + Below(static_cast<int>(moves.size()), random));
  }
}

// Changes one thing, so that the graph still has a text, which is often read: it may mean something else, or nothing.
void DamageSlightly(StepGraph* graph, std::mt19937& random) {
  const auto any = [&](const auto& items) { return Below(static_cast<int>(items.size()), random); };
  if (graph->nodes.empty() || graph->values.empty()) return;
  StepNode& node = graph->nodes[any(graph->nodes)];
  StepValue& value = graph->values[any(graph->values)];
  Home& home = graph->homes[value.home];
  switch (random() % 11) {
    case 0: std::swap(value.home, graph->values[any(graph->values)].home); break;
    case 1:
      if (!node.inputs.empty()) node.inputs[any(node.inputs)] = any(graph->values);
      break;
    case 2: std::swap(node, graph->nodes[any(graph->nodes)]); break;
    case 3: home.slot.offset += Below(5, random) - 2; break;
    case 4: home.kept = !home.kept; break;
    case 5:
      if (home.kind == Home::Kind::kOutside && graph->lent.erase(home.slot.base) == 0)
        graph->lent.insert(home.slot.base);
      break;
    case 6: value.added = !value.added; break;
    case 7:
      if (!node.outputs.empty()) node.outputs[any(node.outputs)] = kNoValue;
      break;
    case 8: DamageMoves(graph, random); break;
    case 9:
      if (!graph->stages.empty()) graph->stages[any(graph->stages)].steps_at_once = Below(3, random);
      break;
    default: {
      std::vector<bool> gone(graph->nodes.size(), false);
      gone[any(graph->nodes)] = true;
      graph->Erase(gone);
    }
  }
  graph->FindProducers();
}

}  // namespace

std::string DamagedGraph(std::mt19937& random) {
  const NetSubject subject = AnyNet(random);
  std::vector<StepGraph> graphs;
  RunOptions options{
      .executor = "serial", .threads = 1, .opt_level = static_cast<int>(random() % (kMaxOptLevel + 1)), .quiet = true};
  options.on_pass = [&](const std::string&, const StepGraph& graph) { graphs.push_back(graph); };
  Workspace workspace;
  for (const auto& [name, tensor] : subject.feeds) workspace.SetTensor(name, tensor.Clone());
  Net::Create(subject.net, workspace, options)->Run();
  if (graphs.empty()) return "step none {\n}\n";
  StepGraph graph = graphs[random() % graphs.size()];
  const bool is_damaged_as_graph = random() % 2 == 0;
  if (is_damaged_as_graph) DamageSlightly(&graph, random);
  const std::string text = GraphText(graph);
  if (is_damaged_as_graph) return text;
  return random() % 4 == 0 ? DamagedBytes(text, random) : DamagedText(text, random);
}

std::string DamagedConfig(std::mt19937& random) {
  TrainConfig config = SmallConfig();
  if (random() % 4 == 0) return DamagedText(PrintMessageText(config), random);
  for (unsigned k = 1 + random() % 3; k > 0; --k) DamageMessage(&config, random);
  return PrintMessageText(config);
}

std::string TrainingConfig() { return PrintMessageText(SmallConfig()); }

std::string TrainingText() {
  std::string text;
  for (int i = 0; i < 40; ++i) text += StrCat("line ", i, " of ", i * i, "\n");
  return text;
}

std::string TrainingCell() { return ReadFile(SourcePath("examples/cells/elman.cell")); }

std::string DamagedTensorFile(std::mt19937& random) {
  const auto dtype = static_cast<DType>(random() % (static_cast<unsigned>(DType::kString) + 1));
  const Tensor tensor = RandomTensor(dtype, {2, 1 + static_cast<std::int64_t>(random() % 4), 3}, random);
  const NamedTensors two = {{"x", tensor}, {"y", Tensor::Of<float>({2}, {1, 2})}};
  switch (random() % 6) {
    case 0: {
      const std::string path = ScratchFolder() + "/tensor.npy";
      WriteNpy(tensor, path);
      const std::string bytes = ReadFile(path);
      return random() % 4 == 0 ? DamagedBytes(bytes, random) : DamagedNpy(bytes, random);
    }
    case 1: return DamagedMiniDb(two, random);
    case 2: return DamagedSafetensors(tensor.dtype() == DType::kString ? NamedTensors{two[1]} : two, random);
    case 3: return DamagedNpz(tensor.dtype() == DType::kString ? NamedTensors{two[1]} : two, random);
    default: {
      TensorProtos protos;
      *protos.add_protos() = TensorToProto("x", tensor);
      *protos.add_protos() = TensorToProto("y", Tensor::Of<std::int64_t>({2}, {1, 2}));
      for (unsigned k = 1 + random() % 3; k > 0; --k) DamageMessage(&protos, random);
      return random() % 2 == 0 ? protos.SerializePartialAsString() : PrintMessageText(protos);
    }
  }
}

}  // namespace stepnet
