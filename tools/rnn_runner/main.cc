// rnn_runner: runs nets, checks them and shows them, on the command line.
#include <glog/logging.h>

#include <csignal>
#include <iostream>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/system_memory.h"
#include "stepnet/core/version.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/command.h"
#include "stepnet/tools/rnn_runner/command_files.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/error_text.h"
#include "stepnet/tools/rnn_runner/help_text.h"
#include "stepnet/tools/rnn_runner/memory_reserve.h"
#include "stepnet/tools/rnn_runner/pass_dump.h"
#include "stepnet/tools/rnn_runner/standard_output.h"
#include "stepnet/tools/rnn_runner/status_line.h"

namespace stepnet::runner {
namespace {

int RunCommand(const Command& command, const std::vector<std::string>& arguments) {
  if (AsksForHelp(arguments)) {
    std::cout << HelpText(command);
    return kOk;
  }
  const std::vector<std::string> operands = ParseArguments(command, arguments);
  NoteFiles(command, operands);
  const Cancellation limit(TimeLimitFromFlags());
  const CancellationScope cancelled(&limit);
  ApplyCommonFlags();
  const int status = command.run(operands);
  RemarkOnEmptyDump();
  return status;
}

bool IsHelp(const std::string& name) { return name == "--help" || name == "-help" || name == "-h"; }

// `*who` becomes the program with the command, once that is known to exist.
int Dispatch(const std::string& name, const std::vector<std::string>& arguments, std::string* who) {
  if (name == "--version") {
    std::cout << "rnn_runner " STEPNET_VERSION "\n";
    return kOk;
  }
  if (name.starts_with("-") && !IsHelp(name))
    throw UsageError(StrCat("the command comes before its flags, found ", name));
  const Command& command = IsHelp(name) ? kHelp : FindCommand(name);
  *who += " " + command.name;
  return RunCommand(command, arguments);
}

int Main(const std::vector<std::string>& arguments) {
  StandardOutput output;
  const StandardError errors;
  std::string who = "rnn_runner";
  try {
    if (arguments.empty()) {
      std::cerr << HelpText(Commands());
      return kUsage;
    }
    const int status = Dispatch(arguments.front(), {arguments.begin() + 1, arguments.end()}, &who);
    output.Flush();  // results that do not reach their reader are a fault
    return status;
  } catch (const UsageError& error) {
    std::cerr << Printable(StrCat(who, ": ", error.what(), "\n")) << "(" << who << " --help tells more)\n";
    return kUsage;
  } catch (...) {
    std::cout.flush();  // in the order in which it was said
    PrintCurrentError(who);
    return kFault;
  }
}

}  // namespace
}  // namespace stepnet::runner

int main(int argc, char** argv) {
  // A reader that goes away is an error of writing, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // nor is a file that may not grow (ulimit -f)
  try {
    stepnet::SaveAddresses();
    stepnet::runner::KeepMemoryReserve();
    FLAGS_logtostderr = true;
    google::InitGoogleLogging(argv[0]);
    return stepnet::runner::Main({argv + 1, argv + argc});
  } catch (...) {  // no memory to begin with, or to tell what is wrong
    stepnet::runner::PrintCurrentError("rnn_runner");
    return stepnet::runner::kFault;
  }
}
