#include "stepnet/core/strings.h"
#include "stepnet/tools/rnn_runner/command.h"

namespace stepnet::runner {

const std::vector<const Command*>& Commands() {
  static const std::vector<const Command*> commands = {&kRun,     &kVerify, &kCheck,     &kShow,  &kExplain,
                                                       &kConvert, &kOps,    &kGradcheck, &kBench, &kExpand,
                                                       &kGrad,    &kTrain,  &kSample,    &kHelp};
  return commands;
}

const Command& FindCommand(const std::string& name) {
  std::vector<std::string> names;
  for (const Command* command : Commands()) {
    if (command->name == name) return *command;
    names.push_back(command->name);
  }
  throw UsageError(StrCat("no command \"", name, "\"", DidYouMean(name, names)));
}

}  // namespace stepnet::runner
