// rnn_runner train: a language model, trained on a text.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/checkpoint.h"
#include "stepnet/tools/rnn_runner/command_files.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/learning_curve.h"
#include "stepnet/tools/rnn_runner/made_folder.h"
#include "stepnet/tools/rnn_runner/metrics_reader.h"
#include "stepnet/tools/rnn_runner/trained_model.h"
#include "stepnet/tools/rnn_runner/trainer.h"
#include "stepnet/tools/rnn_runner/training_progress.h"
#include "stepnet/tools/rnn_runner/watch.h"
#include "stepnet/tools/rnn_runner/weights_flag.h"

DEFINE_bool(fresh, false, "start anew where the folder holds a run already, and overwrite it");
DEFINE_int64(stop_after, -1, "stop as ^C does when so many iterations are done in all; -1: when all are");
DECLARE_string(output_dir);

namespace stepnet::runner {
namespace {

constexpr int kInterrupted = 130;      // as shells call the end by SIGINT
constexpr int kTracedIterations = 10;  // more would be much to look at, and each is like the others
constexpr const char* kCurve = "learning_curve.png";

volatile std::sig_atomic_t stop_requested = 0;

// The first SIGINT or SIGTERM asks to stop behind the iteration at hand, the second one ends the process. So does a
// SIGHUP, but a terminal that goes away sends several; under nohup, which ignores it, the run goes on.
//
// Handlers have a stack of their own: code that oneDNN generates uses the stack pointer for other things, and a handler
// on "the stack" would then write anywhere.
void StopOnSignals() {
  alignas(64) static std::array<std::byte, 256 * 1024> memory;
  const stack_t stack = {.ss_sp = memory.data(), .ss_flags = 0, .ss_size = memory.size()};
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_handler = [](int) { stop_requested = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART | SA_ONSTACK;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction before = {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler == SIG_IGN) return;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigaction(SIGHUP, &action, nullptr);
}

bool AsksToStop(const Cancellation* limit) {
  if (limit == nullptr) return false;
  try {
    limit->Check();
    return false;
  } catch (const Error&) {
    return true;
  }
}

double PeakOfProcess() {
  struct rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

std::string MemoryText() {
  return StrCat(Bytes(static_cast<double>(TensorMemory().peak)), " for tensors, ", Bytes(PeakOfProcess()),
                " for the process", DevicePeakText(DeviceNamedByFlags()));
}

// Does all that a run does once, and forgets it: what it took is what the run will take.
void Rehearse(Trainer* trainer) {
  trainer->Iterate();
  trainer->Validate();
  WriteMessage(trainer->ModelInitNet(), "/dev/null");
  WriteCheckpoint({.state = {}, .tensors = trainer->Tensors()}, "/dev/null");
  trainer->StartAnew();
  std::cerr << Count(trainer->num_parameters(), "parameter") << "; memory: " << MemoryText() << "\n";
}

// A folder that is this process's alone until the object or, in whatever way, the process ends.
class OwnFolder {
 public:
  // Makes the folder where there is none. Throws kInputOutput.
  explicit OwnFolder(const std::string& path) : made_(path, &fault_) {
    descriptor_ = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor_ < 0) {
      throw Error(ErrorCode::kInputOutput, StrCat("cannot make the folder ", path, ": ", std::strerror(errno)));
    }
    if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
    close(descriptor_);
    throw Error(ErrorCode::kInputOutput, StrCat(path, " is in use by another run"));
  }
  ~OwnFolder() { close(descriptor_); }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;

 private:
  std::error_code fault_;  // opening it tells, too
  const MadeFolder made_;
  int descriptor_;
};

std::string CheckpointsIn(const std::string& folder) { return folder + "/checkpoints"; }

// The files that a run has in its folder, beside checkpoints.
std::vector<std::string> FileNames() {
  std::vector<std::string> names = TrainedModel::FileNames();
  for (const std::string& path : {MetricsCsv(""), MetricsEvents("")}) {
    names.push_back(std::filesystem::path(path).filename().string());
  }
  names.emplace_back(kCurve);
  return names;
}

bool IsFileOfRun(const std::string& name) { return std::ranges::count(FileNames(), name) > 0; }

// What the config names is read, and the run writes its files, also over those of an old one with --fresh.
void NoteFilesOfRun(const TrainJob& job) {
  NoteRead(job.text);
  NoteRead(job.cell);
  const auto is_written = [](const std::string& name) {
    return IsFileOfRun(name) || IsFileOfRun(std::string(FileOfTemporary(name)));
  };
  NoteWritten(FLAGS_output_dir, "--output_dir", is_written);
  NoteWritten(CheckpointsIn(FLAGS_output_dir), "--output_dir", CheckpointFolder::IsFileName);
}

class TrainingRun {
 public:
  TrainingRun(const TrainJob& job, const Corpus& corpus, const RunOptions& options)
      : job_(job),
        folder_(FLAGS_output_dir),
        own_folder_(folder_),
        trainer_(job, corpus, options),
        model_(folder_, corpus.vocabulary, trainer_),
        checkpoints_(CheckpointsIn(folder_), job.config.keep_checkpoints()) {
    *state_.mutable_config() = job.config;
    *state_.mutable_cell() = job.model.cell.def;
    state_.set_text_crc32c(corpus.crc32c);
    Rehearse(&trainer_);
    if (FLAGS_fresh) checkpoints_.RemoveAll();
    const auto checkpoint = checkpoints_.ReadNewest();
    if (!checkpoint && !FLAGS_fresh) RefuseToOverwrite();
    RemoveTemporaries(folder_, IsFileOfRun);
    if (checkpoint) GoOnFrom(*checkpoint);
    const bool some_are_lost = checkpoint && ForgetLostMetrics();
    metrics_ = std::make_unique<Metrics>(folder_, state_.csv_bytes(), state_.events_bytes());
    if (checkpoint) CheckMetrics(folder_, state_.iteration());
    if (some_are_lost) SaveAgain();
    trace_ = std::make_unique<TraceOfRuns>(trainer_.net());
    stats_ = std::make_unique<StatsOfRuns>(trainer_.net());
  }

  // The exit status. --time_limit stops a run as ^C does, behind an iteration: one that is cut off leaves parameters of
  // which some are new, and nothing that a run could go on from.
  int Run() {
    const Cancellation* const limit = CurrentCancellation();
    const CancellationScope to_the_end(nullptr);
    const std::int64_t iterations = job_.config.iterations();
    TrainingProgress progress(trainer_.iteration(), iterations, job_.config.batch() * job_.config.steps(),
                              {.sum = state_.loss_sum(), .count = state_.loss_count()});
    const std::int64_t end = FLAGS_stop_after < 0 ? iterations : std::min(iterations, FLAGS_stop_after);
    const std::int64_t first = trainer_.iteration();
    while (trainer_.iteration() < end && stop_requested == 0 && !AsksToStop(limit)) {
      IterationMetrics metrics = trainer_.Iterate();
      if (trainer_.iteration() - first == kTracedIterations) trace_->Write();
      if (!std::isfinite(metrics.loss)) ThrowDiverged(metrics.iteration);
      progress.Add(metrics.loss, trainer_.iterations_per_epoch());
      const bool is_end = metrics.iteration == iterations;
      if (is_end || metrics.iteration % job_.config.validate_every() == 0) Validate(&metrics, &progress);
      metrics_->Add(metrics);
      state_.set_loss_sum(progress.losses().sum);
      state_.set_loss_count(progress.losses().count);
      if (is_end || metrics.iteration % job_.config.checkpoint_every() == 0) Save();
    }
    const bool is_done = trainer_.iteration() >= iterations;
    if (is_done) {
      if (const ModelFault fault = FaultOfModel()) {
        throw Error(ErrorCode::kInputOutput, StrCat(fault.text, ": it was changed (--fresh starts anew)"));
      }
      Report();
    } else {
      Interrupt();
    }
    stats_->Print();
    trace_->Write();
    return is_done ? kOk : kInterrupted;
  }

 private:
  // Without a checkpoint of a run nobody knows whose the files in its folder are.
  void RefuseToOverwrite() const {
    std::vector<std::string> found;
    for (const std::string& name : FileNames()) {
      std::error_code ignored;  // writing it tells
      if (std::filesystem::exists(folder_ + "/" + name, ignored)) found.push_back(name);
    }
    if (found.empty()) return;
    throw Error(ErrorCode::kInputOutput, StrCat(folder_, " has no checkpoint to go on from, and a run would overwrite ",
                                                Join(found, ", "), " there (--fresh starts anew, and overwrites)"));
  }

  void GoOnFrom(const SavedCheckpoint& checkpoint) {
    const std::string differences = Differences(checkpoint.state, state_);
    if (!differences.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat(folder_, " holds a run with another config (--fresh starts anew): ", differences));
    }
    trainer_.Restore(checkpoint);
    state_ = checkpoint.state;
    state_.mutable_config()->set_iterations(job_.config.iterations());  // there may be more of them
    saved_ = state_.iteration();
    std::cerr << "going on behind iteration " << state_.iteration() << "\n";
    if (state_.has_best_bits()) CheckModel(checkpoint);
  }

  // Files of metrics that were removed begin anew. Returns whether there are some.
  bool ForgetLostMetrics() {
    const auto is_lost = [&](const std::string& path, std::int64_t bytes) {
      std::error_code ignored;  // opening it tells
      if (bytes == 0 || std::filesystem::exists(path, ignored)) return false;
      std::cerr << PrintableLine(path) << " is missing; a new one begins behind iteration " << state_.iteration()
                << "\n";
      return true;
    };
    const bool lacks_csv = is_lost(MetricsCsv(folder_), state_.csv_bytes());
    const bool lacks_events = is_lost(MetricsEvents(folder_), state_.events_bytes());
    if (lacks_csv) state_.set_csv_bytes(0);
    if (lacks_events) state_.set_events_bytes(0);
    return lacks_csv || lacks_events;
  }

  struct ModelFault {
    std::string text;           // empty: there is none
    bool may_be_newer = false;  // it is one of this run's shape, with other values than the best one of the checkpoint
    explicit operator bool() const { return !text.empty(); }
  };

  // What is wrong with the file of the best model's parameters.
  ModelFault FaultOfModel() const {
    std::uint32_t checksum = 0;
    if (const auto fault = model_.FaultOfParameters(&checksum)) return {.text = *fault};
    if (!state_.has_best_model_crc32c() || state_.best_model_crc32c() == checksum) return {};
    return {.text = StrCat(folder_, "/init_net.pb does not hold the best model, that of iteration ",
                           state_.best_iteration()),
            .may_be_newer = true};
  }

  // What others did to the files of the best model since they were written is mended where it can be, and said.
  void CheckModel(const SavedCheckpoint& newest) {
    for (const std::string& file : model_.Mend()) {
      std::cerr << PrintableLine(file) << " was missing or not as this run wrote it; it is written anew\n";
    }
    const ModelFault fault = FaultOfModel();
    if (!fault) return;
    const std::int64_t best = state_.best_iteration();
    if (RestoreModel(best, newest)) {
      std::cerr << PrintableLine(fault.text) << "; written anew from the checkpoint of iteration " << best << "\n";
      return;
    }
    if (fault.may_be_newer && state_.iteration() < job_.config.iterations()) {
      // A run that was killed between a model and the next checkpoint writes the same model again.
      std::cerr << PrintableLine(fault.text) << "; where it is a newer one, the run comes to it again\n";
      return;
    }
    const std::string lost = StrCat(fault.text, "; the best model, that of iteration ", best, ", is lost");
    if (state_.iteration() >= job_.config.iterations()) {
      throw Error(ErrorCode::kInputOutput, StrCat(lost, ", and all iterations are done (--fresh starts anew)"));
    }
    std::cerr << PrintableLine(lost) << "; from here on another one is looked for\n";
    state_.clear_best_bits();
    state_.clear_best_iteration();
    state_.clear_best_model_crc32c();
  }

  // Writes the model of the checkpoint of an iteration. False where there is none of this run.
  bool RestoreModel(std::int64_t iteration, const SavedCheckpoint& newest) {
    const auto checkpoint = checkpoints_.Read(iteration);
    if (!checkpoint || !Differences(checkpoint->state, newest.state).empty()) return false;
    trainer_.Restore(*checkpoint);
    model_.Write();
    trainer_.Restore(newest);
    return true;
  }

  void Validate(IterationMetrics* metrics, TrainingProgress* progress) {
    const double bits = trainer_.Validate();
    metrics->validation_bits = bits;
    const bool is_best = !state_.has_best_bits() || bits < state_.best_bits();
    if (is_best) {
      state_.set_best_bits(bits);
      state_.set_best_iteration(metrics->iteration);
      state_.set_best_model_crc32c(model_.Write());
    }
    progress->ShowValidation(bits, is_best);
  }

  [[noreturn]] void ThrowDiverged(std::int64_t iteration) const {
    const OptimizerDef& optimizer = job_.config.optimizer();
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("the loss of iteration ", iteration, " is infinite or no number; a lower ",
                       "optimizer.learning_rate than ", optimizer.learning_rate(),
                       optimizer.clip_norm() > 0 ? "" : " or an optimizer.clip_norm", " may help", KeptText()));
  }

  std::string KeptText() const {
    return saved_ >= 0 ? StrCat("; the checkpoint of iteration ", saved_, " is kept") : "";
  }

  void Save() {
    if (saved_ != trainer_.iteration()) SaveAgain();
  }

  void SaveAgain() {
    try {
      metrics_->Sync();
      state_.set_iteration(trainer_.iteration());
      state_.set_csv_bytes(metrics_->csv_bytes());
      state_.set_events_bytes(metrics_->events_bytes());
      checkpoints_.Write({.state = state_, .tensors = trainer_.Tensors()});
    } catch (const Error& error) {
      throw Error(error.code(), StrCat(error.message(), KeptText()));
    }
    saved_ = trainer_.iteration();
  }

  void Interrupt() {
    Save();
    std::cerr << "stopped behind iteration " << trainer_.iteration() << "; the same command goes on from there\n";
  }

  void Report() const {
    const bool is_drawn = DrawLearningCurve(MetricsCsv(folder_), StrCat(folder_, "/", kCurve), job_.config.text());
    std::cerr << "memory at its peak: " << MemoryText() << "\n";
    char bits[32];
    std::snprintf(bits, sizeof(bits), "%.4f", state_.best_bits());
    std::cout << "best model: " << bits << " bits per character of the validation text, after iteration "
              << state_.best_iteration() << "\nwritten to " << PrintableLine(folder_) << ": init_net.pb, net.pb, "
              << "vocabulary.json; metrics.csv, events.out.tfevents.stepnet"
              << (is_drawn ? ", learning_curve.png\n" : "\n");
  }

  const TrainJob& job_;
  const std::string folder_;
  const OwnFolder own_folder_;
  Trainer trainer_;
  const TrainedModel model_;
  const CheckpointFolder checkpoints_;
  TrainState state_;
  std::int64_t saved_ = -1;  // iteration of the newest checkpoint
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<TraceOfRuns> trace_;
  std::unique_ptr<StatsOfRuns> stats_;
};

int Train(const std::vector<std::string>& operands) {
  const std::string& path = operands.front();
  const RunOptions options = RunOptionsFromFlags();
  TrainJob job = ReadTrainJob(path);
  if (FLAGS_output_dir.empty()) FLAGS_output_dir = std::filesystem::path(path).replace_extension(".run").string();
  NoteFilesOfRun(job);
  const Corpus corpus = ReadCorpus(job.text, job.config.validation());
  job.model.vocabulary = corpus.vocabulary.size();
  std::cerr << PrintableLine(job.text) << ": " << Count(static_cast<std::int64_t>(corpus.numbers.size()), "character")
            << ", " << corpus.vocabulary.size() << " different ones; " << corpus.validation().size()
            << " for validation\n";
  try {
    ResetPeakTensorMemory();
    StopOnSignals();
    return TrainingRun(job, corpus, options).Run();
  } catch (...) {
    throw CurrentError().At({.file = path});
  }
}

// Says of a field of the config that it is no flag; empty for other names.
std::string UnknownFlag(const std::string& name) {
  if (std::string advice = AdviceOnWeights(name); !advice.empty()) return advice;
  if (name == "config") return "the config is the operand: rnn_runner train CONFIG";
  if (name == "resume") return "the same command goes on from the newest checkpoint, without a flag";
  const auto is_of = [&](const google::protobuf::Descriptor* type) { return type->FindFieldByName(name) != nullptr; };
  std::string block;
  if (is_of(CellOptions::descriptor())) block = "options";
  if (is_of(OptimizerDef::descriptor())) block = "optimizer";
  if (block.empty() && !is_of(TrainConfig::descriptor())) return "";
  return StrCat("the config says it, as ", block, block.empty() ? "" : " { ", name, ": …", block.empty() ? "" : " }");
}

std::vector<FlagUse> TrainFlags() {
  std::vector<FlagUse> flags = {
      {.name = "output_dir",
       .value = "D",
       .doc = "folder of the run; default: CONFIG with the ending .run; made when absent",
       .kind = ValueKind::kFolder},
      {.name = "fresh"},
      {.name = "stop_after", .value = "N", .min = -1},
      {.name = "trace",
       .value = "F.json",
       .doc = "file to write what ran when, on which thread, in the first 10 iterations of this\n"
              "process: Chrome's trace format, for ui.perfetto.dev",
       .kind = ValueKind::kOutputFile},
      StatsFlag()};
  for (FlagUse& flag : ExecutorFlags()) flags.push_back(std::move(flag));
  return WithCommonFlags(std::move(flags));
}

}  // namespace

const Command kTrain = {
    .name = "train",
    .operands = "CONFIG",
    .doc = "trains a language model on a text",
    .details =
        "CONFIG is text of a TrainConfig (docs/training.md): the text, the cell, sizes, the optimizer. Writes metrics\n"
        "(CSV and TensorBoard), checkpoints, and the model that predicts the validation text best, which `run` and\n"
        "`sample` take. Stopped by ^C or in any other way, the same command goes on from the last checkpoint, bit for\n"
        "bit as if it had never stopped; one that was killed before its first checkpoint starts anew with --fresh.\n"
        "Exit status 130: stopped, with a checkpoint, by ^C, --stop_after or --time_limit.",
    .example =
        "rnn_runner train examples/char_lm/train.prototxt --output_dir=/tmp/shakespeare\n"
        "rnn_runner sample /tmp/shakespeare --prompt=\"ROMEO:\"",
    .flags = TrainFlags(),
    .min_operands = 1,
    .max_operands = 1,
    .unknown_flag = UnknownFlag,
    .run = Train,
};

}  // namespace stepnet::runner
