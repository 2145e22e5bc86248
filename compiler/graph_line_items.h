// What lines of the text of a step graph say of tensors, memory, stages and operators (docs/step_graph.md).
#pragma once

#include <cstdint>

#include "stepnet/compiler/graph_line_reader.h"
#include "stepnet/compiler/row_move.h"
#include "stepnet/compiler/slot.h"
#include "stepnet/compiler/stage.h"
#include "stepnet/core/tensor.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

// Bytes of a value: so few that the product of two such numbers is no overflow.
inline constexpr std::int64_t kMaxValueBytes = std::int64_t{1} << 40;

// Each takes what it reads from the line, and throws what LineReader does for what is not so.
Shape ReadShape(LineReader& line);                       // " [2, 3]"
TensorInfo ReadTensorInfo(LineReader& line);             // "int64 [2] {3, 4}"; elements are there where they are known
BaseRows ReadRows(LineReader& line);                     // "^h at 0[0:1]"
Slot ReadPlace(LineReader& line);                        // "0[64 * (t + 1)]": base, row_bytes and offset
Stage ReadStage(LineReader& line);                       // "for 16 steps at once:", of no nodes
void ReadArguments(LineReader& line, OperatorDef* def);  // " {arg { name: "axis" i: 2 }}", the rest of the line

}  // namespace stepnet
