// rnn_runner sample: text by a language model.
#include <unistd.h>

#include <iostream>

#include "stepnet/core/random.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/bfloat16_weights.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/cell_file.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/sampler.h"
#include "stepnet/tools/rnn_runner/weights_flag.h"

DEFINE_double(temperature, 1, "above 1 the text is more daring, below less; 0: always the most probable character");
DEFINE_int64(top_k, 0, "draw only among so many most probable characters; 0: among all");
DEFINE_string(prompt, "", "text to write on from; without the flag, from the start of a line");
DEFINE_int64(length, 500, "characters to write behind the prompt");

namespace stepnet::runner {
namespace {

// The characters of the prompt; without one, a line feed or, where the model has none, its first character.
std::vector<std::int32_t> Prompt(const Vocabulary& vocabulary) {
  std::vector<std::int32_t> numbers;
  for (const std::string& character : SplitCharacters(FLAGS_prompt, "--prompt")) {
    numbers.push_back(vocabulary.NumberOf(character));
  }
  if (!numbers.empty()) return numbers;
  for (std::int32_t i = 0; i < vocabulary.size(); ++i) {
    if (vocabulary.character(i) == "\n") return {i};
  }
  return {0};
}

// Control characters of a strange model must not drive the terminal.
void Print(const std::string& text) {
  static const bool is_terminal = isatty(STDOUT_FILENO) == 1;
  std::cout << (is_terminal ? Printable(text) : text) << std::flush;
}

int Sample(const std::vector<std::string>& operands) {
  for (const char* const flag : {"seed", "top_k"}) {
    if (FLAGS_temperature == 0 && IsGiven(flag)) {
      throw UsageError(StrCat("--", flag, " has no meaning with --temperature=0, which draws nothing"));
    }
  }
  const RunOptions run_options = RunOptionsFromFlags();
  static_cast<void>(WantsBFloat16Weights());  // wrong use is said before files are read
  Sampler sampler(operands.front(), run_options, [&](const Model& model, Workspace& workspace) {
    WidenParameters(HeldBy(model), &model.net, workspace, run_options);
    StoreWeights(model.net, NamesGivenBy(model), workspace, run_options);
  });
  const SamplingOptions options{.temperature = FLAGS_temperature, .top_k = FLAGS_top_k};
  std::vector<std::int32_t> unread = Prompt(sampler.vocabulary());
  Print(FLAGS_prompt);
  for (std::int64_t k = 0; k < FLAGS_length && std::cout; ++k) {
    const RandomStream random(FLAGS_seed, /*op=*/0, /*run=*/0, /*step=*/k);
    const auto drawn = Draw(sampler.Read(unread), options, random.Uniform(0));
    unread = {static_cast<std::int32_t>(drawn)};
    Print(sampler.vocabulary().character(drawn));
  }
  std::cout << "\n";
  return kOk;
}

std::vector<FlagUse> SampleFlags() {
  std::vector<FlagUse> flags = {{.name = "prompt", .value = "TEXT", .may_be_empty = true},
                                {.name = "length", .value = "N", .min = 0},
                                {.name = "temperature", .value = "X", .min = 0},
                                {.name = "top_k", .value = "K", .min = 0},
                                {.name = "seed", .value = "N", .doc = "another seed, another text"}};
  for (FlagUse& flag : ExecutorFlags()) flags.push_back(std::move(flag));
  flags.push_back(WeightsFlag());
  return WithCommonFlags(std::move(flags));
}

std::string UnknownFlag(const std::string& name) {
  return name == "model" ? "the model is the operand: rnn_runner sample MODEL" : "";
}

}  // namespace

const Command kSample = {
    .name = "sample",
    .operands = "MODEL",
    .doc = "writes text with a language model",
    .details =
        "MODEL is a folder with what `rnn_runner train` writes: net.pb, init_net.pb, vocabulary.json. Characters are\n"
        "printed one by one, as they are drawn; equal flags give equal text.",
    .example = "rnn_runner sample examples/models/shakespeare --prompt=\"ROMEO:\" --temperature=0.8 --seed=7",
    .flags = SampleFlags(),
    .min_operands = 1,
    .max_operands = 1,
    .operand_kind = ValueKind::kFolder,
    .unknown_flag = UnknownFlag,
    .run = Sample,
};

}  // namespace stepnet::runner
