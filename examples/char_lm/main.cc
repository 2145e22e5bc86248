// char_lm: shows what a character model makes of a text, then lets it write.
//
//   char_lm [--text=FILE] [--prompt=TEXT] [--length=N] [--temperature=X] [--seed=N] [--color=auto|always|never]
//           [--html=FILE]
#include <gflags/gflags.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <span>

#include "char_model.h"
#include "shading.h"
#include "stepnet/core/error.h"
#include "stepnet/core/printable.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/proto_io.h"

DEFINE_string(model, "examples/char_lm", "folder with init_net.pb, net.pb and vocabulary.json");
DEFINE_string(text, "", "text to read; by default text.txt of the model, whose recorded figures are compared");
DEFINE_int32(surprises, 8, "how many of its greatest surprises to list");
DEFINE_string(prompt, "", "the model writes on from this; by default from the end of the text that it has read");
DEFINE_int32(length, 400, "how many characters the model writes");
DEFINE_double(temperature, 0.7, "towards 0 the model writes what it finds most probable, above 1 it takes chances");
DEFINE_int32(seed, 1, "another seed, another text");
DEFINE_string(color, "auto", "auto, always or never");
DEFINE_string(html, "", "also write the shaded text to this file, as a web page");

namespace {

using stepnet::Error;
using stepnet::ErrorCode;
using stepnet::StrCat;

constexpr int kGuesses = 3;

// The most probable characters of a row of probabilities, best first.
std::vector<std::pair<char, float>> Guesses(const CharModel& model, const float* probabilities) {
  std::vector<int> order(model.num_characters());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::partial_sort(order, order.begin() + kGuesses, std::greater(),
                            [&](int index) { return probabilities[index]; });
  std::vector<std::pair<char, float>> guesses;
  for (int k = 0; k < kGuesses; ++k) guesses.emplace_back(model.character(order[k]), probabilities[order[k]]);
  return guesses;
}

// Every character of the text as the model saw it. Nothing precedes the first, which is taken for granted.
std::vector<SeenCharacter> ReadText(CharModel& model, const std::string& text) {
  const std::vector<float> probabilities = model.Read(text.substr(0, text.size() - 1));
  std::vector<SeenCharacter> seen = {{text[0], 1.0f, {}}};
  for (size_t t = 1; t < text.size(); ++t) {
    const float* expected = &probabilities[(t - 1) * model.num_characters()];
    seen.push_back({text[t], expected[model.IndexOf(text[t])], Guesses(model, expected)});
  }
  return seen;
}

// The mean over the characters that were predicted: all but the first.
double BitsPerCharacter(std::span<const SeenCharacter> text) {
  double bits = 0;
  for (const SeenCharacter& seen : text) bits -= std::log2(static_cast<double>(seen.probability));
  return bits / static_cast<double>(text.size());
}

double Accuracy(std::span<const SeenCharacter> text) {
  const auto right =
      std::ranges::count_if(text, [](const SeenCharacter& s) { return s.guesses[0].first == s.character; });
  return static_cast<double>(right) / static_cast<double>(text.size());
}

// Prints the figures; with `recorded`, beside those that Caffe2 reached on the same text. False when they differ.
bool PrintFigures(std::span<const SeenCharacter> text, const nlohmann::json* recorded) {
  const double bits = BitsPerCharacter(text);
  std::printf("%.4f bits per character", bits);
  bool agrees = true;
  if (recorded != nullptr) {
    const double wanted = recorded->at("bits_per_character_text_txt");
    agrees = std::abs(bits - wanted) < 5e-4;
    std::printf(" (recorded with Caffe2: %.4f, %s)", wanted, agrees ? "the same" : "NOT the same");
  }
  std::printf("; its first guess was right %.1f%% of the time\n\n", 100 * Accuracy(text));
  return agrees;
}

void PrintSurprises(const std::vector<SeenCharacter>& text, int count) {
  std::vector<size_t> order(text.size());
  std::iota(order.begin(), order.end(), 0);
  count = std::clamp(count, 0, static_cast<int>(text.size()));
  std::ranges::partial_sort(order, order.begin() + count, {}, [&](size_t i) { return text[i].probability; });
  std::printf("Where it was most surprised:\n\n");
  constexpr size_t kContext = 24;
  for (int k = 0; k < count; ++k) {
    const SeenCharacter& seen = text[order[k]];
    std::string before;
    for (size_t i = order[k] - std::min(order[k], kContext); i < order[k]; ++i) {
      before += text[i].character == '\n' ? '/' : text[i].character;
    }
    std::printf("  %*s[%s]  %.4f%%, it expected", static_cast<int>(kContext), before.c_str(),
                Visible(seen.character).c_str(), 100.0 * seen.probability);
    for (const auto& [guess, probability] : seen.guesses) {
      std::printf("  %s %.0f%%", Visible(guess).c_str(), 100.0 * probability);
    }
    std::printf("\n");
  }
  std::printf("\n");
}

// An index drawn with probabilities^(1/temperature).
int Draw(const std::vector<float>& probabilities, double temperature, std::mt19937& random) {
  const float largest = *std::ranges::max_element(probabilities);
  std::vector<double> weights;
  for (const float p : probabilities) weights.push_back(std::pow(p / largest, 1 / temperature));
  double left = random() * 0x1p-32 * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < weights.size(); ++i) {
    if ((left -= weights[i]) < 0) return static_cast<int>(i);
  }
  return static_cast<int>(std::ranges::max_element(weights) - weights.begin());
}

// Draws a character, prints it, reads it, and again: one run of the net a character, from state to state. `last` is the
// last character that the model was given and has not read yet.
void Write(CharModel& model, char last) {
  std::mt19937 random(FLAGS_seed);
  for (int k = 0; k < FLAGS_length; ++k) {
    last = model.character(Draw(model.Read({last}), FLAGS_temperature, random));
    std::putchar(last);
    std::fflush(stdout);
  }
  std::printf("\n");
}

// Reads the text and prints what the model made of it. False when the figures are not those that were recorded.
bool ShowReading(CharModel& model, const std::string& text_file, const std::string& text, bool is_recorded) {
  const ColorMode colors = ChooseColorMode(FLAGS_color);
  std::printf("The model reads %s, %zu characters: ", text_file.c_str(), text.size());
  const std::vector<SeenCharacter> seen = ReadText(model, text);
  nlohmann::json figures;
  if (is_recorded) figures = nlohmann::json::parse(stepnet::ReadFile(FLAGS_model + "/figures.json"));
  const bool agrees = PrintFigures(std::span(seen).subspan(1), is_recorded ? &figures : nullptr);

  std::printf("How probable it found each character: %s\n\n%s\n", ShadingLegend(colors).c_str(),
              ShadedText(seen, colors).c_str());
  PrintSurprises(seen, FLAGS_surprises);
  if (!FLAGS_html.empty()) {
    stepnet::WriteFile(FLAGS_html, ShadedPage(seen, "What the model made of " + text_file));
    std::printf("The same as a web page: %s\n\n", FLAGS_html.c_str());
  }
  return agrees;
}

bool Run() {
  if (!(FLAGS_temperature > 0)) {
    throw Error(ErrorCode::kInvalidArgument, StrCat("--temperature is ", FLAGS_temperature, ", must be above 0"));
  }
  const std::string text_file = FLAGS_text.empty() ? FLAGS_model + "/text.txt" : FLAGS_text;
  const std::string text = stepnet::ReadFile(text_file);
  if (text.size() < 2) throw Error(ErrorCode::kInputOutput, text_file + ": a text has at least two characters");

  CharModel model(FLAGS_model);
  const bool agrees = ShowReading(model, text_file, text, FLAGS_text.empty());

  std::string given = text.substr(text.rfind('\n') + 1);
  if (!FLAGS_prompt.empty()) {
    given = FLAGS_prompt;
    model.Forget();
    model.Read(given.substr(0, given.size() - 1));
  }
  std::printf("The model writes on from there (temperature %g, seed %d):\n\n%s", FLAGS_temperature, FLAGS_seed,
              given.c_str());
  Write(model, given.empty() ? text.back() : given.back());
  return agrees;
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("shows what a character model makes of a text, then lets it write");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    if (argc > 1) throw Error(ErrorCode::kInvalidArgument, StrCat("\"", argv[1], "\" is not a flag; see --help"));
    return Run() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::cerr << stepnet::Printable(stepnet::StrCat("char_lm: ", error.what(), "\n"));
    return 1;
  }
}
