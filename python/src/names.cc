#include "stepnet/python/src/names.h"

#include <string_view>

#include "stepnet/core/error.h"
#include "stepnet/core/printable.h"
#include "stepnet/core/strings.h"

namespace stepnet::python {
namespace {

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Character first = FirstCharacter(text);
    if (first.bytes == 0) return false;
    text.remove_prefix(first.bytes);
  }
  return true;
}

}  // namespace

void CheckBlobName(const std::string& blob) {
  if (blob.find('\0') != std::string::npos) {
    throw Error(ErrorCode::kInvalidNet, StrCat("the blob \"", PrintableLine(blob), "\" has a name with a NUL in it"));
  }
  if (IsUtf8(blob)) return;
  throw Error(ErrorCode::kInvalidNet, StrCat("the blob \"", PrintableLine(blob), "\" has a name that is no UTF-8"));
}

void CheckBlobNames(const NetDef& net) {
  for (const OperatorDef& op : net.op()) {
    for (const std::string& blob : op.input()) CheckBlobName(blob);
    for (const std::string& blob : op.output()) CheckBlobName(blob);
    for (const Argument& argument : op.arg()) CheckBlobNames(argument.n());
  }
  for (const std::string& blob : net.external_output()) CheckBlobName(blob);
}

}  // namespace stepnet::python
