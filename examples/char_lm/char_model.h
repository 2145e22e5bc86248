// CharModel: a character language model from files, read and run through the public API of StepNet.
//
// It keeps the state of its recurrent layer from one Read to the next, so that a text may be read in pieces of any
// length, one character at a time included.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stepnet/core/workspace.h"
#include "stepnet/nets/net.h"

class CharModel {
 public:
  // `folder` holds init_net.pb (fills the parameters), net.pb (the model) and vocabulary.json (its characters).
  // Throws stepnet::Error.
  explicit CharModel(const std::string& folder);

  int num_characters() const { return static_cast<int>(characters_.size()); }
  char character(int index) const { return characters_[index]; }
  // Throws stepnet::Error for a character that the model does not know.
  int IndexOf(char c) const;

  // Reads `text` and gives text.size() rows of num_characters() probabilities: what the model expects after each
  // character of the text.
  std::vector<float> Read(const std::string& text);
  // Goes back to the state before any text.
  void Forget();

 private:
  std::string characters_;
  stepnet::Workspace workspace_;
  std::unique_ptr<stepnet::Net> net_;
};
