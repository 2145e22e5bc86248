// What lines of the text of a step graph say of tensors and operators (docs/step_graph.md).
#pragma once

#include <cstdint>

#include "stepnet/compiler/line_reader.h"
#include "stepnet/core/tensor.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

// Bytes of a value: so few that the product of two such numbers is no overflow.
inline constexpr std::int64_t kMaxValueBytes = std::int64_t{1} << 40;

// Each takes what it reads from the line, and throws what LineReader does for what is not so.
Shape ReadShape(LineReader& line);                       // " [2, 3]"
TensorInfo ReadTensorInfo(LineReader& line);             // "int64 [2] {3, 4}"; elements are there where they are known
void ReadArguments(LineReader& line, OperatorDef* def);  // " {arg { name: "axis" i: 2 }}", the rest of the line

}  // namespace stepnet
