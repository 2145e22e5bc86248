// Reads what Metrics wrote, and says where it is damaged.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "stepnet/tools/rnn_runner/metrics.h"

namespace stepnet::runner {

// The names of the columns of metrics.csv.
inline constexpr const char* kMetricsHeader =
    "iteration,loss,bits_per_character,learning_rate,gradient_norm,validation_bits";

// Calls row(metrics, bits_per_character) for each row of a metrics.csv: those of the iterations from some one on.
// Throws kInputOutput, as "FILE:LINE:COLUMN: …", for one that Metrics would not have written.
void ForEachMetricsRow(const std::string& path,
                       const std::function<void(const IterationMetrics& metrics, double bits_per_character)>& row);

// Throws kInputOutput unless the metrics of a run in `folder` are whole, and end with that iteration; a file that began
// anew behind it has no rows.
void CheckMetrics(const std::string& folder, std::int64_t iterations);

}  // namespace stepnet::runner
