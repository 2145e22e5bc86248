#include "stepnet/tools/rnn_runner/metrics.h"

#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <numbers>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/crc32c.h"
#include "stepnet/io/file.h"
#include "stepnet/proto/summary.pb.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/metrics_reader.h"

namespace stepnet::runner {
namespace {

[[noreturn]] void ThrowSystem(const std::string& path, int code = errno) {
  throw Error(ErrorCode::kInputOutput, StrCat("cannot write ", path, ": ", std::strerror(code)));
}

std::uint32_t Masked(std::uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8U; }

template <typename T>
std::string LittleEndian(T value) {
  static_assert(std::endian::native == std::endian::little);
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Enough digits to tell floats apart.
std::string Exact(double value) { return Number(value, 9); }

SummaryEvent EventOf(const IterationMetrics& metrics) {
  SummaryEvent event;
  event.set_wall_time(static_cast<double>(metrics.iteration));
  event.set_step(metrics.iteration);
  const auto add = [&](const char* tag, double value) {
    SummaryValue& added = *event.mutable_summary()->add_value();
    added.set_tag(tag);
    added.set_simple_value(static_cast<float>(value));
  };
  add("training/bits_per_character", metrics.loss * std::numbers::log2e);
  add("training/learning_rate", metrics.learning_rate);
  if (metrics.gradient_norm) add("training/gradient_norm", *metrics.gradient_norm);
  if (metrics.validation_bits) add("validation/bits_per_character", *metrics.validation_bits);
  return event;
}

}  // namespace

GrowingFile::GrowingFile(const std::string& path, std::int64_t bytes)
    : path_(path), file_(nullptr, std::fclose), bytes_(bytes) {
  if (bytes < 0) throw Error(ErrorCode::kInputOutput, StrCat(path, " cannot have had ", bytes, " bytes"));
  ExpectNoPipe(path);
  file_.reset(std::fopen(path.c_str(), bytes > 0 ? "r+be" : "wbe"));
  if (file_ == nullptr) ThrowSystem(path);
  if (bytes == 0) return;
  struct stat status = {};
  if (fstat(fileno(file_.get()), &status) != 0) ThrowSystem(path);
  const std::int64_t found = status.st_size;
  if (found < bytes) {
    throw Error(
        ErrorCode::kInputOutput,
        StrCat(path, " has ", found, " bytes, and had ", bytes,
               " when the checkpoint was made (where it is removed, a new one begins; ", "--fresh starts anew)"));
  }
  if (ftruncate(fileno(file_.get()), bytes) != 0 || std::fseek(file_.get(), 0, SEEK_END) != 0) ThrowSystem(path);
}

void GrowingFile::Append(const std::string& bytes) {
  // Others read the file while it grows.
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size() || std::fflush(file_.get()) != 0) {
    ThrowSystem(path_);
  }
  bytes_ += static_cast<std::int64_t>(bytes.size());
}

void GrowingFile::Sync() {
  if (fsync(fileno(file_.get())) != 0) ThrowSystem(path_);
}

std::string TfRecord(const std::string& data) {
  const std::string length = LittleEndian(static_cast<std::uint64_t>(data.size()));
  return length + LittleEndian(Masked(Crc32c(length))) + data + LittleEndian(Masked(Crc32c(data)));
}

std::string MetricsCsv(const std::string& folder) { return folder + "/metrics.csv"; }
std::string MetricsEvents(const std::string& folder) { return folder + "/events.out.tfevents.stepnet"; }

Metrics::Metrics(const std::string& folder, std::int64_t csv_bytes, std::int64_t events_bytes)
    : csv_(MetricsCsv(folder), csv_bytes), events_(MetricsEvents(folder), events_bytes) {
  if (csv_bytes == 0) csv_.Append(StrCat(kMetricsHeader, "\n"));
  if (events_bytes == 0) {
    SummaryEvent first;
    first.set_wall_time(0);
    first.set_file_version("brain.Event:2");
    events_.Append(TfRecord(first.SerializeAsString()));
  }
}

void Metrics::Add(const IterationMetrics& metrics) {
  const auto or_nothing = [](const std::optional<double>& value) { return value ? Exact(*value) : ""; };
  csv_.Append(StrCat(metrics.iteration, ",", Exact(metrics.loss), ",", Exact(metrics.loss * std::numbers::log2e), ",",
                     Exact(metrics.learning_rate), ",", or_nothing(metrics.gradient_norm), ",",
                     or_nothing(metrics.validation_bits), "\n"));
  events_.Append(TfRecord(EventOf(metrics).SerializeAsString()));
}

void Metrics::Sync() {
  csv_.Sync();
  events_.Sync();
}

}  // namespace stepnet::runner
