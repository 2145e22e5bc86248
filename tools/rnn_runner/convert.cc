// rnn_runner convert: the same message as text or in binary.
#include <filesystem>
#include <iostream>

#include "stepnet/cells/cell.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/minidb.h"
#include "stepnet/nets/model.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/model_file.h"

namespace stepnet::runner {
namespace {

int Convert(const std::vector<std::string>& operands) {
  const std::string& from = operands[0];
  const std::string& to = operands[1];
  if (!IsTextFileName(to) && !to.ends_with(".pb") && !to.ends_with(".cell")) {
    throw UsageError(
        StrCat("cannot tell from \"", to, "\" what to write; it must end in .pb, .pbtxt, .prototxt, .txt or .cell"));
  }
  std::error_code ignored;  // one of them may not exist
  if (std::filesystem::equivalent(from, to, ignored)) {
    throw UsageError(StrCat("would write over its own input, ", from, "; OUT must be another file"));
  }
  if (LooksLikeMiniDb(from) && !HoldsBundle(from)) {
    throw Error(
        ErrorCode::kInputOutput,
        StrCat(from, " is a minidb of tensors, and holds no net that could be written; `rnn_runner show` lists them"));
  }
  const AnyMessage file = ReadAnyMessage(from);
  if (!to.ends_with(".pb")) SayWhatIsLeftOut(*file.message, from, to);
  if (to.ends_with(".cell")) {
    if (file.kind != MessageKind::kCellDef) {
      throw Error(ErrorCode::kInputOutput, StrCat(from, " is a ", MessageKindName(file.kind), ", and no cell"));
    }
    WriteFile(to, PrintShortCell(static_cast<const CellDef&>(*file.message)));
  } else {
    WriteMessage(*file.message, to);
  }
  std::cerr << "wrote " << to << " (" << MessageKindName(file.kind) << ")\n";
  return kOk;
}

}  // namespace

const Command kConvert = {
    .name = "convert",
    .operands = "IN OUT",
    .doc = "writes a file as text (.pbtxt, .prototxt, .txt), binary (.pb) or short cell (.cell)",
    .details =
        "IN is a NetDef, a MetaNetDef, a PlanDef, a cell, TensorProtos, a TensorProto or a BlobProto, binary or\n"
        "text whatever its name; of a minidb model, the MetaNetDef is written. OUT appears when it is complete, and is "
        "not IN.\nFields of other versions of the format go from binary to binary; text lacks them, and they are "
        "named.",
    .example = "rnn_runner convert net.pb net.pbtxt",
    .flags = WithCommonFlags({}),
    .min_operands = 2,
    .max_operands = 2,
    .run = Convert,
};

}  // namespace stepnet::runner
