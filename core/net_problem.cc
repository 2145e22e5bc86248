#include "stepnet/core/net_problem.h"

#include "stepnet/core/printable.h"
#include "stepnet/core/strings.h"

namespace stepnet {

std::string NetProblem::Text() const {
  std::string text = StrCat("net \"", PrintableLine(net), "\"");
  if (op_index >= 0) text += StrCat(", op ", op_index);
  if (!op_text.empty()) text += StrCat(" `", PrintableLine(op_text), "`");
  return StrCat(text, ": ", message);
}

}  // namespace stepnet
