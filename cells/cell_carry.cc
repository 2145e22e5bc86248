#include "stepnet/cells/cell_carry.h"

#include <algorithm>
#include <vector>

#include "stepnet/cells/cell_advice.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// Units that have an input of that name compare it with lengths alone, which are those of a part.
bool ReadsStep(const OperatorDef& op) {
  const OperatorSchema* const schema = FindOperator(op.type());
  const bool is_unit = schema != nullptr && std::ranges::count(schema->inputs, "timestep", &Formal::name) > 0;
  return !is_unit && std::ranges::count(op.input(), "timestep") > 0;
}

// Why a cell is not carried, each reason with its place.
class Reasons {
 public:
  explicit Reasons(const CellSource& source) : source_(source) {}

  void Add(CellPart part, int index, const std::string& message) {
    texts_.push_back(source_.Fault(part, index, message));
  }

  void AddOfState(int i) {
    const CellState& state = source_.def.state(i);
    if (state.initial() == "learned") {
      Add(CellPart::kStateOption, StateOption(i, CellState::kInitialFieldNumber),
          StrCat("the initial value of the state \"", state.name(),
                 "\" is learned, and a state that is carried starts from what it is given: it would not be ",
                 "learned; write initial=0, or another number, and it starts from that"));
    }
    const CellOptions& options = source_.def.options();
    if (state.window() == 1 || !(options.has_lengths() || options.has_mask())) return;
    Add(CellPart::kStateOption, StateOption(i, CellState::kWindowFieldNumber),
        StrCat("the state \"", state.name(), "\" has window=", state.window(),
               ", out of which steps that do not count push rows, too: the next part of a sequence would begin with ",
               "others than the last that count; ", AdviceOnWindow(state)));
  }

  void Throw() const {
    if (!texts_.empty()) throw Error(ErrorCode::kInvalidArgument, Join(texts_, "\n"));
  }

 private:
  const CellSource& source_;
  std::vector<std::string> texts_;
};

}  // namespace

void CheckCarry(const CellSource& source) {
  const CellDef& cell = source.def;
  Reasons reasons(source);
  if (cell.options().direction() != CellOptions::FORWARD) {
    reasons.Add(CellPart::kOptions, CellOptions::kDirectionFieldNumber,
                "states can be carried from one part of a sequence to the next only forward");
  }
  for (int i = 0; i < cell.state_size(); ++i) reasons.AddOfState(i);
  for (int k = 0; k < cell.op_size(); ++k) {
    if (!ReadsStep(cell.op(k))) continue;
    reasons.Add(CellPart::kOperator, k,
                "states cannot be carried from one part of a sequence to the next, since it reads timestep, which "
                "begins at 0 in each; count steps in a state, as n = n + 1");
  }
  reasons.Throw();
}

}  // namespace stepnet
