#include "stepnet/tools/rnn_runner/learning_curve.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string_view>
#include <vector>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/metrics_reader.h"

namespace stepnet::runner {
namespace {

struct Curves {
  std::int64_t before = 0;                                       // iterations that the file does not have
  std::vector<double> training = {};                             // of each iteration behind them
  std::vector<std::pair<std::int64_t, double>> validation = {};  // (iteration, bits)
};

Curves ReadCurves(const std::string& csv) {
  Curves curves;
  ForEachMetricsRow(csv, [&](const IterationMetrics& metrics, double bits) {
    if (curves.training.empty()) curves.before = metrics.iteration - 1;
    curves.training.push_back(bits);
    if (metrics.validation_bits) curves.validation.emplace_back(metrics.iteration, *metrics.validation_bits);
  });
  return curves;
}

std::string Averages(const Curves& curves) {
  const std::vector<double>& values = curves.training;
  std::string text;
  const size_t window = std::max<size_t>(1, values.size() / 100);
  for (size_t begin = 0; begin + window <= values.size(); begin += window) {
    double sum = 0;
    for (size_t i = begin; i < begin + window; ++i) sum += values[i];
    const double first = static_cast<double>(curves.before) + static_cast<double>(begin);
    text += StrCat(first + static_cast<double>(window + 1) / 2, " ", sum / static_cast<double>(window), "\n");
  }
  return text;
}

// In single quotes gnuplot takes nothing for a command, an escape or a variable but the quote itself; what does not
// end them is a line without control characters.
std::string GnuplotText(const std::string& text) {
  std::string quoted = "'";
  for (const char c : PrintableLine(text)) quoted += c == '\'' ? "''" : std::string(1, c);
  return quoted + "'";
}

// What gnuplot reads. The picture goes to standard output, so that no path is part of it.
std::string Script(const Curves& curves, const std::string& title) {
  std::string script = StrCat("$training << END\n", Averages(curves), "END\n$validation << END\n");
  for (const auto& [iteration, bits] : curves.validation) script += StrCat(iteration, " ", bits, "\n");
  const auto best = std::ranges::min_element(curves.validation, {}, &std::pair<std::int64_t, double>::second);
  char label[64] = "";
  if (best != curves.validation.end()) std::snprintf(label, sizeof(label), ", at best %.3f", best->second);
  return script + StrCat("END\n",
                         "set terminal pngcairo size 960,540 noenhanced font 'sans,11'\n"
                         "set title ",
                         GnuplotText(title),
                         "\nset xlabel 'iteration'\nset ylabel 'bits per character'\n"
                         "set grid lt 1 lw 1 lc rgb '#cccccc'\nset border 3 lc rgb '#555555'\nset tics nomirror\n"
                         "set key top right\nset format x '%.0f'\n"
                         "set xrange [",
                         curves.before, ":", curves.before + std::ssize(curves.training),
                         "]\nplot $training with lines lw 2 lc rgb '#4292c6' title 'training text', "
                         "$validation with linespoints lw 2 pt 7 ps 0.8 lc rgb '#d94801' title 'validation text",
                         label, "'\n");
}

// The type and the checksum of the chunk that ends a PNG.
constexpr std::string_view kEndOfPng = "IEND\xae\x42\x60\x82";

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// What gnuplot makes of the script; "" when it is missing or fails. No shell, and none of its start-up files, is asked.
std::string Drawn(const std::string& script) {
  const File input(std::tmpfile(), std::fclose), output(std::tmpfile(), std::fclose);
  if (input == nullptr || output == nullptr) return "";
  const bool is_written = std::fwrite(script.data(), 1, script.size(), input.get()) == script.size();
  if (!is_written || std::fflush(input.get()) != 0) return "";
  std::rewind(input.get());
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(input.get()), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(output.get()), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string name = "gnuplot", defaults = "-d";
  char* const arguments[] = {name.data(), defaults.data(), nullptr};
  pid_t process = 0;
  const bool is_started = posix_spawnp(&process, name.c_str(), &actions, nullptr, arguments, environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  while (is_started && waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (!is_started || status != 0) return "";
  std::rewind(output.get());
  std::string picture;
  char block[4096];
  while (const size_t got = std::fread(block, 1, sizeof(block), output.get())) picture.append(block, got);
  return picture;
}

}  // namespace

bool DrawLearningCurve(const std::string& csv, const std::string& png, const std::string& title) {
  const std::string picture = Drawn(Script(ReadCurves(csv), title));
  if (picture.empty()) {
    std::cerr << "no learning curve: gnuplot is missing or cannot draw\n";
    return false;
  }
  // Gnuplot does not say that there was no space for all of it.
  if (!picture.ends_with(kEndOfPng)) {
    throw Error(ErrorCode::kInputOutput, StrCat("cannot write ", png,
                                                ": the picture that gnuplot drew has no end; is "
                                                "there space for temporary files?"));
  }
  WriteFile(png, picture);
  return true;
}

}  // namespace stepnet::runner
