// A folder for the files of a trial, made when it is first asked for and removed when the process ends.
#pragma once

#include <string>

namespace stepnet {

const std::string& ScratchFolder();

}  // namespace stepnet
