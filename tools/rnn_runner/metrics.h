// Metrics of a training run, as CSV and for TensorBoard. Files go on where a checkpoint was made: equal runs give equal
// files, whether they were stopped in between or not, so no time of day is in them (TensorBoard's wall time is the
// number of the iteration).
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

namespace stepnet::runner {

// A file that grows at its end.
class GrowingFile {
 public:
  // Drops what is behind the first `bytes`; with 0 the file starts anew. Throws kInputOutput when it cannot be written
  // or holds less.
  GrowingFile(const std::string& path, std::int64_t bytes);
  void Append(const std::string& bytes);  // throws kInputOutput
  void Sync();                            // to the disk; throws kInputOutput
  std::int64_t bytes() const { return bytes_; }

 private:
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::int64_t bytes_;
};

// An event as TensorBoard's event files hold it: length, its masked CRC32C, data, its masked CRC32C (TFRecord).
std::string TfRecord(const std::string& data);

struct IterationMetrics {
  std::int64_t iteration = 0;  // from 1
  double loss = 0;             // natural logarithm
  double learning_rate = 0;
  std::optional<double> gradient_norm = {};
  std::optional<double> validation_bits = {};  // bits per character
};

// The files of the metrics of a run.
std::string MetricsCsv(const std::string& folder);
std::string MetricsEvents(const std::string& folder);

class Metrics {
 public:
  // MetricsCsv and MetricsEvents of `folder`, of which so many bytes are kept.
  Metrics(const std::string& folder, std::int64_t csv_bytes, std::int64_t events_bytes);
  void Add(const IterationMetrics& metrics);  // throws kInputOutput
  void Sync();                                // throws kInputOutput
  std::int64_t csv_bytes() const { return csv_.bytes(); }
  std::int64_t events_bytes() const { return events_.bytes(); }

 private:
  GrowingFile csv_;
  GrowingFile events_;
};

}  // namespace stepnet::runner
