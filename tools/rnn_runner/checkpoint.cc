#include "stepnet/tools/rnn_runner/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/io/minidb.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/training_net.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/report/text.h"

namespace stepnet::runner {
namespace {

constexpr const char* kPrefix = "iteration-";
constexpr const char* kEnding = ".minidb";

[[noreturn]] void Throw(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::kInputOutput, StrCat(path, " ", why));
}

std::filesystem::directory_iterator EntriesOf(const std::string& folder) {
  std::error_code fault;
  std::filesystem::directory_iterator entries(folder, fault);
  if (fault) Throw(folder, StrCat("cannot be read: ", fault.message()));
  return entries;
}

// The last record: its value follows from the others to the byte, so that damage to itself is found too.
std::string ChecksumValue(std::uint32_t checksum) {
  return TensorToBlob(kTrainChecksumBlob, Tensor::Of<std::int64_t>({1}, {checksum})).SerializeAsString();
}

void VerifyChecksum(const std::string& path) {
  if (!LooksLikeMiniDb(path)) Throw(path, "is no checkpoint");
  MiniDbReader reader(path);
  std::string key;
  std::string value;
  std::uint32_t before = 0;  // of all records but the last
  for (std::uint32_t all = 0; reader.Next(&key, &value); all = reader.checksum()) before = all;
  if (key != kTrainChecksumBlob) Throw(path, "is no checkpoint or is cut off: it does not end in a checksum");
  if (value != ChecksumValue(before)) Throw(path, "is damaged: its checksum is not that of what it holds");
}

std::string NameOf(std::int64_t iteration) { return StrCat(kPrefix, iteration, kEnding); }

// The N of iteration-N.minidb; nothing for other names.
std::optional<std::int64_t> IterationOf(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t iteration = 0;
  std::from_chars(name.data() + std::string_view(kPrefix).size(), name.data() + name.size(), iteration);
  return iteration >= 0 && name == NameOf(iteration) ? std::optional(iteration) : std::nullopt;
}

// Throws unless every number of the state is one that a run can have.
void CheckState(const TrainState& state, const std::string& path) {
  const auto check = [&](bool ok, const char* field, const auto& value, const auto&... must) {
    if (!ok) Throw(path, StrCat("is no checkpoint of a run: ", field, " is ", value, ", must be ", must...));
  };
  const std::int64_t iterations = state.config().iterations();
  check(state.iteration() >= 0 && state.iteration() <= iterations, "iteration", state.iteration(), "between 0 and ",
        iterations);
  check(state.csv_bytes() >= 0, "csv_bytes", state.csv_bytes(), "at least 0");
  check(state.events_bytes() >= 0, "events_bytes", state.events_bytes(), "at least 0");
  check(std::isfinite(state.loss_sum()), "loss_sum", state.loss_sum(), "finite");
  check(state.loss_count() >= 0 && state.loss_count() <= state.iteration(), "loss_count", state.loss_count(),
        "between 0 and ", state.iteration());
  check(std::isfinite(state.best_bits()), "best_bits", state.best_bits(), "finite");
  check(state.best_iteration() >= 0 && state.best_iteration() <= state.iteration(), "best_iteration",
        state.best_iteration(), "between 0 and ", state.iteration());
}

// A checkpoint under the name of its iteration. Throws as ReadCheckpoint, and where the name is of another one.
SavedCheckpoint ReadNamed(const std::string& path) {
  SavedCheckpoint checkpoint = ReadCheckpoint(path);
  if (checkpoint.state.iteration() != IterationOf(path)) {
    Throw(path, StrCat("has another name than its iteration, ", checkpoint.state.iteration()));
  }
  return checkpoint;
}

bool IsCheckpoint(const std::string& name) { return IterationOf(name).has_value(); }

}  // namespace

void WriteCheckpoint(const Checkpoint& checkpoint, const std::string& path) {
  MiniDbWriter writer(path);
  AddToMiniDb(checkpoint.tensors, &writer);
  AddToMiniDb({{kTrainStateBlob, Tensor::Of<std::string>(Shape(), {checkpoint.state.SerializeAsString()})}}, &writer);
  writer.Add(kTrainChecksumBlob, ChecksumValue(writer.checksum()));
  writer.Commit();
}

SavedCheckpoint ReadCheckpoint(const std::string& path) {
  VerifyChecksum(path);
  SavedCheckpoint checkpoint{.path = path, .state = {}, .tensors = {}};
  const NamedTensors states = ReadTensors(path, [](const std::string& name) { return name == kTrainStateBlob; });
  if (states.empty() || states[0].second.dtype() != DType::kString || states[0].second.size() != 1) {
    Throw(path, StrCat("is no checkpoint: it has no ", kTrainStateBlob));
  }
  ParseMessageBytes(states[0].second.data<std::string>()[0], StrCat(kTrainStateBlob, " of ", path), &checkpoint.state);
  CheckState(checkpoint.state, path);
  checkpoint.tensors = DescribeTensors(
      path, [](const std::string& name) { return name != kTrainStateBlob && name != kTrainChecksumBlob; });
  return checkpoint;
}

void RemoveTemporaries(const std::string& folder, const std::function<bool(const std::string& name)>& is_ours) {
  std::error_code ignored;  // one that is left does no harm
  for (const auto& entry : EntriesOf(folder)) {
    const std::string name = entry.path().filename().string();
    if (is_ours(std::string(FileOfTemporary(name)))) std::filesystem::remove(entry.path(), ignored);
  }
}

CheckpointFolder::CheckpointFolder(const std::string& path, std::int64_t keep)
    : path_(path), keep_(keep), made_(path, &fault_) {
  if (fault_) Throw(path_, StrCat("cannot be made: ", fault_.message()));
  RemoveTemporaries(path_, IsCheckpoint);
}

bool CheckpointFolder::IsFileName(const std::string& name) {
  return IsCheckpoint(name) || IsCheckpoint(std::string(FileOfTemporary(name)));
}

std::string CheckpointFolder::FileOf(std::int64_t iteration) const { return StrCat(path_, "/", NameOf(iteration)); }

std::vector<std::string> CheckpointFolder::Files() const {
  std::vector<std::string> files;
  for (const auto& entry : EntriesOf(path_)) {
    if (IterationOf(entry.path())) files.push_back(entry.path().string());
  }
  std::ranges::sort(files, std::greater(), IterationOf);
  return files;
}

void CheckpointFolder::Write(const Checkpoint& checkpoint) const {
  WriteCheckpoint(checkpoint, FileOf(checkpoint.state.iteration()));
  std::vector<std::string> files = Files();
  for (size_t i = static_cast<size_t>(keep_); i < files.size(); ++i) {
    std::error_code ignored;  // one too many does no harm
    std::filesystem::remove(files[i], ignored);
  }
}

std::optional<SavedCheckpoint> CheckpointFolder::ReadNewest() const {
  const std::vector<std::string> files = Files();
  std::vector<std::string> faults;
  for (const std::string& file : files) {
    try {
      SavedCheckpoint checkpoint = ReadNamed(file);
      for (const std::string& fault : faults) std::cerr << PrintableLine(fault) << "; going on from an older one\n";
      return checkpoint;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kOutOfMemory) throw;
      faults.push_back(error.message());
    }
  }
  if (files.empty()) return std::nullopt;
  throw Error(ErrorCode::kInputOutput,
              StrCat("no checkpoint in ", path_, " can be read (--fresh starts anew):\n  ", Join(faults, "\n  ")));
}

std::optional<SavedCheckpoint> CheckpointFolder::Read(std::int64_t iteration) const {
  try {
    return ReadNamed(FileOf(iteration));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInputOutput) throw;
    return std::nullopt;
  }
}

void CheckpointFolder::RemoveAll() const {
  for (const std::string& file : Files()) {
    std::error_code fault;
    std::filesystem::remove(file, fault);
    if (fault) Throw(file, StrCat("cannot be removed: ", fault.message()));
  }
}

}  // namespace stepnet::runner
