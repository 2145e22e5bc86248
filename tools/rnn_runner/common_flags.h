// Flags that several commands share, and what they mean.
#pragma once

#include <gflags/gflags.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/tools/rnn_runner/command.h"

DECLARE_string(net);
DECLARE_string(init_net);
DECLARE_string(output);
DECLARE_string(format);
DECLARE_uint64(seed);

namespace stepnet::runner {

// `own` with the flags of every command after them.
std::vector<FlagUse> WithCommonFlags(std::vector<FlagUse> own);
// --device and what belongs to it, --executor, --threads, --opt_level, --disable_pass, --dump_passes.
std::vector<FlagUse> ExecutorFlags();
FlagUse DeviceFlag();

// Does what the flags of every command say: memory limit, operator libraries, log level. Throws UsageError, and Error
// where a library cannot be loaded.
void ApplyCommonFlags();

// --time_limit; infinity without one. Throws UsageError.
std::chrono::duration<double> TimeLimitFromFlags();

// What --device says, whether or not there is one. Throws UsageError.
Device DeviceNamedByFlags();
// ", 1.5 GB on cuda:0": its memory at its peak; "" for the host.
std::string DevicePeakText(const Device& device);
// Follow from the executor flags and --seed. Throws UsageError for values that mean nothing.
RunOptions RunOptionsFromFlags();
// Gives what RunOptionsFromFlags does, for this device in place of --device.
RunOptions RunOptionsOn(const Device& device);

// The parts of `text` between commas, none of them empty.
std::vector<std::string> SplitList(const std::string& text, char separator = ',');
// Those of the value of `flag`, each of which names something. Throws UsageError for one that is there twice.
std::vector<std::string> SplitNames(const std::string& flag, const std::string& value);

// "64", "64K", "64M", "1.5G" in bytes (powers of 1024). Throws UsageError that names `flag`.
std::int64_t ParseBytes(const std::string& flag, const std::string& text);

// --format of a command that prints in these.
FlagUse FormatFlag(const std::vector<std::string>& formats, std::string doc = "");
// Throws UsageError unless FLAGS_format is one of `formats`.
void CheckFormat(const std::vector<std::string>& formats);

}  // namespace stepnet::runner
