// What Python says of how nets are run and cells are used.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "stepnet/cells/cell_expand.h"
#include "stepnet/core/run_options.h"
#include "stepnet/nets/gradient_request.h"

namespace stepnet::python {

// Throws kInvalidArgument for a number of threads or a level that there is not, and for a device that this program does
// not know or this machine does not have.
RunOptions MakeRunOptions(std::int64_t threads, const std::string& device, std::int64_t opt_level, std::uint64_t seed);

// Sizes from a dictionary of names and whole numbers. Throws kTypeMismatch for anything else. Needs the GIL.
CellSizes SizesOf(const nanobind::dict& sizes);

// Requests from a dictionary of names and "write", "add" or "none". Throws kInvalidArgument for other words,
// kTypeMismatch for what is no string. Needs the GIL.
GradientRequests RequestsOf(const nanobind::dict& requests);

// The cell in a text, or in a file.
CellSource SourceOf(const std::string& text_or_path, bool is_text);

}  // namespace stepnet::python
