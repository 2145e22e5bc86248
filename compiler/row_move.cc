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

std::string RowMoveText(const RowMove& move) { return RowMoveText(move, RowsText(move.to), RowsText(move.from)); }

std::string RowMoveText(const RowMove& move, const std::string& to, const std::string& from) {
  switch (move.kind) {
    case RowMove::Kind::kCopy: return to + " = " + from;
    case RowMove::Kind::kAdd: return to + " += " + from;
    case RowMove::Kind::kGive: return to + " = give " + from;
    default: return to + " = " + RowMoveName(move.kind);
  }
}

}  // namespace stepnet
