#include "stepnet/tools/rnn_runner/trainer.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "stepnet/io/proto_io.h"
#include "stepnet/tests/core/limited_memory.h"
#include "stepnet/tests/core/source_path.h"
#include "stepnet/tests/core/temp_dir.h"
#include "stepnet/tests/operators/op_test.h"
#include "stepnet/tools/rnn_runner/sampler.h"

namespace stepnet::runner {
namespace {

// The text of a small config, with other values for some fields.
std::string Config(const std::string& more) {
  TrainConfig config;
  ParseMessageText(
      "text: 'text' cell: 'lstm.cell' embedding: 3 size { name: 'H' value: 5 } batch: 2 steps: 4 validation: 0.25",
      "config", &config);
  TrainConfig others;
  ParseMessageText(more, "other values", &others);
  if (others.size_size() > 0) config.clear_size();
  config.MergeFrom(others);
  return PrintMessageText(config);
}

// A folder with a config, a cell and a text of the characters a, b, c, d.
class Job {
 public:
  explicit Job(const std::string& more = "", const std::string& text = PlainText()) {
    for (const char* cell : {"lstm.cell", "causal_conv.cell"}) {
      dir_.Put(cell, ReadFile(SourcePath("examples/cells/") + cell));
    }
    std::string half = ReadFile(SourcePath("examples/cells/lstm.cell"));
    half.insert(half.find("  output h"), "  state c initial=0.5\n");
    dir_.Put("half.cell", half);
    dir_.Put("text", text);
    job_ = ReadTrainJob(dir_.Put("train.prototxt", Config(more)));
    corpus_ = ReadCorpus(job_.text, job_.config.validation());
    job_.model.vocabulary = corpus_.vocabulary.size();
  }
  static std::string PlainText() {
    std::string text;
    for (int i = 0; i < 96; ++i) text += "abcdbacd"[(i * i + i / 3) % 8];
    return text;
  }
  Trainer Make() const { return Trainer(job_, corpus_, {}); }
  const TempDir& dir() const { return dir_; }

 private:
  TempDir dir_;
  TrainJob job_;
  Corpus corpus_;
};

std::map<std::string, std::string> Bytes(const Trainer& trainer) {
  std::map<std::string, std::string> bytes;
  for (const auto& [name, tensor] : trainer.Tensors()) {
    bytes[name] = std::string(static_cast<const char*>(tensor.raw()), static_cast<size_t>(tensor.size_bytes()));
  }
  return bytes;
}

NamedTensors Copies(const Trainer& trainer) {
  NamedTensors copies;
  for (const auto& [name, tensor] : trainer.Tensors()) copies.emplace_back(name, tensor.Clone());
  return copies;
}

// Tensors as a file that the trainer can go on from, whoever wrote it.
class Saved {
 public:
  Saved(const NamedTensors& tensors, std::int64_t iteration) {
    checkpoint_.path = dir_.Path("saved");
    WriteMiniDb(tensors, checkpoint_.path);
    checkpoint_.state.set_iteration(iteration);
    checkpoint_.tensors = DescribeTensors(checkpoint_.path);
  }
  const SavedCheckpoint& operator*() const { return checkpoint_; }

 private:
  TempDir dir_;
  SavedCheckpoint checkpoint_;
};

constexpr const char* kDropout = "options { layers: 2 dropout: 0.25 recurrent_dropout: 0.25 zoneout: 0.1 }";

TEST(Trainer, GoesOnBitForBitFromAnyIteration) {
  const Job job(kDropout);
  for (const int cut : {0, 1, 7, 9, 13}) {  // an epoch has 8 iterations
    Trainer whole = job.Make();
    NamedTensors kept;
    std::vector<double> losses;
    for (int i = 0; i < 20; ++i) {
      if (i == cut) kept = Copies(whole);
      if (i % 6 == 5) whole.Validate();  // changes nothing
      losses.push_back(whole.Iterate().loss);
    }
    Trainer second = job.Make();
    second.Restore(*Saved(kept, cut));
    for (int i = cut; i < 20; ++i) EXPECT_EQ(second.Iterate().loss, losses[i]) << i;
    EXPECT_EQ(Bytes(second), Bytes(whole)) << cut;
  }
}

TEST(Trainer, StartsAnew) {
  const Job job(kDropout);
  Trainer trainer = job.Make();
  const std::map<std::string, std::string> before = Bytes(trainer);
  std::vector<double> losses;
  for (int i = 0; i < 9; ++i) losses.push_back(trainer.Iterate().loss);
  trainer.Validate();
  trainer.StartAnew();
  EXPECT_EQ(Bytes(trainer), before);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(trainer.Iterate().loss, losses[i]) << i;
}

TEST(Trainer, IsDifferentWithAnotherSeed) {
  const Job first("seed: 1");
  const Job second("seed: 2");
  Trainer one = first.Make();
  Trainer two = second.Make();
  EXPECT_NE(one.Iterate().loss, two.Iterate().loss);
}

TEST(Trainer, CarriesStatesWithinAnEpoch) {
  const Job job("optimizer { learning_rate: 1e-30 }");
  Trainer trainer = job.Make();
  ASSERT_EQ(trainer.iterations_per_epoch(), 8);
  std::vector<double> first;
  for (int i = 0; i < 8; ++i) first.push_back(trainer.Iterate().loss);
  // Parameters stay as they are, so every epoch has the same losses where states start from zero with each.
  for (int i = 0; i < 8; ++i) EXPECT_EQ(trainer.Iterate().loss, first[i]) << i;
  // From zero, the second batch has another loss than behind the first.
  Trainer other = job.Make();
  NamedTensors zero = Copies(other);
  for (const auto& [name, tensor] : zero) {
    if (name == "optimizer/iteration") tensor.data<std::int64_t>()[0] = 1;
  }
  other.Restore(*Saved(zero, 1));
  EXPECT_NE(other.Iterate().loss, first[1]);
}

TEST(Trainer, AModelThatKnowsNothingTakesTheLogarithmOfTheVocabulary) {
  const Job job;
  Trainer trainer = job.Make();
  NamedTensors zeros;
  for (const auto& [name, tensor] : trainer.Tensors()) {
    zeros.emplace_back(name, Tensor::Zeros(tensor.dtype(), tensor.shape()));
  }
  trainer.Restore(*Saved(zeros, 0));
  EXPECT_NEAR(trainer.Validate(), 2, 1e-6);
  EXPECT_NEAR(trainer.Iterate().loss, std::log(4), 1e-6);
}

TEST(Trainer, LearnsWhatIsRegular) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "abcd";
  const Job job("optimizer { learning_rate: 0.05 }", text);
  Trainer trainer = job.Make();
  for (int i = 0; i < 150; ++i) trainer.Iterate();
  EXPECT_LT(trainer.Validate(), 0.3);
}

TEST(Trainer, RefusesShortTexts) {
  const Job job("", "abcdabcdab");
  ExpectError([&] { job.Make(); }, "input/output error: " + job.dir().Path("text") +
                                       " has 8 characters to train on; 2 parts of 4 (batch, steps) need 9");
  const Job other("batch: 1", "abcdabcdab");
  EXPECT_NO_THROW(other.Make());
}

TEST(Trainer, RefusesTensorsOfAnother) {
  const Job job;
  const Job other_job("embedding: 4");
  Trainer small = job.Make();
  const NamedTensors other = Copies(other_job.Make());
  ExpectError([&] { small.Restore(*Saved(other, 1)); },
              "…input/output error: the checkpoint holds float [4, 4] for embedding, which is float [4, 3]\n  float ");
}

// What a run that starts took is all that one that goes on may take: --max_memory is checked before either begins.
TEST(Trainer, GoesOnWithoutASecondCopyOfItsTensors) {
  const Job job("size { name: 'H' value: 300 }");
  Trainer trainer = job.Make();
  trainer.Iterate();
  const Saved saved(trainer.Tensors(), 1);
  ResetPeakTensorMemory();
  const std::int64_t before = TensorMemory().peak;
  trainer.Restore(*saved);
  EXPECT_LT(TensorMemory().peak, before + 4096);
}

// The run forward does not keep Tanh(c) of the LSTM then, 100 steps of 8 sequences of 64 floats.
TEST(Trainer, TrainsBitForBitInLessMemory) {
  std::string text;
  for (int i = 0; i < 25; ++i) text += Job::PlainText();
  const Job job("size { name: 'H' value: 64 } batch: 8 steps: 100", text);
  constexpr std::int64_t kLess = 100 * 8 * 64 * 4 / 2;
  const auto train = [&] {
    Trainer trainer = job.Make();
    for (int i = 0; i < 3; ++i) trainer.Iterate();
    return Bytes(trainer);
  };
  const std::int64_t before = TensorMemory().current;
  ResetPeakTensorMemory();
  const std::map<std::string, std::string> expected = train();
  const std::int64_t peak = TensorMemory().peak;
  ASSERT_EQ(TensorMemory().current, before);
  const LimitedMemory limited(peak - kLess);
  ResetPeakTensorMemory();
  EXPECT_EQ(train(), expected);
  EXPECT_LE(TensorMemory().peak, peak - kLess);
}

// Whatever a checkpoint holds, it is refused as a whole.
TEST(Trainer, RefusesTensorsThatNoRunWrites) {
  const Job job;
  Trainer trainer = job.Make();
  trainer.Iterate();
  const NamedTensors good = Copies(trainer);
  const std::map<std::string, std::string> before = Bytes(trainer);
  const auto expect_fault = [&](const NamedTensors& tensors, std::int64_t iteration, const std::string& fault) {
    ExpectError([&] { trainer.Restore(*Saved(tensors, iteration)); },
                "input/output error: the checkpoint holds " + fault);
    EXPECT_EQ(Bytes(trainer), before);
    EXPECT_EQ(trainer.iteration(), 1);
  };
  NamedTensors changed = good;
  changed.emplace_back("embeddin", Tensor::Zeros(DType::kFloat, {2}));
  expect_fault(changed, 1, "float [2] for embeddin, which is none of its blobs; did you mean \"embedding\"?");
  changed = good;
  changed.front().second = Tensor::Zeros(DType::kDouble, good.front().second.shape());
  expect_fault(changed, 1, "double [4, 3] for embedding, which is float [4, 3]");
  changed = {good.begin() + 1, good.end()};
  expect_fault(changed, 1, "nothing for embedding, which is float [4, 3]");
  expect_fault(good, -1, "the iteration -1");
  expect_fault(good, 2, "iteration 1 for optimizer/iteration, and 2 are done");
  trainer.Restore(*Saved(good, 1));
}

// What the trainer writes, read by the sampler: the same bits per character, read in pieces of any length.
void ExpectModelReadsAsTrainer(const Job& job) {
  Trainer trainer = job.Make();
  for (int i = 0; i < 5; ++i) trainer.Iterate();
  const TempDir dir;
  WriteMessage(trainer.ModelNet(), dir.Path("net.pb"));
  WriteMessage(trainer.ModelInitNet(), dir.Path("init_net.pb"));
  const std::string text = Job::PlainText();
  dir.Put("vocabulary.json", Vocabulary::Of(SplitCharacters(text, "text")).Json());

  Sampler sampler(dir.path(), {});
  const std::string validation = text.substr(48);
  double bits = 0;
  for (size_t i = 0; i + 1 < validation.size(); ++i) {
    const auto probabilities = sampler.Read({sampler.vocabulary().NumberOf(validation.substr(i, 1))});
    bits -= std::log2(probabilities[sampler.vocabulary().NumberOf(validation.substr(i + 1, 1))]);
  }
  EXPECT_NEAR(bits / static_cast<double>(validation.size() - 1), trainer.Validate(), 1e-5);

  Sampler whole(dir.path(), {});
  std::vector<std::int32_t> numbers;
  for (const char c : validation) numbers.push_back(whole.vocabulary().NumberOf(std::string(1, c)));
  const auto at_once = whole.Read(numbers);
  const auto in_steps = sampler.Read({numbers.back()});
  for (size_t i = 0; i < at_once.size(); ++i) EXPECT_NEAR(at_once[i], in_steps[i], 1e-6);
}

TEST(Trainer, AModelWhoseProbabilitiesAreNoNumbersWritesNothing) {
  const Job job("batch: 1");
  Trainer trainer = job.Make();
  const TempDir dir;
  WriteMessage(trainer.ModelNet(), dir.Path("net.pb"));
  WriteMessage(trainer.ModelInitNet(), dir.Path("init_net.pb"));
  dir.Put("vocabulary.json", Vocabulary::Of(SplitCharacters(Job::PlainText(), "text")).Json());
  Sampler sampler(dir.path(), {}, [](const Model&, Workspace& workspace) {
    Tensor bias = workspace.GetTensor("output_b").Clone();
    bias.data<float>()[2] = std::numeric_limits<float>::quiet_NaN();
    workspace.SetTensor("output_b", bias);
  });
  try {
    sampler.Read({1, 2});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    const std::string what = error.what();
    EXPECT_NE(what.find("\"probabilities\" of the character behind the first 2"), std::string::npos) << what;
    EXPECT_NE(what.find("net.pb"), std::string::npos) << what;
  }
}

TEST(Trainer, WritesModelsThatReadAsItDoes) {
  ExpectModelReadsAsTrainer(Job("batch: 1 validation: 0.5 " + std::string(kDropout)));
}

// Its output is no state, and its state is a window of the past.
TEST(Trainer, WritesModelsOfAnyCell) {
  ExpectModelReadsAsTrainer(Job("batch: 1 validation: 0.5 cell: 'causal_conv.cell' size { name: 'H' value: 5 }"));
}

TEST(TrainJob, NamesTheFieldThatIsWrong) {
  const TempDir dir;
  dir.Put("lstm.cell", ReadFile(SourcePath("examples/cells/lstm.cell")));
  const auto read = [&](const std::string& config) { ReadTrainJob(dir.Put("c", config)); };
  ExpectError([&] { read("cell: 'lstm.cell'"); }, "…text is missing, must be a UTF-8 file");
  ExpectError([&] { read("text: 'text'"); }, "…cell is missing, must be the file of a cell");
  ExpectError([&] { read(Config("validation: 1")); }, "…validation is 1, must be above 0 and below 1");
  ExpectError([&] { read(Config("batch: 0")); }, "…batch is 0, must be from 1 to 2147483647");
  // One more than batch * steps characters are needed: 2^63 is no number of characters.
  ExpectError([&] { read(Config("batch: 4294967296 steps: 2147483648")); },
              "…batch is 4294967296, must be from 1 to 2147483647");
  ExpectError([&] { read(Config("steps: 9223372036854775807")); },
              "…steps is 9223372036854775807, must be from 1 to 2147483647");
  ExpectError([&] { read(Config("optimizer { schedule: POLY warmup: -9223372036854775808 }")); },
              "…optimizer.warmup is -9.22337e+18, must be at least 0");
  ExpectError([&] { read(Config("optimizer { learning_rate: 0 }")); },
              "…optimizer.learning_rate is 0, must be above 0");
  ExpectError([&] { read("bach: 5"); }, "…bach");
}

TEST(Differences, NameEveryField) {
  TrainState before;
  before.mutable_config()->set_batch(50);
  before.mutable_config()->mutable_optimizer()->set_learning_rate(0.5);
  before.set_text_crc32c(1);
  TrainState now = before;
  EXPECT_EQ(Differences(before, now), "");
  now.mutable_config()->set_steps(50);  // the default, said
  EXPECT_EQ(Differences(before, now), "");
  now.mutable_config()->set_batch(32);
  now.mutable_config()->mutable_optimizer()->set_learning_rate(0.25);
  now.mutable_config()->mutable_optimizer()->set_momentum(0.5);
  now.mutable_cell()->set_name("gru");
  now.set_text_crc32c(2);
  EXPECT_EQ(
      Differences(before, now),
      "batch: 50 → 32; optimizer.learning_rate: 0.5 → 0.25; optimizer.momentum: 0 → 0.5; of the cell, name: \"\" → "
      "\"gru\"; the text is another one");
}

TEST(Differences, NameParametersThatHaveAnotherInitializer) {
  TrainState before;
  for (const char* const name : {"w", "b"}) {
    CellParameter& parameter = *before.mutable_cell()->add_parameter();
    parameter.set_name(name);
    Argument& value = *parameter.mutable_initializer()->add_arg();
    value.set_name("value");
    value.set_f(0.5);
  }
  TrainState now = before;
  now.mutable_cell()->mutable_parameter(1)->mutable_initializer()->mutable_arg(0)->set_f(0.625);
  EXPECT_EQ(Differences(before, now), "of the cell, parameter \"b\".initializer.arg \"value\".f: 0.5 → 0.625");
}

TEST(Differences, NameElementsThatOneSideLacks) {
  TrainState before;
  before.mutable_cell()->add_size()->set_name("D");
  before.mutable_cell()->add_output()->set_blob("h");
  TrainState now;
  now.mutable_cell()->add_size()->set_name("D");
  now.mutable_cell()->add_size()->set_name("H");
  now.mutable_cell()->add_state()->set_name("h");
  EXPECT_EQ(Differences(before, now),
            "of the cell, size[1]: nothing → name: \"H\"; of the cell, state[0]: nothing → name: \"h\"; of the cell, "
            "output[0]: blob: \"h\" → nothing");
}

// Pearson's statistic of `draws` draws against `expected` probabilities.
double ChiSquare(const std::vector<float>& probabilities, const SamplingOptions& options,
                 const std::vector<double>& expected) {
  constexpr int kDraws = 100'000;
  std::vector<int> counts(probabilities.size());
  for (int k = 0; k < kDraws; ++k) {
    const RandomStream random(/*seed=*/3, 0, 0, k);
    ++counts[Draw(probabilities, options, random.Uniform(0))];
  }
  double sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == 0) {
      EXPECT_EQ(counts[i], 0);
    } else {
      sum += std::pow(counts[i] - kDraws * expected[i], 2) / (kDraws * expected[i]);
    }
  }
  return sum;
}

constexpr double kChiSquare4 = 18.47;  // exceeded by chance once in a thousand times, with 4 degrees of freedom
constexpr double kChiSquare2 = 13.82;  // with 2

const std::vector<float> kProbabilities = {0.1F, 0.4F, 0.05F, 0.25F, 0.2F};

TEST(Draw, FollowsTheProbabilities) {
  EXPECT_LT(ChiSquare(kProbabilities, {}, {0.1, 0.4, 0.05, 0.25, 0.2}), kChiSquare4);
}

TEST(Draw, FollowsTheTemperature) {
  std::vector<double> squares;
  double sum = 0;
  for (const float p : kProbabilities) squares.push_back(double{p} * p);
  for (const double s : squares) sum += s;
  for (double& s : squares) s /= sum;
  EXPECT_LT(ChiSquare(kProbabilities, {.temperature = 0.5}, squares), kChiSquare4);
}

TEST(Draw, TakesTheMostProbableOnly) {
  EXPECT_LT(ChiSquare(kProbabilities, {.top_k = 3}, {0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85}), kChiSquare2);
  for (const double uniform : {0.0, 0.5, 0.9999999}) {
    EXPECT_EQ(Draw(kProbabilities, {.temperature = 0}, uniform), 1);
    EXPECT_EQ(Draw(kProbabilities, {.top_k = 1}, uniform), 1);
    EXPECT_EQ(Draw(kProbabilities, {.temperature = 1e-6}, uniform), 1);
  }
}

TEST(Trainer, StatesStartAsTheCellSays) {
  const Job job("cell: 'half.cell'");
  Trainer trainer = job.Make();
  const auto expect_halves = [](const Tensor& tensor) {
    ASSERT_GT(tensor.size(), 0);
    for (std::int64_t i = 0; i < tensor.size(); ++i) EXPECT_EQ(tensor.data<float>()[i], 0.5f) << i;
  };
  int found = 0;
  for (const auto& [name, tensor] : trainer.Tensors()) {
    if (!name.ends_with("c_init")) continue;
    ++found;
    expect_halves(tensor);
    Workspace model;
    RunNetOnce(trainer.ModelInitNet(), model);
    expect_halves(model.GetTensor(name));
  }
  EXPECT_EQ(found, 1);
}

}  // namespace
}  // namespace stepnet::runner
