// Texts as a language model reads them: characters (Unicode code points), their numbers, and the parts of a text that
// are read side by side.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "stepnet/core/tensor.h"

namespace stepnet::runner {

// The characters of UTF-8 text, each as its bytes. Throws kInputOutput, with `what` and the byte, for bytes that are no
// UTF-8.
std::vector<std::string> SplitCharacters(const std::string& text, const std::string& what);

// The characters that a model knows, with their numbers from 0.
class Vocabulary {
 public:
  Vocabulary() = default;
  explicit Vocabulary(std::vector<std::string> characters);
  // Those of a text, in the order of their code points.
  static Vocabulary Of(const std::vector<std::string>& text);
  // A JSON list of characters. Throws kInputOutput, naming the file.
  static Vocabulary Read(const std::string& path);

  std::int64_t size() const { return static_cast<std::int64_t>(characters_.size()); }
  const std::string& character(std::int64_t number) const { return characters_[number]; }
  // Throws kInvalidArgument for a character that is not among them.
  std::int32_t NumberOf(const std::string& character) const;
  std::string Json() const;  // in ASCII, as Read takes it

 private:
  std::vector<std::string> characters_;
  std::map<std::string, std::int32_t> numbers_;
};

// A text cut into `batch` parts of equal length that lie side by side, what is left at the end dropped; each part is
// read from front to back, `steps` characters at a time.
class Streams {
 public:
  Streams(std::span<const std::int32_t> text, std::int64_t batch) : text_(text), batch_(batch) {
    // The last character of a part has one behind it, to be predicted.
    length_ = text.empty() ? 0 : (static_cast<std::int64_t>(text.size()) - 1) / batch;
  }
  std::int64_t batch() const { return batch_; }
  std::int64_t length() const { return length_; }  // of a part

  // Characters [begin, begin + steps) of every part, int32 [steps, batch], into `tokens`, and those behind them into
  // `targets`.
  void Fill(std::int64_t begin, std::int64_t steps, std::int32_t* tokens, std::int32_t* targets) const;

 private:
  std::span<const std::int32_t> text_;
  std::int64_t batch_;
  std::int64_t length_;
};

// A text that a model is trained on, and its last part, which only measures the model.
struct Corpus {
  Vocabulary vocabulary;
  std::vector<std::int32_t> numbers;  // of all characters
  std::int64_t num_training = 0;      // of them
  std::uint32_t crc32c = 0;           // of the file

  std::span<const std::int32_t> training() const { return std::span(numbers).first(num_training); }
  std::span<const std::int32_t> validation() const { return std::span(numbers).subspan(num_training); }
};

// Reads a UTF-8 file; `validation` is the part that measures, between 0 and 1. Throws kInputOutput for a file that is
// empty or no UTF-8.
Corpus ReadCorpus(const std::string& path, double validation);

}  // namespace stepnet::runner
