#include "stepnet/tools/rnn_runner/output_folder.h"

#include <gflags/gflags.h>

#include <iostream>

#include "stepnet/core/error.h"
#include "stepnet/core/printable.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/npy.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/command_files.h"

DEFINE_string(output_dir, "",
              "folder for the outputs, a file BLOB.npy each (a / in the name becomes __, a control\n"
              "character \\xNN); made when absent");

namespace stepnet::runner {
namespace {

using Files = std::map<std::string, std::filesystem::path>;

Files FilesIn(const std::filesystem::path& folder, const std::vector<std::string>& blobs) {
  Files files;
  std::map<std::string, std::string> owners;
  for (const std::string& blob : blobs) {
    const std::string name = FileNameOf(blob) + ".npy";
    const auto [owner, is_new] = owners.emplace(name, blob);
    if (!is_new && owner->second != blob) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("the blobs ", Quoted(owner->second), " and ", Quoted(blob), " would both be written to ", name,
                         "; rename one of them, or choose one by --output of run"));
    }
    files[blob] = folder / name;
  }
  NoteWritten(folder.string(), "--output_dir", [owners](const std::string& name) { return owners.contains(name); });
  return files;
}

}  // namespace

FlagUse OutputDirFlag() { return {.name = "output_dir", .value = "D", .kind = ValueKind::kFolder}; }

OutputFolder::OutputFolder(const std::string& path, const std::vector<std::string>& blobs)
    : files_(FilesIn(path, blobs)), folder_(path) {}

void OutputFolder::Write(const Workspace& workspace, bool must_be_tensors) const {
  for (const auto& [name, path] : files_) {
    const Blob& blob = workspace.GetBlob(name);
    if (blob.HasTensor() || must_be_tensors) {
      WriteNpy(blob.GetTensor(), path.string());
    } else {
      std::cerr << PrintableLine(StrCat("\"", name, "\" holds no tensor and is not written")) << "\n";
    }
  }
}

}  // namespace stepnet::runner
