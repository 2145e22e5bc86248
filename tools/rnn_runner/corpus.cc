#include "stepnet/tools/rnn_runner/corpus.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/crc32c.h"
#include "stepnet/io/file.h"
#include "stepnet/report/text.h"

namespace stepnet::runner {
namespace {

// Bytes of the character that starts at byte i, 0 where none does: RFC 3629, without surrogates and overlong forms.
size_t CharacterBytes(const std::string& text, size_t i) {
  const auto byte = [&](size_t k) { return k < text.size() ? static_cast<unsigned char>(text[k]) : 0U; };
  const unsigned first = byte(i);
  if (first < 0x80) return 1;
  const size_t bytes = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  for (size_t k = 1; k < bytes; ++k) {
    if ((byte(i + k) & 0xc0) != 0x80) return 0;
  }
  const unsigned second = byte(i + 1);
  const bool is_overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool is_no_code_point = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
  return is_overlong || is_no_code_point ? 0 : bytes;
}

}  // namespace

std::vector<std::string> SplitCharacters(const std::string& text, const std::string& what) {
  std::vector<std::string> characters;
  for (size_t i = 0; i < text.size();) {
    const size_t bytes = CharacterBytes(text, i);
    if (bytes == 0) {
      throw Error(ErrorCode::kInputOutput, StrCat(what, " is not UTF-8 at byte ", i, " (line ",
                                                  1 + std::count(text.begin(), text.begin() + i, '\n'), ")"));
    }
    characters.push_back(text.substr(i, bytes));
    i += bytes;
  }
  return characters;
}

Vocabulary::Vocabulary(std::vector<std::string> characters) : characters_(std::move(characters)) {
  for (size_t i = 0; i < characters_.size(); ++i) numbers_[characters_[i]] = static_cast<std::int32_t>(i);
}

Vocabulary Vocabulary::Of(const std::vector<std::string>& text) {
  const std::set<std::string> characters(text.begin(), text.end());  // UTF-8 sorts as code points do
  return Vocabulary({characters.begin(), characters.end()});
}

Vocabulary Vocabulary::Read(const std::string& path) {
  const std::string content = ReadFile(path);
  try {
    Vocabulary vocabulary(nlohmann::json::parse(content).get<std::vector<std::string>>());
    if (vocabulary.numbers_.size() == vocabulary.characters_.size() && vocabulary.size() > 0) return vocabulary;
  } catch (const nlohmann::json::exception&) {  // it speaks of types of C++
  }
  throw Error(ErrorCode::kInputOutput, StrCat(path, " is no JSON list of characters, each of them once"));
}

std::int32_t Vocabulary::NumberOf(const std::string& character) const {
  const auto found = numbers_.find(character);
  if (found != numbers_.end()) return found->second;
  throw Error(ErrorCode::kInvalidArgument, StrCat("the model does not know the character ", Quoted(character),
                                                  "; it knows ", nlohmann::json(characters_).dump()));
}

std::string Vocabulary::Json() const { return nlohmann::json(characters_).dump(-1, ' ', /*ensure_ascii=*/true); }

void Streams::Fill(std::int64_t begin, std::int64_t steps, std::int32_t* tokens, std::int32_t* targets) const {
  for (std::int64_t t = 0; t < steps; ++t) {
    for (std::int64_t b = 0; b < batch_; ++b) {
      const std::int64_t at = b * length_ + begin + t;
      tokens[t * batch_ + b] = text_[at];
      targets[t * batch_ + b] = text_[at + 1];
    }
  }
}

Corpus ReadCorpus(const std::string& path, double validation) {
  const std::string text = ReadFile(path);
  if (text.empty()) throw Error(ErrorCode::kInputOutput, StrCat(path, " is empty"));
  const std::vector<std::string> characters = SplitCharacters(text, path);
  Corpus corpus{.vocabulary = Vocabulary::Of(characters), .numbers = {}, .crc32c = Crc32c(text)};
  corpus.numbers.reserve(characters.size());
  for (const std::string& character : characters) corpus.numbers.push_back(corpus.vocabulary.NumberOf(character));
  const double training = std::ceil((1 - validation) * static_cast<double>(characters.size()));
  corpus.num_training = std::clamp<std::int64_t>(static_cast<std::int64_t>(training), 0, corpus.numbers.size());
  return corpus;
}

}  // namespace stepnet::runner
