// Bytes as a cell: one in the short form is printed, parsed again and must be the same; any is checked and expanded.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "stepnet/compiler/cell.h"
#include "stepnet/compiler/cell_expand.h"
#include "stepnet/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string content(reinterpret_cast<const char*>(data), size);
  stepnet::CellSource cell;
  try {
    cell = stepnet::ParseCell(content, "fuzz");
  } catch (const stepnet::Error&) {
    return 0;
  }
  if (stepnet::IsShortCell(content)) {
    const stepnet::CellDef again = stepnet::ParseShortCell(stepnet::PrintShortCell(cell.def), "printed").def;
    if (again.SerializeAsString() != cell.def.SerializeAsString()) std::abort();
  }
  try {
    stepnet::ExpandCell(cell);
  } catch (const stepnet::Error&) {
  }
  return 0;
}
