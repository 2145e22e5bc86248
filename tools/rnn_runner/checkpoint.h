// Checkpoints: everything that training needs to go on as if it had never stopped.
//
// A checkpoint is a minidb with the tensors, so that `--init_net` takes it; the TrainState, in the blob "train_state";
// and last, in "crc32c", the checksum of all records before.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "stepnet/io/tensor_io.h"
#include "stepnet/proto/train.pb.h"
#include "stepnet/tools/rnn_runner/made_folder.h"

namespace stepnet::runner {

struct Checkpoint {
  TrainState state;
  NamedTensors tensors;
};

// A checkpoint in a file. Its tensors stay there until there is a place for them (ReadTensorsInto): a run that goes on
// needs no more memory than one that starts.
struct SavedCheckpoint {
  std::string path;
  TrainState state;
  NamedInfos tensors;
};

// Replaces `path` at once. Throws kInputOutput; the file is then as it was.
void WriteCheckpoint(const Checkpoint& checkpoint, const std::string& path);
// Throws kInputOutput for a file that is damaged, cut off or no checkpoint, and for a state that no run can have.
// Whether its tensors are those of a run, Trainer::Restore tells.
SavedCheckpoint ReadCheckpoint(const std::string& path);

// Removes the temporary files in `folder` of files that `is_ours` says the names of: what writers that were killed have
// left.
void RemoveTemporaries(const std::string& folder, const std::function<bool(const std::string& name)>& is_ours);

// The newest checkpoints of a run: iteration-N.minidb in a folder.
class CheckpointFolder {
 public:
  // Makes the folder where there is none (MadeFolder) and removes temporary files of checkpoints in it. Keeps the
  // newest `keep`.
  CheckpointFolder(const std::string& path, std::int64_t keep);

  // Writes a checkpoint; then, not before, removes those that are too old. Throws kInputOutput.
  void Write(const Checkpoint& checkpoint) const;
  // The newest that can be read, with a remark on standard error for each newer one; nothing in a folder without
  // checkpoints. Throws kInputOutput when there are some and none can be read.
  std::optional<SavedCheckpoint> ReadNewest() const;
  // That of an iteration; nothing where there is none that can be read.
  std::optional<SavedCheckpoint> Read(std::int64_t iteration) const;
  void RemoveAll() const;

  // Whether a file of that name in the folder is a checkpoint, or what a writer that was killed has left of one.
  static bool IsFileName(const std::string& name);

 private:
  std::string FileOf(std::int64_t iteration) const;
  std::vector<std::string> Files() const;  // newest first

  const std::string path_;
  const std::int64_t keep_;
  std::error_code fault_;
  const MadeFolder made_;
};

}  // namespace stepnet::runner
