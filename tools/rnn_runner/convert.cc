// rnn_runner convert: the same message as text or in binary.
#include <iostream>

#include "stepnet/core/strings.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/model_file.h"

namespace stepnet::runner {
namespace {

int Convert(const std::vector<std::string>& operands) {
  const std::string& from = operands[0];
  const std::string& to = operands[1];
  if (!IsTextFileName(to) && !to.ends_with(".pb")) {
    throw UsageError(
        StrCat("cannot tell from \"", to, "\" what to write; it must end in .pb, .pbtxt, .prototxt or .txt"));
  }
  const AnyMessage file = ReadAnyMessage(from);
  WriteMessage(*file.message, to);
  std::cerr << "wrote " << to << " (" << MessageKindName(file.kind) << ")\n";
  return kOk;
}

}  // namespace

const Command kConvert = {
    .name = "convert",
    .operands = "IN OUT",
    .doc = "writes a file as text (.pbtxt, .prototxt, .txt) or binary (.pb)",
    .details =
        "IN is a NetDef, a MetaNetDef, a PlanDef, TensorProtos, a TensorProto or a BlobProto, binary or text\n"
        "whatever its name; of a minidb model, the MetaNetDef is written. OUT appears when it is complete.",
    .example = "rnn_runner convert net.pb net.pbtxt",
    .flags = WithCommonFlags({}),
    .min_operands = 2,
    .max_operands = 2,
    .run = Convert,
};

}  // namespace stepnet::runner
