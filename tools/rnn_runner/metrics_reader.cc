#include "stepnet/tools/rnn_runner/metrics_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/report/text.h"

namespace stepnet::runner {
namespace {

constexpr size_t kColumns = 6;
constexpr size_t kMaxLineBytes = 1024;

// The lines of a file, of which only a part is in memory.
class LineReader {
 public:
  explicit LineReader(const std::string& path) : file_(path) {}

  std::int64_t line() const { return line_; }  // the number of the last one that Next gave
  // False at the end of the file.
  bool Next(std::string* line) {
    size_t end = 0;
    while ((end = text_.find('\n', at_)) == std::string::npos && file_.left() > 0 &&
           text_.size() - at_ < kMaxLineBytes) {
      ReadBlock();
    }
    ++line_;
    if (end == std::string::npos && at_ == text_.size()) return false;
    if (end == std::string::npos) Refuse(1, "the line has no end");
    line->assign(text_, at_, end - at_);
    if (line->ends_with('\r'))
      Refuse(line->size(), "the line ends in \\r\\n, as a run does not write it; it must end in \\n");
    at_ = end + 1;
    return true;
  }
  [[noreturn]] void Refuse(size_t column, const std::string& why) const {
    throw Error(ErrorCode::kInputOutput, StrCat(file_.path(), ":", line_, ":", column, ": ", why));
  }

 private:
  void ReadBlock() {
    constexpr std::int64_t kBlock = 1 << 16;
    text_.erase(0, at_);
    at_ = 0;
    const std::int64_t bytes = std::min(file_.left(), kBlock);
    const size_t before = text_.size();
    text_.resize(before + static_cast<size_t>(bytes));
    file_.Read(text_.data() + before, bytes, "a line");
  }

  FileReader file_;
  std::string text_;
  size_t at_ = 0;  // where the next line starts
  std::int64_t line_ = 0;
};

struct Cell {
  std::string text;
  size_t column;  // from 1, where it starts in its line
};

std::array<Cell, kColumns> CellsOf(const std::string& line, const LineReader& lines) {
  std::array<Cell, kColumns> cells;
  size_t begin = 0;
  for (size_t c = 0; c < kColumns; ++c) {
    if (begin > line.size())
      lines.Refuse(line.size() + 1, StrCat("a row has ", kColumns, " columns, this one has ", c));
    const size_t end = std::min(line.find(',', begin), line.size());
    cells[c] = {.text = line.substr(begin, end - begin), .column = begin + 1};
    begin = end + 1;
  }
  if (begin <= line.size()) lines.Refuse(begin, StrCat("a row has ", kColumns, " columns, this one has more"));
  return cells;
}

// What Metrics writes of a loss: finite, and once more as bits. Other columns may hold anything.
void CheckLoss(double loss, double bits, const Cell& loss_cell, const Cell& bits_cell, const LineReader& lines) {
  constexpr double kRounding = 2e-8;  // of two numbers of nine digits
  if (!std::isfinite(loss)) lines.Refuse(loss_cell.column, StrCat("a loss of ", loss_cell.text));
  const double expected = loss * std::numbers::log2e;
  if (std::abs(bits - expected) <= kRounding * std::abs(expected)) return;
  lines.Refuse(bits_cell.column,
               StrCat("a loss of ", loss_cell.text, " is not ", bits_cell.text, " bits per character"));
}

template <typename T>
T NumberIn(const Cell& cell, const LineReader& lines) {
  T number = {};
  const char* const end = cell.text.data() + cell.text.size();
  const auto [rest, fault] = std::from_chars(cell.text.data(), end, number);
  if (fault == std::errc() && rest == end) return number;
  lines.Refuse(cell.column, StrCat(Quoted(Shortened(cell.text, 40)), " where a number is needed"));
}

std::optional<double> NumberOrNothing(const Cell& cell, const LineReader& lines) {
  return cell.text.empty() ? std::nullopt : std::optional(NumberIn<double>(cell, lines));
}

void CheckEvents(const std::string& path) {
  FileReader file(path);
  std::string header;
  std::string record;
  while (file.left() > 0) {
    const std::int64_t at = file.size() - file.left();
    constexpr std::int64_t kHeaderBytes = 12;
    constexpr std::int64_t kChecksumBytes = 4;
    header.resize(kHeaderBytes);
    file.Read(header.data(), kHeaderBytes, "the head of a record");
    std::uint64_t length = 0;
    std::memcpy(&length, header.data(), sizeof(length));
    const bool fits =
        file.left() >= kChecksumBytes && length <= static_cast<std::uint64_t>(file.left() - kChecksumBytes);
    if (fits) {
      record.resize(static_cast<size_t>(length) + kChecksumBytes);
      file.Read(record.data(), static_cast<std::int64_t>(record.size()), "a record");
    }
    if (fits && TfRecord(record.substr(0, static_cast<size_t>(length))) == header + record) continue;
    throw Error(ErrorCode::kInputOutput, StrCat(path, " is damaged: the record at byte ", at,
                                                " is none, or its checksum is not that of what it holds"));
  }
}

}  // namespace

void ForEachMetricsRow(const std::string& path,
                       const std::function<void(const IterationMetrics& metrics, double bits_per_character)>& row) {
  LineReader lines(path);
  std::string line;
  if (!lines.Next(&line) || line != kMetricsHeader) lines.Refuse(1, StrCat("the first line must be ", kMetricsHeader));
  for (std::int64_t expected = 0; lines.Next(&line); ++expected) {
    const auto cells = CellsOf(line, lines);
    IterationMetrics metrics{.iteration = NumberIn<std::int64_t>(cells[0], lines),
                             .loss = NumberIn<double>(cells[1], lines)};
    const bool is_first = expected == 0;  // a file that began anew starts with a later iteration
    if (is_first) expected = std::max<std::int64_t>(metrics.iteration, 1);
    if (metrics.iteration != expected) {
      lines.Refuse(1, StrCat("iteration ", metrics.iteration, " where ", expected, " is needed"));
    }
    const double bits = NumberIn<double>(cells[2], lines);
    CheckLoss(metrics.loss, bits, cells[1], cells[2], lines);
    metrics.learning_rate = NumberIn<double>(cells[3], lines);
    if (!std::isfinite(metrics.learning_rate)) {
      lines.Refuse(cells[3].column, StrCat("a learning rate of ", cells[3].text));
    }
    metrics.gradient_norm = NumberOrNothing(cells[4], lines);
    metrics.validation_bits = NumberOrNothing(cells[5], lines);
    row(metrics, bits);
  }
}

void CheckMetrics(const std::string& folder, std::int64_t iterations) {
  const std::string csv = MetricsCsv(folder);
  std::optional<std::int64_t> last;
  ForEachMetricsRow(csv, [&](const IterationMetrics& metrics, double) { last = metrics.iteration; });
  if (last && *last != iterations) {
    throw Error(ErrorCode::kInputOutput, StrCat(csv, " ends with iteration ", *last, ", and ended with ", iterations,
                                                " when the checkpoint was made (where it is removed, a new one ",
                                                "begins; --fresh starts anew)"));
  }
  CheckEvents(MetricsEvents(folder));
}

}  // namespace stepnet::runner
