#include "stepnet/tools/rnn_runner/learning_curve.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <vector>

#include "stepnet/core/file.h"
#include "stepnet/core/strings.h"
#include "stepnet/tools/rnn_runner/text.h"

namespace stepnet::runner {
namespace {

struct Curves {
  std::vector<double> training;                         // of each iteration
  std::vector<std::pair<int, double>> validation = {};  // (iteration, bits)
};

Curves ReadCurves(const std::string& csv) {
  Curves curves;
  std::istringstream lines(ReadFile(csv));
  std::string line;
  std::getline(lines, line);  // the names of the columns
  while (std::getline(lines, line)) {
    std::vector<std::string> cells;
    std::istringstream columns(line);
    for (std::string cell; std::getline(columns, cell, ',');) cells.push_back(cell);
    if (cells.size() < 3) break;
    curves.training.push_back(std::stod(cells[2]));
    if (cells.size() > 5) curves.validation.emplace_back(std::stoi(cells[0]), std::stod(cells[5]));
  }
  return curves;
}

std::string Averages(const std::vector<double>& values) {
  std::string text;
  const size_t window = std::max<size_t>(1, values.size() / 100);
  for (size_t begin = 0; begin + window <= values.size(); begin += window) {
    double sum = 0;
    for (size_t i = begin; i < begin + window; ++i) sum += values[i];
    text += StrCat(static_cast<double>(begin) + static_cast<double>(window + 1) / 2, " ",
                   sum / static_cast<double>(window), "\n");
  }
  return text;
}

// In double quotes gnuplot takes escapes, and its "enhanced" text takes more; titles are shown as they are.
std::string GnuplotText(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "''" : std::string(1, c);
  return quoted + "'";
}

std::string Script(const Curves& curves, const std::string& png, const std::string& title) {
  std::string script = StrCat("$training << END\n", Averages(curves.training), "END\n$validation << END\n");
  for (const auto& [iteration, bits] : curves.validation) script += StrCat(iteration, " ", bits, "\n");
  const auto best = std::ranges::min_element(curves.validation, {}, &std::pair<int, double>::second);
  char label[64] = "";
  if (best != curves.validation.end()) std::snprintf(label, sizeof(label), ", at best %.3f", best->second);
  return script + StrCat("END\n",
                         "set terminal pngcairo size 960,540 noenhanced font 'sans,11'\n"
                         "set output ",
                         GnuplotText(png), "\nset title ", GnuplotText(title),
                         "\nset xlabel 'iteration'\nset ylabel 'bits per character'\n"
                         "set grid lt 1 lw 1 lc rgb '#cccccc'\nset border 3 lc rgb '#555555'\nset tics nomirror\n"
                         "set key top right\nset format x '%.0f'\n"
                         "set xrange [0:",
                         curves.training.size(),
                         "]\nplot $training with lines lw 2 lc rgb '#4292c6' title 'training text', "
                         "$validation with linespoints lw 2 pt 7 ps 0.8 lc rgb '#d94801' title 'validation text",
                         label, "'\n");
}

}  // namespace

bool DrawLearningCurve(const std::string& csv, const std::string& png, const std::string& title) {
  const std::string script = Script(ReadCurves(csv), png, title);
  std::FILE* gnuplot = popen("gnuplot 2>/dev/null", "we");
  bool ok = gnuplot != nullptr;
  if (ok) {
    std::fwrite(script.data(), 1, script.size(), gnuplot);
    ok = pclose(gnuplot) == 0;
  }
  if (!ok) std::cerr << Printable(StrCat("no learning curve: gnuplot is missing or cannot write ", png)) << "\n";
  return ok;
}

}  // namespace stepnet::runner
