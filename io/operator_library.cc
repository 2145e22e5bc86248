#include "stepnet/io/operator_library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/core/operator.h"
#include "stepnet/io/file.h"

namespace stepnet {
namespace {

// The T at `offset` of `bytes`, or nothing when it does not lie within.
template <typename T>
std::optional<T> At(std::string_view bytes, std::uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// "" when `file` begins as a shared library of this machine does; otherwise what is wrong.
std::string HeaderFault(const std::optional<ElfW(Ehdr)>& header) {
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return "it is no shared library (ELF)";
  ElfW(Ehdr) own;
  FileReader("/proc/self/exe").Read(&own, sizeof(own), "the header of this program");
  if (header->e_ident[EI_CLASS] != own.e_ident[EI_CLASS] || header->e_ident[EI_DATA] != own.e_ident[EI_DATA] ||
      header->e_machine != own.e_machine) {
    return "it is built for another machine";
  }
  if (header->e_type != ET_DYN) return "it is an ELF file, but no shared library";
  return "";
}

// Appends what the notes between begin and end say of StepNet.
void ReadNotes(std::string_view notes, std::uint64_t alignment, std::vector<Abi>* found) {
  const auto aligned = [&](std::uint64_t n) { return (n + alignment - 1) / alignment * alignment; };
  std::uint64_t at = 0;
  while (const auto header = At<ElfW(Nhdr)>(notes, at)) {
    const auto note = At<AbiNote>(notes, at);
    constexpr AbiNote kOurs;
    if (note && note->type == kOurs.type && note->name_bytes == kOurs.name_bytes &&
        std::memcmp(note->name, kOurs.name, sizeof(kOurs.name)) == 0) {
      found->push_back(note->abi);
      found->back().version[sizeof(Abi::version) - 1] = '\0';
    }
    at += sizeof(ElfW(Nhdr)) + aligned(header->n_namesz) + aligned(header->n_descsz);
  }
}

// What is wrong with the library, and what it says of the versions that its objects were built for.
std::string SegmentsFault(std::string_view file, const ElfW(Ehdr) & header, std::vector<Abi>* abis) {
  for (int i = 0; i < header.e_phnum; ++i) {
    const auto segment = At<ElfW(Phdr)>(file, header.e_phoff + i * sizeof(ElfW(Phdr)));
    if (!segment || segment->p_offset > file.size() || segment->p_filesz > file.size() - segment->p_offset) {
      return StrCat("it is cut off: it has ", file.size(), " bytes, segment ", i, " of ", header.e_phnum,
                    " lies beyond them");
    }
    if (segment->p_type != PT_NOTE) continue;
    ReadNotes(file.substr(segment->p_offset, segment->p_filesz), segment->p_align == 8 ? 8 : 4, abis);
  }
  // The table of sections ends a file, which is how the loss of its last bytes shows.
  const std::uint64_t table = std::uint64_t{header.e_shnum} * header.e_shentsize;
  if (header.e_shnum > 0 && (header.e_shoff > file.size() || table > file.size() - header.e_shoff)) {
    return StrCat("it is cut off: it has ", file.size(), " bytes, its table of sections lies beyond them");
  }
  return "";
}

std::string AbiFault(const std::vector<Abi>& abis) {
  if (abis.empty()) {
    return StrCat("it does not say for which version of stepnet it was built; this is ", kAbi.Text(),
                  ", and a library is built with its headers");
  }
  for (const Abi& abi : abis) {
    if (!(abi == kAbi)) return StrCat("it was built for stepnet ", abi.Text(), ", this is ", kAbi.Text());
  }
  return "";
}

std::string FaultOfFile(const std::string& path) {
  const std::string file = ReadFile(path);
  const auto header = At<ElfW(Ehdr)>(file, 0);
  std::vector<Abi> abis;
  std::string fault = HeaderFault(header);
  if (fault.empty()) fault = SegmentsFault(file, *header, &abis);
  return fault.empty() ? AbiFault(abis) : fault;
}

// The shared library that this code is in; "" when it is the program itself.
std::string OwnLibrary() {
  Dl_info info;
  link_map* map = nullptr;
  const bool is_found =
      dladdr1(reinterpret_cast<void*>(&OwnLibrary), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0;
  return is_found && map->l_name != nullptr ? map->l_name : "";
}

// A shared library without any code that needs two others, in the memory of a process. What a loader opens together is
// looked up together, so that the second finds the symbols of the first.
struct Pair {
  ElfW(Ehdr) header = {};
  ElfW(Phdr) segments[3] = {};
  ElfW(Dyn) dynamic[7] = {};
  ElfW(Sym) symbol = {};  // the first one, which every table has, and no other
};

// The bytes of a Pair, with its strings behind it. Throws kInputOutput when the header of this program cannot be read.
std::string PairOf(const std::string& first, const std::string& second) {
  std::string strings(1, '\0');
  const std::uint64_t first_name = strings.size();
  strings += first + '\0';
  const std::uint64_t second_name = strings.size();
  strings += second + '\0';
  const std::uint64_t bytes = sizeof(Pair) + strings.size();

  Pair pair;
  FileReader("/proc/self/exe").Read(&pair.header, sizeof(pair.header), "the header of this program");
  pair.header.e_type = ET_DYN;
  pair.header.e_entry = 0;
  pair.header.e_phoff = offsetof(Pair, segments);
  pair.header.e_phnum = std::size(pair.segments);
  pair.header.e_shoff = pair.header.e_shnum = pair.header.e_shstrndx = 0;
  constexpr std::uint64_t kMaxPageBytes = 1 << 16;
  const auto segment = [](std::uint32_t type, std::uint64_t offset, std::uint64_t size, std::uint64_t alignment) {
    return ElfW(Phdr){.p_type = type,
                      .p_flags = PF_R | PF_W,  // a loader writes addresses into the dynamic section
                      .p_offset = offset,
                      .p_vaddr = offset,
                      .p_paddr = offset,
                      .p_filesz = size,
                      .p_memsz = size,
                      .p_align = alignment};
  };
  pair.segments[0] = segment(PT_LOAD, 0, bytes, kMaxPageBytes);
  pair.segments[1] = segment(PT_DYNAMIC, offsetof(Pair, dynamic), sizeof(pair.dynamic), alignof(Pair));
  pair.segments[2] = segment(PT_GNU_STACK, 0, 0, 16);  // or it would ask for a stack that can be executed
  const auto entry = [](std::int64_t tag, std::uint64_t value) {
    ElfW(Dyn) dyn{.d_tag = tag, .d_un = {}};
    dyn.d_un.d_val = value;
    return dyn;
  };
  const ElfW(Dyn) dynamic[] = {entry(DT_NEEDED, first_name),
                               entry(DT_NEEDED, second_name),
                               entry(DT_STRTAB, sizeof(Pair)),
                               entry(DT_STRSZ, strings.size()),
                               entry(DT_SYMTAB, offsetof(Pair, symbol)),
                               entry(DT_SYMENT, sizeof(pair.symbol)),
                               entry(DT_NULL, 0)};
  static_assert(sizeof(dynamic) == sizeof(pair.dynamic));
  std::memcpy(pair.dynamic, dynamic, sizeof(dynamic));
  return std::string(reinterpret_cast<const char*>(&pair), sizeof(pair)) + strings;
}

std::string ReasonOfLoader() {
  const char* reason = dlerror();
  return reason != nullptr ? reason : "unknown reason";
}

// Loads a library of operators, which then finds the symbols of the StepNet that this code is part of. "", or why not.
std::string Load(const std::string& path) {
  const std::string own = OwnLibrary();
  if (own.empty()) {  // a program's symbols are there for all
    return dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr ? "" : ReasonOfLoader();
  }
  // A library's are not when it was opened for itself alone, as Python opens extensions. To make them so would do the
  // same to all libraries below it: other packages bring theirs, by the same names and in other versions.
  const std::string pair = PairOf(own, path);
  // It stays open once it is loaded: a loader knows a library again by its name, which is that of the descriptor.
  const int file = memfd_create("stepnet", MFD_CLOEXEC);
  if (file < 0 || write(file, pair.data(), pair.size()) != static_cast<ssize_t>(pair.size())) {
    return StrCat("no memory for a file: ", std::strerror(errno));
  }
  if (dlopen(StrCat("/proc/self/fd/", file).c_str(), RTLD_NOW) != nullptr) return "";
  std::string reason = ReasonOfLoader();
  close(file);
  return reason;
}

constexpr std::string_view kLoaded = "loaded";  // begins what is reported then; behind it, what is registered wrongly
int report_to = -1;                             // of the process that tries a library

void Report(std::string_view text) {
  // A reader that is gone wants no report.
  static_cast<void>(!write(report_to, text.data(), text.size()));
}

// What is registered wrongly since there were these problems and types; "" where nothing is. Formulas are tried on
// samples of what the declaration takes; what the defaults of arguments are to blame for is no mistake of theirs.
std::string NewProblem(const std::map<std::string, std::string>& problems_before,
                       const std::vector<std::string>& types_before) {
  const std::map<std::string, std::string> problems = RegistrationProblems();
  for (const auto& [type, problem] : problems) {
    if (!problems_before.contains(type)) return problem;
  }
  for (const std::string& type : OperatorTypes()) {
    if (problems.contains(type) || std::ranges::binary_search(types_before, type)) continue;
    const std::optional<Error> fault = FormulaFault(GetOperator(type));
    if (fault && fault->code() != ErrorCode::kInvalidArgument) return fault->message();
  }
  return "";
}

// Whether an exception of a constructor leaves dlopen depends on the C library; here it gets no further.
[[noreturn]] void TryToLoad(const std::string& path, int report) noexcept {
  report_to = report;
  std::set_terminate([] {
    Report(std::current_exception() ? StrCat("a constructor in it throws: ", CurrentError().message())
                                    : "a constructor in it calls std::terminate");
    _exit(1);
  });
  const std::map<std::string, std::string> problems_before = RegistrationProblems();
  const std::vector<std::string> types_before = OperatorTypes();
  const std::string fault = Load(path);
  if (!fault.empty()) {
    Report(fault);
    _exit(0);
  }
  Report(StrCat(kLoaded, NewProblem(problems_before, types_before)));
  _exit(0);
}

std::string ReadAll(int descriptor) {
  std::string text;
  std::array<char, 4096> block;
  ssize_t got;
  while ((got = read(descriptor, block.data(), block.size())) > 0 || (got < 0 && errno == EINTR)) {
    if (got > 0) text.append(block.data(), static_cast<size_t>(got));
  }
  return text;
}

// What goes wrong where a library is loaded, and what it registers wrongly; each may be "".
struct Trial {
  std::string fault = {};
  std::string problem = {};
};

// Loads the library in a process of its own, constructors that throw or crash included: what is refused leaves nothing
// in this one.
Trial TryInOtherProcess(const std::string& path) {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return {.fault = StrCat("no pipe: ", std::strerror(errno))};
  const pid_t child = fork();
  if (child == 0) TryToLoad(path, ends[1]);
  close(ends[1]);
  const std::string report = child > 0 ? ReadAll(ends[0]) : StrCat("no process: ", std::strerror(errno));
  close(ends[0]);
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (report.starts_with(kLoaded)) return {.problem = report.substr(kLoaded.size())};
  if (!report.empty()) return {.fault = report};
  const std::string end = WIFSIGNALED(status) ? StrCat("signal ", WTERMSIG(status), ", ", strsignal(WTERMSIG(status)))
                                              : StrCat("status ", WEXITSTATUS(status));
  return {.fault = StrCat("a process that loads it ends with ", end)};
}

// What may help against an error of dlopen.
std::string HintOfLoading(const std::string& fault) {
  const size_t symbol = fault.find("undefined symbol: ");
  if (symbol == std::string::npos || fault.find("stepnet", symbol) == std::string::npos) return "";
  return "; a program that loads libraries of operators exports StepNet to them: in CMake, "
         "set_target_properties(PROGRAM "
         "PROPERTIES ENABLE_EXPORTS ON)";
}

// What may help against a wrong registration.
std::string HintOfProblem(const std::string& problem) {
  if (problem.find("two copies") == std::string::npos) return "";
  return "; is it loaded by another name? A library of operators links stepnet::headers: with stepnet::stepnet it "
         "brings all of "
         "StepNet again";
}

}  // namespace

void LoadOperatorLibrary(const std::string& path) {
  // A name without a slash would be looked for in the system's library folders alone.
  std::error_code status;
  const std::string absolute = std::filesystem::absolute(path, status).string();
  if (!std::filesystem::exists(absolute, status)) {
    throw Error(ErrorCode::kInputOutput, status
                                             ? StrCat("cannot load the operator library ", path, ": ", status.message())
                                             : StrCat("no operator library ", path));
  }
  Trial trial{.fault = FaultOfFile(path)};
  if (trial.fault.empty()) trial = TryInOtherProcess(absolute);
  if (!trial.problem.empty()) {
    throw Error(ErrorCode::kInvalidNet,
                StrCat("the operator library ", path, ": ", trial.problem, HintOfProblem(trial.problem)));
  }
  if (trial.fault.empty()) trial.fault = Load(absolute);
  if (trial.fault.empty()) return;
  throw Error(ErrorCode::kInputOutput,
              StrCat("cannot load the operator library ", path, ": ", trial.fault, HintOfLoading(trial.fault)));
}

}  // namespace stepnet
