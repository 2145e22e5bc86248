// Cell: a cell with sizes, ready to be called with arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/cells/cell_expand.h"
#include "stepnet/python/src/call_gradients.h"
#include "stepnet/python/src/options.h"
#include "stepnet/python/src/program.h"

namespace stepnet::python {

class Cell {
 public:
  // Throws what ExpandCell and Net::Create throw.
  Cell(const CellSource& source, const CellUse& use, const RunOptions& options);

  // What a call is given: a parameter, an input, or what a state starts from.
  struct Argument {
    CellNetInput input = {};  // of parameters the blob and the dtype alone
    bool is_parameter = false;
    bool is_start = false;    // it may be left out
    Tensor start = {};        // what it is then, on the host
    Tensor start_there = {};  // and on the device of the cell
    Shape shape = {};         // of a parameter
  };

  const std::vector<Argument>& arguments() const { return arguments_; }
  const std::vector<std::string>& outputs() const { return outputs_; }
  const std::string& name() const { return name_; }
  const std::string& doc() const { return doc_; }
  const NetDef& net() const { return net_.net; }
  // The indices of outputs that are not floating, which have no gradients.
  std::vector<int> WholeOutputs() const;
  bool draws() const { return draws_; }              // whether calls draw random numbers
  const std::string& text() const { return text_; }  // as it was read; where it was bytes, what they say
  const std::vector<std::string>& warnings() const { return warnings_; }  // WarningsOf the cell

  // The parameters that init_net draws for a seed, by name.
  std::map<std::string, Tensor> Init(std::uint64_t seed) const;

  // Where a call may find arrays, as for PlaceFor. Throws kTypeMismatch. Needs the GIL.
  ArrayPlace PlaceOf(nanobind::handle stream, const TensorExchange* exchange = nullptr) const {
    return PlaceFor(options_.device(), stream, exchange);
  }
  // What a call is given, one for each argument: nothing for a state that is left out, or None. Held, since what
  // reads an array may run code of Python's that changes where it was found.
  using Given = std::vector<nanobind::object>;
  // Finds them by name in dictionaries. Throws kInvalidArgument for names that are missing or unknown. Needs the GIL.
  Given FindArguments(const nanobind::dict& parameters, const nanobind::dict& inputs) const;
  // One tensor for each argument: on the device where any of them is there. Throws kTypeMismatch and kShapeMismatch for
  // tensors that do not fit. Needs the GIL.
  std::vector<Tensor> TakeArguments(const Given& given, const ArrayPlace& place) const;

  const std::shared_ptr<Program>& program() const { return program_; }
  // What its programs are made of; with gradients by these arguments, where there are any, as they are requested.
  ProgramDef MakeProgramDef(const std::vector<int>& arguments = {}, const GradientRequests& requests = {}) const;
  // The program that gives gradients by these arguments, too; made once. Throws what WithGradients throws.
  std::shared_ptr<Program> ProgramWithGradients(const std::vector<int>& arguments,
                                                const GradientRequests& requests = {});
  // What those gradients are of, and by.
  CallGradients::Of OfGradients(const std::vector<int>& arguments, const GradientRequests& requests = {}) const;
  // What to say behind an error of an input that the cell does not have, where it is called as those are that options
  // give: "; it has no lengths: …".
  std::string AdviceOnInput(const std::string& name) const;
  // The indices of the arguments of these names. Throws kInvalidArgument for names that no argument has, and for those
  // that have no gradient. Where no name is given, all that have one are meant.
  std::vector<int> IndicesOf(const std::vector<std::string>& names) const;

 private:
  // What initial states that are not given are, where others are on `device`.
  void AddStarts(std::vector<Tensor>* tensors) const;
  void CheckNames(const nanobind::dict& given, bool parameters) const;
  void CheckArguments(const std::vector<Tensor>& tensors) const;
  std::vector<std::string> NamesOf(bool parameters) const;

  std::string name_;
  std::string doc_;
  std::string text_;
  std::vector<std::string> warnings_;
  CellNet net_;
  RunOptions options_;
  bool draws_ = false;
  std::vector<Argument> arguments_;
  std::vector<std::string> outputs_;
  std::vector<DType> output_dtypes_;
  const std::shared_ptr<RunCount> num_runs_ = std::make_shared<RunCount>(0);  // of all programs
  std::shared_ptr<Program> program_;
  std::mutex mutex_;
  std::map<std::pair<std::vector<int>, GradientRequests>, std::shared_ptr<Program>> with_gradients_;
};

}  // namespace stepnet::python
