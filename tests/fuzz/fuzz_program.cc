// fuzz_program: damaged files for rnn_runner, seed after seed, as built or installed.
//
//   fuzz_program RNN_RUNNER [SEED [COUNT]]    default: from 1, 100
//   fuzz_program RNN_RUNNER SEED --keep       leaves the files of the seed and prints where, with the command
//
// The faults: an end by signal or an exit status that docs/rnn_runner.md does not know, a message that says that
// StepNet is wrong, files beside those that were asked for, memory or time beyond the limits that were given, control
// characters for the terminal, and nets that `run` accepts and `check` does not. Exit status 1: faults were found.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <set>
#include <vector>

#include "damage.h"
#include "scratch_folder.h"
#include "stepnet/core/error.h"
#include "stepnet/core/run_options.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/io/proto_io.h"
#include "subjects.h"

namespace stepnet {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kMaxSeconds = 60;
constexpr double kCpuSeconds = 4;         // that a command may take on two processors whose limit is one second
constexpr std::int64_t kMegabytes = 400;  // of a process whose tensors may take 64

constexpr std::array kLimits = {"--max_memory=64M", "--time_limit=1"};

// What is run in a folder, beside the files that it is given.
struct Job {
  std::vector<std::string> arguments;
  bool prints_as_is = false;  // text that is the user's own
};

struct End {
  int status = 0;  // as waitpid gives it
  double cpu_seconds = 0;
  std::int64_t megabytes = 0;
  std::string output;  // both streams

  bool IsExit(int code) const { return WIFEXITED(status) && WEXITSTATUS(status) == code; }
};

// Runs the program in `folder`, its output into `log`.
End Run(const std::string& program, const Job& job, const std::string& folder, const std::string& log) {
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : job.arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  for (const char* limit : kLimits) argv.push_back(const_cast<char*>(limit));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_RDONLY);
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (chdir(folder.c_str()) != 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(99);
    setenv("TMPDIR", folder.c_str(), 1);
    alarm(kMaxSeconds);
    execv(program.c_str(), argv.data());
    _exit(99);
  }
  End end;
  struct rusage usage = {};
  wait4(child, &end.status, 0, &usage);
  end.cpu_seconds = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                    static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
  end.megabytes = usage.ru_maxrss / 1024;
  end.output = ReadFile(log);
  return end;
}

std::set<std::string> FilesIn(const std::string& folder) {
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.insert(fs::relative(entry.path(), folder).string());
  }
  return files;
}

std::string FaultOf(const Job& job, const End& end, const std::set<std::string>& before,
                    const std::set<std::string>& after) {
  if (!WIFEXITED(end.status)) return StrCat("it ended by signal ", WTERMSIG(end.status));
  constexpr int kDocumented[] = {0, 1, 2, 130};
  if (std::ranges::find(kDocumented, WEXITSTATUS(end.status)) == std::end(kDocumented)) {
    return StrCat("its exit status is ", WEXITSTATUS(end.status));
  }
  if (end.cpu_seconds > kCpuSeconds) return StrCat("it took ", end.cpu_seconds, " s");
  if (end.megabytes > kMegabytes) return StrCat("it took ", end.megabytes, " MB");
  for (const char* words : {"internal error", "operator failed", "CHECK failed", "std::"}) {
    if (end.output.find(words) != std::string::npos) return StrCat("it says ", words);
  }
  if (!end.IsExit(0) && end.output.empty()) return "it failed without a word";
  if (!job.prints_as_is && end.output.find('\x1b') != std::string::npos) return "it drives the terminal";
  for (const std::string& file : after) {
    if (!before.contains(file) && (!file.starts_with("out") || file.ends_with(".tmp"))) {
      return StrCat("it left the file ", file);
    }
  }
  return "";
}

// The files of a seed and what is run on them.
class Subject {
 public:
  Subject(unsigned seed, std::string folder) : random_(seed), folder_(std::move(folder)) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    switch (random_() % 8) {
      case 0: Config(); break;
      case 1: Tensors(); break;
      case 2:
      case 3: Cell(); break;
      default: Net();
    }
  }

  std::vector<Job> jobs;
  std::function<void()> damage_after_first = {};  // of what the first job has left
  bool compares = false;                          // jobs 0 and 1 are `check` and `run`

 private:
  void Write(const std::string& name, const std::string& content) const { WriteFile(folder_ + "/" + name, content); }
  bool Once(int in) { return Below(in, random_) == 0; }

  // With an executor.
  Job Executed(std::vector<std::string> arguments) {
    if (Once(3)) arguments.push_back("--executor=serial");
    if (Once(3)) arguments.push_back(StrCat("--threads=", Below(4, random_)));
    if (Once(4)) arguments.push_back(StrCat("--opt_level=", Below(kMaxOptLevel, random_)));
    return {.arguments = std::move(arguments)};
  }

  // What is done with a model, of a net or of a cell.
  void AddJobs(const std::string& file, const std::vector<std::string>& inputs, const std::string& loss) {
    const auto with = [&](std::vector<std::string> arguments) {
      arguments.insert(arguments.end(), inputs.begin(), inputs.end());
      return arguments;
    };
    const std::string net = "--net=" + file;
    switch (random_() % 8) {
      case 0: jobs = {{{"show", file, StrCat("--format=", Once(2) ? "dot" : "json")}}}; break;
      case 1: jobs = {{{"grad", file, "--loss=" + loss}}}; break;
      case 2: jobs = {Executed(with({"gradcheck", net}))}; break;
      case 3: jobs = {Executed(with({"bench", net, "--repetitions=1"}))}; break;
      case 4: jobs = {{{"convert", file, Once(2) ? "out.pbtxt" : "out.pb"}}}; break;
      case 5: jobs = {{with({"show", file, "--schedule"})}}; break;
      default: jobs = {{{"check", file}}, Executed(with({"run", net, "--output_dir=out"}))}; compares = true;
    }
  }

  void Net() {
    const NetSubject subject = DamagedNet(random_);
    const bool is_text = Once(2);
    Write(is_text ? "net.prototxt" : "net.pb",
          is_text ? PrintMessageText(subject.net) : subject.net.SerializePartialAsString());
    WriteTensors(subject.feeds, folder_ + "/inputs.pb");
    std::string loss = "x";
    for (const OperatorDef& op : subject.net.op()) {
      if (op.output_size() > 0) loss = op.output(0);
    }
    std::vector<std::string> inputs;
    if (!subject.feeds.empty()) inputs.push_back("--input_pb=inputs.pb");
    AddJobs(is_text ? "net.prototxt" : "net.pb", inputs, loss);
    // A net may list some of its inputs: `run` may then be given those that it does not list.
    if (subject.net.external_input_size() > 0) compares = false;
  }

  void Cell() {
    Write("cell.cell", DamagedCell(random_));
    AddJobs("cell.cell", {"--steps=3", "--batch=2"}, "h");
    if (jobs.front().arguments[0] == "grad" || jobs.front().arguments[0] == "convert") jobs.front().prints_as_is = true;
  }

  // Trains, and again from what the first run has left, damaged.
  void Config() {
    Write("text", TrainingText());
    Write("elman.cell", TrainingCell());
    const bool is_whole = Once(2);
    Write("config.prototxt", is_whole ? TrainingConfig() : DamagedConfig(random_));
    const Job train{.arguments = {"train", "config.prototxt", "--output_dir=out"}};
    jobs = {train};
    jobs.front().arguments.push_back("--stop_after=2");
    if (!is_whole) return;
    damage_after_first = [this] {
      const std::string path = folder_ + "/out/checkpoints/iteration-2.minidb";
      if (fs::exists(path)) WriteFile(path, DamagedBytes(ReadFile(path), random_));
    };
    jobs.push_back(train);
    jobs.push_back({.arguments = {"sample", "out", "--length=3"}, .prints_as_is = true});
  }

  void Tensors() {
    Write("net.prototxt", R"(op { type: "Tanh" input: "x" output: "y" })");
    const std::string bytes = DamagedTensorFile(random_);
    Write("tensors", bytes);
    if (Once(3)) {
      jobs = {{{"convert", "--params", "tensors", Once(2) ? "out.safetensors" : "out.npz"}}};
      return;
    }
    jobs = {Executed({"run", "--net=net.prototxt", "--output_dir=out",
                      bytes.starts_with("\x93NUMPY") ? "--input=x=tensors" : "--input_pb=tensors"})};
  }

  std::mt19937 random_;
  std::string folder_;
};

std::string CommandText(const std::string& program, const Job& job) {
  return StrCat(program, " ", Join(job.arguments, " "), " ", Join(kLimits, " "));
}

// The fault of a seed, with the command, or "".
std::string TrySeed(const std::string& program, unsigned seed, int* runs) {
  const std::string folder = ScratchFolder() + "/run", log = ScratchFolder() + "/log";
  Subject subject(seed, folder);
  std::vector<End> ends;
  for (const Job& job : subject.jobs) {
    const std::set<std::string> before = FilesIn(folder);
    ends.push_back(Run(program, job, folder, log));
    ++*runs;
    const std::string fault = FaultOf(job, ends.back(), before, FilesIn(folder));
    if (!fault.empty())
      return StrCat(fault, "\n  ", CommandText(program, job), "\n", ends.back().output.substr(0, 600));
    if (ends.size() == 1 && subject.damage_after_first) subject.damage_after_first();
  }
  if (subject.compares && ends[1].IsExit(0) && !ends[0].IsExit(0)) {
    return StrCat("run accepts what check refuses\n  ", CommandText(program, subject.jobs[1]), "\n",
                  ends[0].output.substr(0, 600));
  }
  return "";
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::cerr << "usage: fuzz_program RNN_RUNNER [SEED [COUNT | --keep]]\n";
    return 2;
  }
  const std::string program = fs::absolute(arguments[0]).string();
  const auto number = [](const std::string& text) { return static_cast<unsigned>(std::stoul(text)); };
  const unsigned first = arguments.size() > 1 ? number(arguments[1]) : 1;
  const bool keeps = arguments.size() > 2 && arguments[2] == "--keep";
  const unsigned count = keeps ? 1 : arguments.size() > 2 ? number(arguments[2]) : 100;
  int faults = 0, runs = 0;
  for (unsigned seed = first; seed != first + count; ++seed) {
    const std::string fault = TrySeed(program, seed, &runs);
    if (fault.empty()) continue;
    ++faults;
    std::cout << "seed " << seed << ": " << fault << "\n" << std::flush;
  }
  std::cout << "seeds " << first << " to " << first + count - 1 << ": " << runs << " runs of " << program << ", "
            << faults << " faults\n";
  if (keeps) {
    fs::rename(ScratchFolder() + "/run", fs::current_path() / StrCat("seed", first));
    std::cout << "the files are in " << StrCat("seed", first) << "\n";
  }
  return faults == 0 ? 0 : 1;
}

}  // namespace
}  // namespace stepnet

int main(int argc, char** argv) { return stepnet::Main({argv + 1, argv + argc}); }
