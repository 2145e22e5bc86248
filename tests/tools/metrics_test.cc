#include "stepnet/tools/rnn_runner/metrics.h"

#include "stepnet/tests/core/temp_dir.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet::runner {
namespace {

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

constexpr const char* kEvents = "events.out.tfevents.stepnet";
constexpr const char* kHeader = "iteration,loss,bits_per_character,learning_rate,gradient_norm,validation_bits\n";

// Bytes by tensorboard 2.20's RecordWriter.
TEST(TfRecord, IsWhatTensorBoardWrites) {
  EXPECT_EQ(TfRecord("abc"), FromHex("0300000000000000b099490e6162636e57f121"));
}

TEST(Metrics, AreWhatTensorBoardWrites) {
  const TempDir dir;
  Metrics metrics(dir.path(), 0, 0);
  const size_t first = dir.Get(kEvents).size();
  metrics.Add({.iteration = 3, .loss = 2, .learning_rate = 0.5});
  EXPECT_EQ(dir.Get(kEvents).substr(first),
            FromHex("5000000000000000940f9b8209000000000000084010032a430a220a1b747261696e696e672f626974735f7065725f6368"
                    "61726163746572153baa38400a1d0a16747261696e696e672f6c6561726e696e675f72617465150000003f49573326"));
}

TEST(Metrics, AreRowsOfNumbers) {
  const TempDir dir;
  Metrics metrics(dir.path(), 0, 0);
  metrics.Add({.iteration = 1, .loss = 2, .learning_rate = 0.5});
  metrics.Add({.iteration = 2, .loss = 1, .learning_rate = 0.25, .gradient_norm = 3, .validation_bits = 1.5});
  EXPECT_EQ(dir.Get("metrics.csv"), std::string(kHeader) + "1,2,2.88539008,0.5,,\n" + "2,1,1.44269504,0.25,3,1.5\n");
}

TEST(Metrics, GoOnWhereACheckpointWasMade) {
  const TempDir dir;
  const IterationMetrics rows[] = {{.iteration = 1, .loss = 2}, {.iteration = 2, .loss = 1}, {.iteration = 3}};
  {
    Metrics metrics(dir.path(), 0, 0);
    for (const IterationMetrics& row : rows) metrics.Add(row);
  }
  const std::string csv = dir.Get("metrics.csv");
  const std::string events = dir.Get(kEvents);
  std::pair<std::int64_t, std::int64_t> checkpoint;
  {
    Metrics metrics(dir.path(), 0, 0);
    metrics.Add(rows[0]);
    checkpoint = {metrics.csv_bytes(), metrics.events_bytes()};
    metrics.Add({.iteration = 2, .loss = 77});  // lost with what was behind the checkpoint
  }
  {
    Metrics metrics(dir.path(), checkpoint.first, checkpoint.second);
    metrics.Add(rows[1]);
    metrics.Add(rows[2]);
  }
  EXPECT_EQ(dir.Get("metrics.csv"), csv);
  EXPECT_EQ(dir.Get(kEvents), events);
}

TEST(Metrics, SayWhatIsMissing) {
  const TempDir dir;
  { const Metrics metrics(dir.path(), 0, 0); }
  ExpectError([&] { Metrics(dir.path(), 1000, 1000); },
              "input/output error: " + dir.Path("metrics.csv") +
                  " has 78 bytes, and had 1000 when the checkpoint was made (where it is removed, a new one begins; "
                  "--fresh starts anew)");
}

TEST(Metrics, HaveNoNegativeLength) {
  const TempDir dir;
  dir.Put("metrics.csv", kHeader);
  ExpectError([&] { Metrics(dir.path(), -1, 0); },
              "input/output error: " + dir.Path("metrics.csv") + " cannot have had -1 bytes");
  EXPECT_EQ(dir.Get("metrics.csv"), kHeader);
}

TEST(Metrics, SayThatTheDiskIsFull) {
  ExpectError([] { GrowingFile("/dev/full", 0).Append("x"); },
              "input/output error: cannot write /dev/full: No space left on device");
}

}  // namespace
}  // namespace stepnet::runner
