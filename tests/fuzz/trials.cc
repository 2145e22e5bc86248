#include "trials.h"

#include <algorithm>
#include <filesystem>

#include "damage.h"
#include "scratch_folder.h"
#include "stepnet/cells/cell_expand.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/io/npy.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/net.h"
#include "stepnet/tests/core/regions/random_region.h"
#include "stepnet/tools/rnn_runner/checkpoint.h"
#include "stepnet/tools/rnn_runner/sampler.h"
#include "stepnet/tools/rnn_runner/trainer.h"
#include "subjects.h"

namespace stepnet {
namespace {

void Show(std::ostream* show, const NetSubject& subject) {
  if (show == nullptr) return;
  *show << PrintMessageText(subject.net);
  for (const auto& [name, tensor] : subject.feeds) *show << "# " << name << ": " << tensor.Description() << "\n";
  show->flush();
}

void Show(std::ostream* show, const std::string& text) {
  if (show != nullptr) *show << text << "\n" << std::flush;
}

TrialResult TryDamagedNet(unsigned seed, std::ostream* show) {
  std::mt19937 random(seed);
  const NetSubject subject = DamagedNet(random);
  Show(show, subject);
  return TryNet(subject.net, subject.feeds, random);
}

TrialResult TryGradients(unsigned seed, std::ostream* show) {
  std::mt19937 random(seed);
  NetSubject subject;
  try {
    subject = GradientsOfDamagedNet(random);
  } catch (const Error& error) {
    return RefusedBy(error);
  }
  Show(show, subject);
  return TryNet(subject.net, subject.feeds, random);
}

// What the cell needs from outside, for a short sequence.
NamedTensors FeedsOf(const CellNet& cell, std::mt19937& random) {
  Workspace workspace;
  RunNetOnce(cell.init_net, workspace, {.quiet = true});
  NamedTensors feeds;
  for (const std::string& name : workspace.LocalBlobs()) feeds.emplace_back(name, workspace.GetTensor(name).Clone());
  for (const CellNetInput& input : cell.inputs) {
    std::vector<std::int64_t> sizes;
    for (const std::int64_t size : input.dims) {
      sizes.push_back(size == CellNetInput::kSteps ? 1 + Below(3, random) : size == CellNetInput::kBatch ? 2 : size);
    }
    const Tensor tensor = Tensor::Zeros(input.dtype, Shape(sizes));
    for (std::int64_t i = 0; i < tensor.size() && input.dtype == DType::kFloat; ++i) {
      tensor.data<float>()[i] = static_cast<float>(Below(200, random) - 100) / 100;
    }
    feeds.emplace_back(input.blob, tensor);
  }
  return feeds;
}

std::string RoundTripFault(const std::string& text, const CellSource& cell) {
  if (!IsShortCell(text)) return "";
  const CellDef again = ParseShortCell(PrintShortCell(cell.def), "printed").def;
  return again.SerializeAsString() == cell.def.SerializeAsString() ? "" : "the cell is printed as another one";
}

TrialResult TryDamagedCell(unsigned seed, std::ostream* show) {
  std::mt19937 random(seed);
  const std::string text = DamagedCell(random);
  Show(show, text);
  SetTensorMemoryLimit(TensorMemory().current + (16 << 20));
  return TryCell(text, random);
}

// A folder with what a config refers to.
std::string TrainingFolder() {
  const std::string folder = ScratchFolder() + "/training";
  if (!std::filesystem::exists(folder)) {
    std::filesystem::create_directories(folder);
    WriteFile(folder + "/text", TrainingText());
    WriteFile(folder + "/elman.cell", TrainingCell());
  }
  return folder;
}

// A job with all that it refers to, and its trainer.
struct Training {
  runner::TrainJob job;
  runner::Corpus corpus;
  std::unique_ptr<runner::Trainer> trainer;

  explicit Training(const std::string& config) {
    const std::string path = TrainingFolder() + "/config.prototxt";
    WriteFile(path, config);
    job = runner::ReadTrainJob(path);
    corpus = runner::ReadCorpus(job.text, job.config.validation());
    job.model.vocabulary = corpus.vocabulary.size();
    trainer = std::make_unique<runner::Trainer>(job, corpus, RunOptions{.executor = "serial", .threads = 1});
  }
};

TrialResult TryDamagedConfig(unsigned seed, std::ostream* show) {
  std::mt19937 random(seed);
  const std::string text = DamagedConfig(random);
  Show(show, text);
  SetTensorMemoryLimit(TensorMemory().current + (4 << 20));
  return TryConfig(text);
}

Training& WholeTraining() {
  const CancellationScope unlimited(nullptr);
  static Training training(TrainingConfig());
  return training;
}

TrialResult TryCheckpoint(unsigned seed, std::ostream* show) {
  std::mt19937 random(seed);
  Training& training = WholeTraining();
  SetTensorMemoryLimit(TensorMemory().current + (4 << 20));
  training.trainer->StartAnew();
  runner::Checkpoint checkpoint{.state = {}, .tensors = {}};
  *checkpoint.state.mutable_config() = training.job.config;
  *checkpoint.state.mutable_cell() = training.job.model.cell.def;
  checkpoint.state.set_iteration(2);
  for (const auto& [name, tensor] : training.trainer->Tensors()) checkpoint.tensors.emplace_back(name, tensor.Clone());
  const runner::Checkpoint whole = checkpoint;
  DamageMessage(&checkpoint.state, random);
  if (random() % 2 == 0) Damage(&checkpoint.tensors, random);
  Show(show, PrintMessageText(checkpoint.state));
  const std::string path = ScratchFolder() + "/iteration-2.minidb";
  try {
    WriteCheckpoint(checkpoint, path);
    if (random() % 8 == 0) WriteFile(path, DamagedBytes(ReadFile(path), random));
    const runner::SavedCheckpoint read = runner::ReadCheckpoint(path);
    runner::Differences(read.state, whole.state);
    training.trainer->Restore(read);
    training.trainer->Iterate();
    return {.fault = "", .ran = true};
  } catch (const Error& error) {
    return RefusedBy(error);
  }
}

// What `sample` reads.
TrialResult TryModel(unsigned seed, std::ostream* show) {
  std::mt19937 random(seed);
  const Training& training = WholeTraining();
  SetTensorMemoryLimit(TensorMemory().current + (4 << 20));
  NetDef net = training.trainer->ModelNet(), init_net = training.trainer->ModelInitNet();
  std::string vocabulary = training.corpus.vocabulary.Json();
  switch (random() % 4) {
    case 0: Damage(&init_net, random); break;
    case 1: vocabulary = DamagedText(vocabulary, random); break;
    default: Damage(&net, random);
  }
  Show(show, StrCat(PrintMessageText(net), PrintMessageText(init_net), vocabulary));
  const std::string folder = ScratchFolder() + "/model";
  std::filesystem::create_directories(folder);
  try {
    WriteMessage(net, folder + "/net.pb");
    WriteMessage(init_net, folder + "/init_net.pb");
    WriteFile(folder + "/vocabulary.json", vocabulary);
    runner::Sampler sampler(folder, {.executor = "serial", .threads = 1, .quiet = true});
    for (std::int32_t k = 0; k < 2; ++k) sampler.Read({k});
    return {.fault = "", .ran = true};
  } catch (const Error& error) {
    return RefusedBy(error);
  }
}

TrialResult TryDamagedExprs(unsigned seed, std::ostream* show) {
  std::mt19937 random(seed);
  const std::string text = DamagedExprs(random);
  Show(show, text);
  return TryExprs(text);
}

TrialResult TryDamagedGraph(unsigned seed, std::ostream* show) {
  std::mt19937 random(seed);
  const std::string text = DamagedGraph(random);
  Show(show, text);
  return TryGraph(text);
}

TrialResult TryRegion(unsigned seed, std::ostream* show) {
  std::mt19937 random(seed);
  const bool only_usual = random() % 4 != 0;
  const Region region = RandomRegion({.steps = 2 + static_cast<int>(random() % 20), .only_usual = only_usual}, random);
  Show(show, RegionText(region));
  return {.fault = DifferenceFromDefinition(region, seed), .ran = true};
}

TrialResult TryDamagedTensorFile(unsigned seed, std::ostream* show) {
  std::mt19937 random(seed);
  const std::string bytes = DamagedTensorFile(random);
  Show(show, bytes);
  SetTensorMemoryLimit(TensorMemory().current + (16 << 20));
  return TryTensorFile(bytes);
}

TrialResult Guarded(TrialResult (*run)(unsigned, std::ostream*), unsigned seed, std::ostream* show) {
  const std::int64_t limit = TensorMemory().limit;
  const Cancellation time{std::chrono::seconds(2)};  // beside that of the runs of a net
  const CancellationScope scope(&time);
  TrialResult result;
  try {
    result = run(seed, show);
  } catch (const std::exception& exception) {
    result.fault = StrCat("an exception that is not caught: ", exception.what());
  }
  SetTensorMemoryLimit(limit);
  return result;
}

template <TrialResult (*run)(unsigned, std::ostream*)>
TrialResult Run(unsigned seed, std::ostream* show) {
  return Guarded(run, seed, show);
}

}  // namespace

TrialResult RefusedBy(const Error& error) {
  const bool is_fault = error.code() == ErrorCode::kInternal || error.code() == ErrorCode::kFailed;
  return {.fault = is_fault ? error.what() : "", .ran = false};
}

TrialResult TryCell(const std::string& text, std::mt19937& random) {
  try {
    const CellSource cell = ParseCell(text, "cell");
    if (const std::string fault = RoundTripFault(text, cell); !fault.empty()) return {.fault = fault};
    CellUse use{.training = random() % 2 == 0, .carry = random() % 4 == 0};
    for (const CellSize& size : cell.def.size()) {
      if (size.value() > 8 && size.value() <= 256) use.sizes[size.name()] = 4;
    }
    CellNet made = ExpandCell(cell, use);
    const NamedTensors feeds = FeedsOf(made, random);
    if (random() % 3 == 0) made.net = AddGradients(made.net, made.outputs, made.parameters).net;
    return TryNet(made.net, feeds, random);
  } catch (const Error& error) {
    return RefusedBy(error);
  }
}

TrialResult TryConfig(const std::string& text) {
  try {
    const Training training(text);
    training.trainer->Iterate();
    training.trainer->Validate();
    return {.fault = "", .ran = true};
  } catch (const Error& error) {
    return RefusedBy(error);
  }
}

const std::vector<TrialKind>& TrialKinds() {
  static const std::vector<TrialKind> kinds = {
      {"nets", Run<TryDamagedNet>},
      {"gradients", Run<TryGradients>},
      {"cells", Run<TryDamagedCell>},
      {"configs", Run<TryDamagedConfig>},
      {"models", Run<TryModel>},
      {"checkpoints", Run<TryCheckpoint>},
      {"tensors", Run<TryDamagedTensorFile>},
      {"expressions", Run<TryDamagedExprs>},
      {"graphs", Run<TryDamagedGraph>},
      {"regions", Run<TryRegion>},
  };
  return kinds;
}

}  // namespace stepnet
