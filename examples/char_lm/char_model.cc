#include "char_model.h"

#include <nlohmann/json.hpp>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/proto/net.pb.h"

using stepnet::Error;
using stepnet::ErrorCode;
using stepnet::NetDef;
using stepnet::StrCat;
using stepnet::Tensor;

namespace {

constexpr std::int64_t kBatch = 1;

// The state that the net starts from, and the blob with the state that it ends in.
struct State {
  const char* initial;
  const char* last;
};
constexpr State kStates[] = {{"hidden_init", "lstm/hidden_state_last"}, {"cell_init", "lstm/cell_state_last"}};

NetDef ReadNet(const std::string& path) {
  NetDef net;
  stepnet::ReadMessage(path, &net);
  return net;
}

std::string ReadVocabulary(const std::string& path) {
  std::string characters;
  try {
    for (const std::string entry : nlohmann::json::parse(stepnet::ReadFile(path))) {
      if (entry.size() != 1) throw Error(ErrorCode::kInputOutput, StrCat("\"", entry, "\" is not one character"));
      characters += entry;
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kInputOutput, StrCat(path, ": ", error.what()));
  }
  return characters;
}

}  // namespace

CharModel::CharModel(const std::string& folder) : characters_(ReadVocabulary(folder + "/vocabulary.json")) {
  stepnet::RunNetOnce(ReadNet(folder + "/init_net.pb"), workspace_);
  // A net wants its inputs to exist when it is made.
  workspace_.SetTensor("input", Tensor::Of<float>({0, kBatch, num_characters()}, {}));
  workspace_.SetTensor("seq_lengths", Tensor::Of<std::int32_t>({kBatch}, {0}));
  Forget();
  net_ = stepnet::Net::Create(ReadNet(folder + "/net.pb"), workspace_);
}

int CharModel::IndexOf(char c) const {
  const size_t index = characters_.find(c);
  if (index == std::string::npos) {
    throw Error(ErrorCode::kInvalidArgument, StrCat("the model does not know the character '", c, "' (byte ",
                                                    static_cast<int>(static_cast<unsigned char>(c)), "); it knows ",
                                                    nlohmann::json(characters_).dump()));
  }
  return static_cast<int>(index);
}

std::vector<float> CharModel::Read(const std::string& text) {
  // One row a character, 1 in the column of the character and 0 elsewhere.
  const auto length = static_cast<std::int64_t>(text.size());
  std::vector<float> one_hot(text.size() * num_characters());
  for (size_t t = 0; t < text.size(); ++t) one_hot[t * num_characters() + IndexOf(text[t])] = 1;
  workspace_.SetTensor("input", Tensor::Of<float>({length, kBatch, num_characters()}, one_hot));
  workspace_.SetTensor("seq_lengths", Tensor::Of<std::int32_t>({kBatch}, {static_cast<std::int32_t>(length)}));

  net_->Run();

  // Copies, because the next run writes over what its outputs hold.
  for (const State& state : kStates) workspace_.SetTensor(state.initial, workspace_.GetTensor(state.last).Clone());
  const Tensor& probabilities = workspace_.GetTensor("probabilities");
  return {probabilities.data<float>(), probabilities.data<float>() + probabilities.size()};
}

void CharModel::Forget() {
  const std::int64_t size = workspace_.GetTensor("lstm/gates_t_w").dim(1);  // of the state
  for (const State& state : kStates) {
    workspace_.SetTensor(state.initial, Tensor::Of<float>({1, kBatch, size}, std::vector<float>(kBatch * size)));
  }
}
