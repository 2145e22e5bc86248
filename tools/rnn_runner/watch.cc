#include "stepnet/tools/rnn_runner/watch.h"

#include <iostream>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/strings.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/error_text.h"
#include "stepnet/tools/rnn_runner/stats_text.h"

DEFINE_string(trace, "", "file to write what ran when, on which thread: Chrome's trace format, for ui.perfetto.dev");
DEFINE_bool(stats, false,
            "print where the time went: by instruction, by step, by thread, and how many threads were busy");

namespace stepnet::runner {

FlagUse TraceFlag() { return {.name = "trace", .value = "F.json", .kind = ValueKind::kOutputFile}; }

FlagUse StatsFlag() { return {.name = "stats"}; }

void RefuseToWatch(const std::string& file) {
  if (FLAGS_trace.empty() && !FLAGS_stats) return;
  throw UsageError(StrCat(FLAGS_stats ? "--stats" : "--trace", " looks at one net, and ", file, " holds a plan"));
}

TraceOfRuns::TraceOfRuns(Net& net) : net_(net) {
  if (FLAGS_trace.empty()) return;
  trace_.emplace(FLAGS_trace, Trace::kMaxEvents, OpenDeviceLog(net));
  net_.AttachObserver(&*trace_);
}

TraceOfRuns::~TraceOfRuns() {
  try {
    Write();
  } catch (...) {  // the fault that led here is told of
    PrintCurrentError("rnn_runner");
  }
}

void TraceOfRuns::Write() {
  if (!trace_) return;
  net_.DetachObserver(&*trace_);
  Trace& trace = *trace_;
  struct Done {
    std::optional<Trace>& trace;
    ~Done() { trace.reset(); }
  } done{trace_};
  const CancellationScope unlimited(nullptr);  // the limit that stopped the run is over
  try {
    net_.Wait();
  } catch (...) {  // the device has ended the run, which told so
  }
  trace.Write();
  std::cerr << PrintableLine(StrCat("wrote ", FLAGS_trace));
  if (!trace.LetsPlay() && !trace.DeviceLanes().empty()) {
    std::cerr << PrintableLine(StrCat("; lanes of the device show ", trace.DeviceLanes()));
  }
  if (trace.left_out() > 0) {
    std::cerr << ": the first " << Trace::kMaxEvents << " events; " << trace.left_out() << " are left out";
  }
  std::cerr << "\n";
}

StatsOfRuns::StatsOfRuns(Net& net) : net_(net) {
  if (!FLAGS_stats) return;
  stats_.emplace();
  net_.AttachObserver(&*stats_);
}

StatsOfRuns::~StatsOfRuns() {
  if (stats_) net_.DetachObserver(&*stats_);
}

void StatsOfRuns::Print() const {
  if (!stats_) return;
  const std::string text = StatsText(stats_->Nets());
  if (!text.empty()) std::cout << "\n" << Printable(text) << Printable(DeviceText(DeviceNamedByFlags()));
}

}  // namespace stepnet::runner
