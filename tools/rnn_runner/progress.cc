#include "stepnet/tools/rnn_runner/progress.h"

#include <chrono>

#include "stepnet/core/strings.h"
#include "stepnet/tools/rnn_runner/status_line.h"

namespace stepnet::runner {

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Progress::~Progress() { StatusLine::Clear(); }

void Progress::Show(std::int64_t done, std::int64_t of, const std::string& name) const {
  constexpr size_t kMaxNameBytes = 48;
  StatusLine::Show(StrCat(what_, " ", done, "/", of, " ", name.substr(0, kMaxNameBytes)));
}

}  // namespace stepnet::runner
