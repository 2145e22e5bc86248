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

void AddBlobs(const NetDef& net, std::set<std::string>* blobs) {
  for (const OperatorDef& op : net.op()) {
    blobs->insert(op.input().begin(), op.input().end());
    blobs->insert(op.output().begin(), op.output().end());
    for (const Argument& argument : op.arg()) {
      if (argument.has_n()) AddBlobs(argument.n(), blobs);
    }
  }
  blobs->insert(net.external_input().begin(), net.external_input().end());
  blobs->insert(net.external_output().begin(), net.external_output().end());
}

}  // namespace

std::set<std::string> BlobsOf(const NetDef& net) {
  std::set<std::string> blobs;
  AddBlobs(net, &blobs);
  return blobs;
}

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
