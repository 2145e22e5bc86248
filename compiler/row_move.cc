#include "stepnet/compiler/row_move.h"

#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

std::string RowsText(const BaseRows& rows) {
  return rows.IsWhole() ? rows.name : StrCat(rows.name, "[", RowRangeText(rows), "]");
}

}  // namespace

std::string RowRangeText(const BaseRows& rows) {
  const std::string begin = !rows.begins_at_steps ? StrCat(rows.begin)
                            : rows.begin == 0     ? "T"
                                                  : StrCat("T+", rows.begin);
  return StrCat(begin, ":", rows.end == BaseRows::kEnd ? "" : StrCat(rows.end));
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
    case RowMove::Kind::kCopy: return StrCat(to, " = ", RowsText(move.from));
    case RowMove::Kind::kAdd: return StrCat(to, " += ", RowsText(move.from));
    case RowMove::Kind::kZero: return to + " = zero";
    case RowMove::Kind::kNumbers: return to + " = numbers";
    case RowMove::Kind::kLend: return to + " = lend";
    case RowMove::Kind::kGive: return StrCat(to, " = give ", RowsText(move.from));
  }
  return to;
}

}  // namespace stepnet
