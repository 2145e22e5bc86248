// fuzz_trials: trials of tests/fuzz/trials.h, seed after seed, as fast as they go.
//
//   fuzz_trials KIND [SEED [COUNT]]    default: from 1, 1000
//   fuzz_trials KIND SEED --seconds=N  as many as can be done in this time
//   fuzz_trials KIND SEED --show       prints what is tried, then tries it in this process
//
// KIND is that of trials, or `all` for each of them in turn. Trials run in a child process in an empty folder; when one
// crashes or hangs, the fault is reported and the next child goes on behind it. Exit status 1: faults were found.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "scratch_folder.h"
#include "stepnet/core/strings.h"
#include "trials.h"

namespace stepnet {
namespace {

constexpr unsigned kSecondsOfTrial = 60;         // on a busy machine
constexpr std::int64_t kMegabytesOfTrial = 512;  // beyond what was the most before

// Shared with the child.
struct Progress {
  unsigned seed = 0;  // being tried
  std::int64_t trials = 0, ran = 0, faults = 0;
};

std::int64_t PeakMegabytes() {
  struct rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

void Report(const TrialKind& kind, unsigned seed, const std::string& fault, Progress* progress) {
  ++progress->faults;
  std::cout << kind.name << ", seed " << seed << ": " << fault << "\n  fuzz_trials " << kind.name << " " << seed
            << " --show\n"
            << std::flush;
}

using Clock = std::chrono::steady_clock;

// What is asked for: seeds from `first` up to `end`, for some time.
struct Seeds {
  unsigned first = 1;
  unsigned end = 1001;
  Clock::time_point until = Clock::time_point::max();
};

// Tries seeds from progress->seed on.
void TryAll(const TrialKind& kind, const Seeds& seeds, Progress* progress) {
  for (; progress->seed != seeds.end && Clock::now() < seeds.until; ++progress->seed) {
    const std::int64_t megabytes = PeakMegabytes();
    alarm(kSecondsOfTrial);
    TrialResult result = kind.run(progress->seed, nullptr);
    alarm(0);
    ++progress->trials;
    if (progress->trials > 1 && PeakMegabytes() > megabytes + kMegabytesOfTrial) {
      result.fault += StrCat("the process took ", PeakMegabytes() - megabytes, " MB");
    }
    if (result.ran) ++progress->ran;
    if (!result.fault.empty()) Report(kind, progress->seed, result.fault, progress);
  }
}

// A child's work. Its folder must be empty in the end.
[[noreturn]] void Work(const TrialKind& kind, const Seeds& seeds, Progress* progress) {
  const std::filesystem::path folder = ScratchFolder() + "/empty";
  std::filesystem::create_directories(folder);
  std::filesystem::current_path(folder);
  if (std::freopen("/dev/null", "w", stderr) == nullptr) std::exit(2);  // what nets print there is much, and no fault
  TryAll(kind, seeds, progress);
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    Report(kind, progress->seed - 1, StrCat("this or a trial before left the file ", file.path().string()), progress);
  }
  std::exit(0);
}

std::string EndText(int status) {
  if (!WIFSIGNALED(status)) return StrCat("exit status ", WEXITSTATUS(status));
  if (WTERMSIG(status) == SIGALRM) return StrCat("more than ", kSecondsOfTrial, " s");
  return StrCat("signal ", WTERMSIG(status));
}

void RunSeeds(const TrialKind& kind, const Seeds& seeds, Progress* progress) {
  *progress = {.seed = seeds.first};
  const Clock::time_point start = Clock::now();
  while (progress->seed != seeds.end && Clock::now() < seeds.until) {
    const pid_t child = fork();
    if (child == 0) Work(kind, seeds, progress);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
    Report(kind, progress->seed++, EndText(status), progress);
  }
  const std::chrono::duration<double> seconds = Clock::now() - start;
  std::cout << kind.name << ": seeds " << seeds.first << " to " << progress->seed - 1 << ", " << progress->trials
            << " trials, " << progress->ran << " ran, " << progress->faults << " faults, " << seconds.count() << " s\n"
            << std::flush;
}

int Usage() {
  std::cerr << "usage: fuzz_trials KIND [SEED [COUNT | --seconds=N | --show]]; KIND is all";
  for (const TrialKind& kind : TrialKinds()) std::cerr << ", " << kind.name;
  std::cerr << "\n";
  return 2;
}

int ShowSeed(const TrialKind& kind, unsigned seed) {
  const TrialResult result = kind.run(seed, &std::cout);
  std::cout << (!result.fault.empty() ? result.fault : result.ran ? "it ran" : "it was refused") << "\n";
  return result.fault.empty() ? 0 : 1;
}

int Main(const std::vector<std::string>& arguments) {
  std::vector<TrialKind> kinds = TrialKinds();
  if (arguments.empty()) return Usage();
  if (arguments[0] != "all") std::erase_if(kinds, [&](const TrialKind& kind) { return kind.name != arguments[0]; });
  if (kinds.empty()) return Usage();
  const auto number = [](const std::string& text) { return static_cast<unsigned>(std::stoul(text)); };
  Seeds seeds;
  if (arguments.size() > 1) seeds.first = number(arguments[1]);
  seeds.end = seeds.first + 1000;
  const std::string how = arguments.size() > 2 ? arguments[2] : "";
  if (how == "--show") return ShowSeed(kinds.front(), seeds.first);
  double seconds = 0;  // of each kind
  if (how.starts_with("--seconds=")) {
    seconds = std::stod(how.substr(10)) / static_cast<double>(kinds.size());
    seeds.end = seeds.first - 1;
  } else if (!how.empty()) {
    seeds.end = seeds.first + number(how);
  }
  void* shared = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* progress = new (shared) Progress;
  std::int64_t faults = 0;
  for (const TrialKind& kind : kinds) {
    if (seconds > 0)
      seeds.until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    RunSeeds(kind, seeds, progress);
    faults += progress->faults;
  }
  return faults == 0 ? 0 : 1;
}

}  // namespace
}  // namespace stepnet

int main(int argc, char** argv) { return stepnet::Main({argv + 1, argv + argc}); }
