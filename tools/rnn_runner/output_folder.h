// --output_dir: the folder into which `run` and `bench` write outputs.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "stepnet/core/workspace.h"
#include "stepnet/tools/rnn_runner/command.h"
#include "stepnet/tools/rnn_runner/made_folder.h"

namespace stepnet::runner {

FlagUse OutputDirFlag();

// The files of some blobs.
class OutputFolder {
 public:
  // Makes the folder. Throws kInvalidArgument where two blobs would share a file, UsageError where one is an
  // input of the command, and as MadeFolder does.
  OutputFolder(const std::string& path, const std::vector<std::string>& blobs);
  // Those that hold no tensor throw, or are named and left out.
  void Write(const Workspace& workspace, bool must_be_tensors) const;

 private:
  const std::map<std::string, std::filesystem::path> files_;  // by blob
  const MadeFolder folder_;
};

}  // namespace stepnet::runner
