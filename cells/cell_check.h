// What can be known to be wrong with a cell without sizes: CheckCell of cell.h, and what it leaves to who expands one.
#pragma once

#include <optional>

#include "stepnet/cells/cell.h"
#include "stepnet/core/error.h"

namespace stepnet {

// What CheckCell throws where all that is wrong are parameters and inputs that nothing reads: with such a cell shapes
// can be looked at, too, and theirs may be the mistake that left them unread. Nothing where nothing is wrong. Throws
// the rest as CheckCell does.
std::optional<Error> UnreadFault(const CellSource& cell);

}  // namespace stepnet
