// What Python says of how nets are run and cells are used.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "stepnet/cells/cell_expand.h"
#include "stepnet/core/run_options.h"
#include "stepnet/nets/gradient_request.h"
#include "stepnet/python/src/arrays.h"

namespace stepnet::python {

// It is the parameter of a function that takes whatever Python gives, None, too: the functions below say what is wrong
// with it, where nanobind would print all signatures.
inline auto Anything() { return nanobind::arg().none(); }

// What Python gave for the option `name`. Throw kTypeMismatch, which says what it is and what it must be. Need the GIL.
std::int64_t WholeNumberOf(const char* name, nanobind::handle value);
std::uint64_t SeedOf(nanobind::handle value);  // the option "seed": at least 0
bool TruthOf(const char* name, nanobind::handle value);
std::string TextOf(const char* name, nanobind::handle value);
std::vector<std::string> NamesOf(const char* name, nanobind::handle value);  // a list of texts

// How a net is to be run, as Python says it.
struct RunRequest {
  std::int64_t threads = 0;
  std::string device = "cpu";
  std::int64_t opt_level = kMaxOptLevel;
  std::vector<std::string> disable_pass = {};
  std::uint64_t seed = 0;
};
// Throws kTypeMismatch as above. Needs the GIL.
RunRequest RunRequestOf(nanobind::handle threads, nanobind::handle device, nanobind::handle opt_level,
                        const nanobind::list& disable_pass, nanobind::handle seed);
// Throws kInvalidArgument for a number of threads, a level or a pass that there is not, for a pass that the level does
// not run, and for a device that this program does not know or this machine does not have. May take long, since it asks
// for the device.
RunOptions MakeRunOptions(const RunRequest& request);

// Where a call that runs on `device` may find arrays. `stream`: by which the call is ordered, of another device than
// the host, or None. `exchange`: by which tensors of PyTorch are taken and given, all on the host, or null. Throws
// kTypeMismatch. Needs the GIL.
ArrayPlace PlaceFor(const Device& device, nanobind::handle stream, const TensorExchange* exchange = nullptr);

// What Python says of a cell by name, sizes and options, each as a cell's text has it: "128", "0.5", "reverse".
using CellWords = std::map<std::string, std::string>;
// From a dictionary. Throws kTypeMismatch for a value that is no whole number, unless an option has that name, which
// takes numbers, words and truth values. Needs the GIL.
CellWords CellWordsOf(const nanobind::dict& given);
// Gives the cell the options among them, in place of its own; returns the others, which are sizes. A name of both is a
// size of a cell that declares it. Throws what ParseCellOptions and WithOptions throw.
CellSizes TakeWords(const CellWords& words, CellSource* cell);

// Requests from a dictionary of names and "write", "add" or "none". Throws kInvalidArgument for other words,
// kTypeMismatch for what is no string. Needs the GIL.
GradientRequests RequestsOf(const nanobind::dict& requests);

// The cell in a text, or in a file. Throws as ReadCell and ParseCell, and kInvalidArgument for a net.
CellSource SourceOf(const std::string& text_or_path, bool is_text);

}  // namespace stepnet::python
