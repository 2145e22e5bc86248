// Text for people: safe names, aligned columns, numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "stepnet/core/printable.h"

namespace stepnet {

// A blob or net name as a net's text shows it: as it is, or quoted and escaped when it holds anything but letters,
// digits and the punctuation that is usual in names.
std::string NameText(const std::string& name);
// Returns the text as a page of HTML has it, with its markup escaped.
std::string HtmlText(const std::string& text);
// Puts the text in double quotes, and writes \n, \", \\ and \xNN for what cannot stand there.
std::string Quoted(const std::string& text);
// The first characters of a text that takes more than `bytes`, with "…" behind them.
std::string Shortened(const std::string& text, std::size_t bytes);

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
std::string Figure(double value);                  // three digits, or all before the point: "0.0516", "3045"
std::string Milliseconds(double seconds);
std::string Bytes(double bytes);  // "1.5 MB"

}  // namespace stepnet
