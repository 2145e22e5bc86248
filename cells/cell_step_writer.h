// StepWriter: writes the operators of a step for expressions in the short form of cells.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "stepnet/core/tensor.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

// What a name stands for in a step.
enum class StepBlob { kInput, kState, kShared, kWritten };

// Where a word stands in the text, from 1.
struct WordPlace {
  int line = 0;
  int column = 0;
};

// The value of an expression: a blob, a number, or `blob @ weights` that is not written yet, because a bias may follow.
// A number that sizes give is an expression of them, as arguments take it: `1/sqrt(H)`.
struct StepOperand {
  enum Kind { kBlob, kNumber, kProduct };
  Kind kind = kBlob;
  std::string blob = {};
  double number = 0;
  std::string of_sizes = {};  // in place of `number`
  std::string weights = {};
  WordPlace place = {};  // of the @ of a product

  bool IsPlainNumber() const { return kind == kNumber && of_sizes.empty(); }

  static StepOperand Blob(std::string name) { return {.kind = kBlob, .blob = std::move(name)}; }
  static StepOperand Number(double value) { return {.kind = kNumber, .number = value}; }
  static StepOperand OfSizes(std::string text) { return {.kind = kNumber, .of_sizes = std::move(text)}; }
};

// Throws kInvalidArgument for names and operands that make no sense.
class StepWriter {
 public:
  void Declare(const std::string& name, StepBlob kind, int rank);
  // Reading a state before it is written gives its value before the step, `<name>_prev`, which may be read by that name
  // at any time.
  void DeclareState(const std::string& name);

  // Blobs between are called "<target>.1", "<target>.2", …
  void Begin(const std::string& target) {
    target_ = target;
    num_names_ = 0;
  }

  // Operators that are added from now on come from this word: a call's name, a sign, the start of a statement.
  void SetPlace(WordPlace place) { place_ = place; }

  // The blob that `name` stands for now.
  std::string Read(const std::string& name) const;
  bool Has(const std::string& name) const { return known_.contains(name); }
  // + - * / element by element, where what no step changes is repeated over the rest; @ is a product with the
  // transposed weights [N, D] over the last dimension, `x @ w + b` one FC.
  StepOperand Binary(char sign, const StepOperand& left, const StepOperand& right);
  StepOperand Negative(const StepOperand& value);
  // The square root; the value is a number.
  StepOperand Root(const StepOperand& value);
  // Adds an operator of these inputs; gives it as many outputs as it has at least.
  StepOperand Call(OperatorDef op);
  // Whether a number may stand for an input of operators of the type: one whose inputs are repeated over each other.
  static bool TakesNumbers(const std::string& type);
  // The blobs of the inputs of an operator. A number becomes a tensor of the shape of the last input that is none; of
  // whole numbers where that is known to hold such.
  std::vector<std::string> Filled(std::vector<StepOperand> inputs);
  // Writes what is not written yet.
  std::string AsBlob(const StepOperand& value);
  // Several names take the outputs of the operator that `value` is the result of.
  void Assign(const StepOperand& value, const std::vector<std::string>& names);

  int num_ops() const { return static_cast<int>(ops_.size()); }
  const OperatorDef& op(int k) const { return ops_[k]; }
  WordPlace place(int k) const { return places_[k]; }

 private:
  struct Known {
    StepBlob kind = StepBlob::kWritten;
    bool is_shared = false;  // no step changes it: what is declared as kShared, and functions of it, element by element
    int rank = 0;            // of shared blobs
    std::optional<DType> whole = {};  // what it holds, where that is known to be whole numbers
  };

  std::string RemedyFor(const std::string& name, const std::string& nearest) const;
  void DeclareWritten(const std::string& name, Known known);
  Known KnownOf(const StepOperand& value) const;
  void MarkShared(const OperatorDef& op);
  void MarkWhole(const OperatorDef& op);
  std::string NewName();
  StepOperand Add(const char* type, std::vector<std::string> inputs);
  // The operator of `product`, with its bias if it has one.
  StepOperand AddProduct(const StepOperand& product, std::vector<std::string> inputs);
  StepOperand Scaled(const StepOperand& value, const StepOperand& factor);
  StepOperand Like(const StepOperand& value, const StepOperand& number);  // a tensor of the shape of value
  StepOperand Elementwise(char sign, const StepOperand& left, const StepOperand& right);

  std::vector<OperatorDef> ops_;
  std::vector<WordPlace> places_;  // of each operator
  WordPlace place_;
  std::map<std::string, Known> known_;
  std::set<std::string> unwritten_states_;
  std::string target_;
  int num_names_ = 0;
};

}  // namespace stepnet
