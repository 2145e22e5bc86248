#include "stepnet/tools/rnn_runner/trained_model.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/crc32c.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/tools/rnn_runner/checkpoint.h"

namespace stepnet::runner {
namespace {

constexpr const char* kNet = "net.pb";
constexpr const char* kParameters = "init_net.pb";
constexpr const char* kVocabulary = "vocabulary.json";

bool Holds(const std::string& path, const std::string& content) {
  try {
    return ReadFile(path) == content;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInputOutput) throw;
    return false;  // whatever is there is none of ours
  }
}

std::uint32_t ChecksumOfValues(const NetDef& net) {
  std::uint32_t checksum = 0;
  for (const OperatorDef& op : net.op()) {
    for (const Argument& argument : op.arg()) {
      const auto& values = argument.floats();
      const std::string_view bytes(reinterpret_cast<const char*>(values.data()),
                                   sizeof(float) * static_cast<size_t>(values.size()));
      checksum = Crc32c(bytes, checksum);
    }
  }
  return checksum;
}

// Takes the values of the parameters out of `net`. False where they are not as many as the shape says, or not finite.
bool TakeValues(NetDef* net) {
  for (OperatorDef& op : *net->mutable_op()) {
    if (op.type() != "GivenTensorFill" || op.arg_size() != 2) continue;
    double size = 1;  // as a shape may say any numbers
    for (const std::int64_t dim : op.arg(0).ints()) size *= static_cast<double>(dim);
    const auto& values = op.arg(1).floats();
    if (static_cast<double>(values.size()) != size) return false;
    if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) return false;
    op.mutable_arg(1)->clear_floats();
  }
  return true;
}

}  // namespace

TrainedModel::TrainedModel(std::string folder, const Vocabulary& vocabulary, const Trainer& trainer)
    : folder_(std::move(folder)), vocabulary_(vocabulary), trainer_(trainer) {}

std::vector<std::string> TrainedModel::FileNames() { return {kNet, kParameters, kVocabulary}; }

std::uint32_t TrainedModel::Write() const {
  WriteFile(Path(kVocabulary), vocabulary_.Json());
  WriteMessage(trainer_.ModelNet(), Path(kNet));
  const NetDef parameters = trainer_.ModelInitNet();
  WriteMessage(parameters, Path(kParameters));
  return ChecksumOfValues(parameters);
}

std::vector<std::string> TrainedModel::Mend() const {
  std::vector<std::string> mended;
  const std::pair<const char*, std::string> files[] = {{kNet, trainer_.ModelNet().SerializeAsString()},
                                                       {kVocabulary, vocabulary_.Json()}};
  for (const auto& [name, content] : files) {
    if (Holds(Path(name), content)) continue;
    WriteFile(Path(name), content);
    mended.push_back(Path(name));
  }
  return mended;
}

std::optional<std::string> TrainedModel::FaultOfParameters(std::uint32_t* checksum) const {
  const std::string path = Path(kParameters);
  NetDef found;
  try {
    ReadMessage(path, &found);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInputOutput) throw;
    return error.message();
  }
  *checksum = ChecksumOfValues(found);
  const bool fits = TakeValues(&found) &&
                    found.SerializeAsString() == trainer_.ModelInitNet(/*with_values=*/false).SerializeAsString();
  return fits ? std::nullopt : std::optional(StrCat(path, " does not hold the parameters of this model"));
}

}  // namespace stepnet::runner
