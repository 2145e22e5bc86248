// Text for terminals: safe names, aligned columns, numbers, progress.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stepnet::runner {

// `text` with control characters other than line feed as \xNN: names in files must not drive the terminal.
std::string Printable(const std::string& text);

// A blob or net name as a net's text shows it: as it is, or quoted and escaped when it holds anything but letters,
// digits and the punctuation that is usual in names.
std::string NameText(const std::string& name);
// In double quotes, with \n, \", \\ and \xNN.
std::string Quoted(const std::string& text);

// Rows of cells in columns, two blanks apart. A column whose cells are all numbers is aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  size_t size() const { return rows_.size() - 1; }
  // An empty header is left out.
  std::string Text(const std::string& indent = "") const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string Number(double value, int digits = 4);  // %.4g
std::string Milliseconds(double seconds);
std::string Bytes(double bytes);                             // "1.5 MB"
std::string Count(std::int64_t n, const std::string& what);  // "1 operator", "2 operators"

// A line on standard error that says how far long work is; nothing where standard error is no terminal. The line goes
// away when the object does.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void Show(std::int64_t done, std::int64_t of, const std::string& name = "");
  void Clear();

 private:
  std::string what_;
  bool on_;
  double last_ = -1;  // time of the last line, in seconds
};

double Now();  // seconds of a clock that never goes back

}  // namespace stepnet::runner
