// Plans of a net's step nets, for commands that show them.
#pragma once

#include "stepnet/core/observer.h"
#include "stepnet/core/run_options.h"
#include "stepnet/tools/rnn_runner/session.h"

namespace stepnet::runner {

// Opens the session of the flags and makes the plans of its net, on the device of `options` or where the net itself
// says. No device needs to be there: shapes are those that a run on the host leaves. options.on_pass and on_plan are
// told of these plans and of no others, `observer` of that run.
Session MakePlans(const RunOptions& options, Observer* observer = nullptr);

}  // namespace stepnet::runner
