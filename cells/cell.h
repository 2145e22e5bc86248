// Cells in files: text of the message CellDef, or the short form
//
//   # Gated recurrent unit …
//   cell gru(x[D]; h[H]) {
//     size D = 32
//     size H = 64
//     param w[2*H, D]
//     param u[2*H, H]
//     …
//     r, z = Split(Sigmoid(x @ w + b + h @ u), axis=-1)
//     …
//     output h
//   }
//
// Both become the same message. docs/authoring.md has the grammar.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/core/error.h"
#include "stepnet/proto/cell.pb.h"

namespace stepnet {

// What of a CellDef something is about; with an index where there are several. The index of an option is the number of
// its field in CellOptions, or 0 for all of them; that of a state's is StateOption(…). What a step writes of a state
// has the state's index.
enum class CellPart {
  kCell,
  kSize,
  kInput,
  kState,
  kStateOption,
  kStateWrite,
  kCapture,
  kParameter,
  kOperator,
  kOutput,
  kOptions,
  kInitializer
};

// `field` is a field's number in CellState.
inline constexpr int StateOption(int state, int field) { return 16 * state + field; }
inline constexpr int StateOfOption(int index) { return index / 16; }

// A cell with the places of its parts in the file that it was read from.
struct CellSource {
  CellDef def;
  std::string file;                                                     // "" where there is none
  std::map<std::pair<CellPart, int>, std::pair<int, int>> places = {};  // line and column, from 1
  std::string text = {};                                                // of the file
  std::shared_ptr<const CellSource> options_from = {};                  // the file and place of options from elsewhere

  // "gru.cell:12:3" as far as it is known.
  std::string Place(CellPart part, int index = 0) const;
  // The line of that place, as SourceLine shows it; "" where it is not known.
  std::string Line(CellPart part, int index = 0) const;
  // Line and column of that part or, of an option or initializer that stands nowhere, of what it is one of, and of a
  // write whose name stands nowhere, of the operator.
  std::optional<std::pair<int, int>> Find(CellPart part, int index = 0) const;
  // `message` about that part, behind its place and with its line.
  std::string Fault(CellPart part, int index, const std::string& message) const;
  // Calls `body`; what it throws is a fault of that part.
  template <typename Body>
  auto At(CellPart part, int index, const Body& body) const {
    try {
      return body();
    } catch (const Error& error) {
      throw Error(error.code(), Fault(part, index, error.message()));
    }
  }
};

// Reads either form, whichever the file holds. Throws kInputOutput as "FILE:LINE:COLUMN: …" for text that is neither,
// and as ParseShortCell does for the short form, which a file is whose first word is `cell` or whose name ends in
// .cell.
CellSource ReadCell(const std::string& path);
// Does what ReadCell does, from a file's content; `what` names it in errors.
CellSource ParseCell(const std::string& content, const std::string& what);

// Whether the first word of a file is that of the short form, `cell`.
bool IsShortCell(const std::string& content);
// Whether a file is a cell, by its name, which ends in .cell, or else by its content.
bool IsCell(const std::string& content, const std::string& path);
// Parses the short form. Throws kSyntaxError as "WHAT:LINE:COLUMN: …", with the line and a caret.
CellSource ParseShortCell(const std::string& text, const std::string& what);
// The short form, an operator a line. Throws kInvalidArgument for what it cannot say: names that are no identifiers,
// nets and tensors as arguments, engines.
std::string PrintShortCell(const CellDef& cell);

// Throws kSyntaxError that lists everything that is wrong with the cell and can be known without sizes: names that are
// missing, taken or unknown, parameters and sizes that nothing uses, states that nothing writes, unknown operators,
// arity and arguments, values of options. For a cell that was not read from a text it is kInvalidNet, for options from
// elsewhere kInvalidArgument.
void CheckCell(const CellSource& cell);

// What is allowed, and most likely a mistake: operators of which nothing is read, those that mix the items of a batch
// as nothing was or can be said of dimensions, and those of one input that do nothing. One text each, with its place.
std::vector<std::string> WarningsOf(const CellSource& cell);

// The blob that holds a state before the step.
std::string PreviousOf(const CellState& state);
// The name that an output has outside.
std::string NameOf(const CellOutput& output);

}  // namespace stepnet
