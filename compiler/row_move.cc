#include "stepnet/compiler/row_move.h"

namespace stepnet {
namespace {

std::string RowsText(const BaseRows& rows) {
  return rows.IsWhole() ? rows.name : rows.name + "[" + RowRangeText(rows) + "]";
}

}  // namespace

std::string RowRangeText(const BaseRows& rows) {
  std::string text = !rows.begins_at_steps ? std::to_string(rows.begin)
                     : rows.begin == 0     ? "T"
                                           : "T+" + std::to_string(rows.begin);
  text += ':';
  if (rows.end != BaseRows::kEnd) text += std::to_string(rows.end);
  return text;
}

const char* RowMoveName(RowMove::Kind kind) {
  switch (kind) {
    case RowMove::Kind::kCopy: return "copy";
    case RowMove::Kind::kAdd: return "add";
    case RowMove::Kind::kZero: return "zero";
    case RowMove::Kind::kNumbers: return "numbers";
    case RowMove::Kind::kLend: return "lend";
    case RowMove::Kind::kGive: return "give";
  }
  return "unknown";
}

std::string RowMoveText(const RowMove& move) {
  const std::string to = RowsText(move.to);
  switch (move.kind) {
    case RowMove::Kind::kCopy: return to + " = " + RowsText(move.from);
    case RowMove::Kind::kAdd: return to + " += " + RowsText(move.from);
    case RowMove::Kind::kZero: return to + " = zero";
    case RowMove::Kind::kNumbers: return to + " = numbers";
    case RowMove::Kind::kLend: return to + " = lend";
    case RowMove::Kind::kGive: return to + " = give " + RowsText(move.from);
  }
  return to;
}

}  // namespace stepnet
