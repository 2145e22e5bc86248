// A subcommand of rnn_runner: what it is called, which flags and operands it takes, what it does.
//
// Flags are gflags' (DEFINE_…, FLAGS_…), but each command accepts those that it lists and no other, and nothing here
// lets gflags exit: wrong use throws UsageError. Results go to standard output, remarks and logs to standard error.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace stepnet::runner {

// Exit statuses.
inline constexpr int kOk = 0;
inline constexpr int kFault = 1;  // in the input or the run
inline constexpr int kUsage = 2;

// The command line makes no sense.
class UsageError : public std::exception {
 public:
  explicit UsageError(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

// What a value stands for: for shells to complete it, and for NoteFiles (command_files.h).
enum class ValueKind : std::uint8_t { kText, kInputFile, kOutputFile, kFolder };

// A flag that a command accepts.
struct FlagUse {
  std::string name;         // of the gflags flag
  std::string value = {};   // what help shows after `=`, "a|b" where it is one of these; empty for true or false
  std::string doc = {};     // in place of the flag's own
  bool is_operand = false;  // the operand says the same, and one of the two is needed
  bool is_list = false;     // given several times, the values are joined by commas
  std::string alone = {};   // the value of a flag that is given without one; empty: it needs one
  // Numbers lie between these, and are finite unless `max` is infinity.
  std::optional<double> min = {};
  std::optional<double> max = {};
  bool above_min = false;  // `min` itself is not allowed
  bool may_be_empty = false;
  ValueKind kind = ValueKind::kText;
  // What the flag can be, where that is known only when the program runs; help lists it where it is little.
  std::vector<std::string> (*choices)() = nullptr;
};

struct Command {
  std::string name;
  std::string operands;  // as help shows them: "IN OUT"
  std::string doc;       // one line
  std::string details;   // lines that help shows below it
  std::string example;   // lines
  std::vector<FlagUse> flags;
  int min_operands = 0;
  int max_operands = 0;
  ValueKind operand_kind = ValueKind::kInputFile;
  bool writes_last_operand = false;                                // which is then a file
  std::vector<std::string> (*operand_choices)() = nullptr;         // as that of a flag
  std::string (*unknown_flag)(const std::string& name) = nullptr;  // what to do in place of a flag, "" if not known
  int (*run)(const std::vector<std::string>& operands) = nullptr;  // returns the exit status
};

// Whether the flag is true or false.
bool IsBool(const FlagUse& flag);

// Whether the command line says the flag, be it with its default.
bool IsGiven(const char* flag);

// Sets the flags of `command` from `arguments` (without program and command names) and returns the operands. Throws
// UsageError, naming what is nearest for an unknown flag, what is allowed in place of a wrong value, and a flag that is
// given twice and is no list.
std::vector<std::string> ParseArguments(const Command& command, const std::vector<std::string>& arguments);

// Whether one of the arguments asks for help.
bool AsksForHelp(const std::vector<std::string>& arguments);

// All commands, in the order in which help lists them.
const std::vector<const Command*>& Commands();

// Throws UsageError, with the nearest name.
const Command& FindCommand(const std::string& name);

extern const Command kRun;
extern const Command kVerify;
extern const Command kCheck;
extern const Command kShow;
extern const Command kExplain;
extern const Command kConvert;
extern const Command kOps;
extern const Command kGradcheck;
extern const Command kBench;
extern const Command kExpand;
extern const Command kGrad;
extern const Command kTrain;
extern const Command kSample;
extern const Command kHelp;

}  // namespace stepnet::runner
