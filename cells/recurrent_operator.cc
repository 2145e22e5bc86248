#include "stepnet/cells/recurrent_operator.h"

#include <algorithm>

#include "stepnet/core/index_of.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/nets/op_builder.h"

namespace stepnet {
namespace {

template <typename Row, typename Field>
std::vector<Field> Column(const std::vector<Row>& rows, Field Row::*field) {
  std::vector<Field> values;
  for (const Row& row : rows) values.push_back(row.*field);
  return values;
}

}  // namespace

int RecurrentOperator::AddInput(const std::string& blob) {
  if (const int known = IndexOf(inputs, blob); known >= 0) return known;
  inputs.push_back(blob);
  return static_cast<int>(inputs.size()) - 1;
}

void RecurrentOperator::AddLink(const Link& link) {
  const auto is_same = [&](const Link& known) {
    return known.internal == link.internal && known.external == link.external;
  };
  if (std::ranges::none_of(links, is_same)) links.push_back(link);
}

void RecurrentOperator::Write(const std::string& record, NetDef* net) {
  const std::vector<std::string> read = BlobsReadFirst(step);
  step.mutable_external_input()->Assign(read.begin(), read.end());
  outputs.push_back(record);
  const std::vector<int> initial = Column(states, &RecurrentState::initial);
  OpBuilder op = AddOp(net, "RecurrentNetwork", inputs, outputs);
  op.Net("step_net", step)
      .Strings("recurrent_states", Column(states, &RecurrentState::name))
      .Ints("initial_recurrent_state_ids", {initial.begin(), initial.end()})
      .Int("private_states", 1);
  op.Strings("link_internal", Column(links, &Link::internal)).Strings("link_external", Column(links, &Link::external));
  op.Ints("link_offset", Column(links, &Link::offset)).Ints("link_window", Column(links, &Link::window));
  op.Strings("alias_src", Column(aliases, &OffsetAlias::source))
      .Strings("alias_dst", Column(aliases, &OffsetAlias::destination));
  op.Ints("alias_offset", Column(aliases, &OffsetAlias::offset));
  if (!step_outputs.empty()) {
    op.Strings("step_output_src", Column(step_outputs, &StepOutput::blob))
        .Strings("step_output_dst", Column(step_outputs, &StepOutput::destination));
  }
  for (const OperatorDef& behind : after) *net->add_op() = behind;
}

}  // namespace stepnet
