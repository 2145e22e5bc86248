// The files that operators open. A net is untrusted, so its operators reach files only inside the folder that whoever
// runs it allows: RunOptions::allow_files, `rnn_runner run --allow_files=DIR`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "stepnet/core/operator.h"

namespace stepnet {

// The files that the operator declares (Operator::OpensFiles), as absolute paths without links or "..", in the order of
// the declaration. Throws kInputOutput when one of them lies outside of the allowed folder or none is allowed, naming
// the operator type, the path and the flag. Relative paths start at the current folder. Links are followed before the
// comparison; who may put links into the folder while a net runs decides what the net reaches.
std::vector<std::string> AllowedFiles(const OperatorCall& op);

// Whether a file lies inside a folder, at any depth; both are paths without links or "..".
bool IsInside(const std::filesystem::path& file, const std::filesystem::path& folder);

}  // namespace stepnet
