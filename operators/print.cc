// Print: shows a tensor while a net runs.
#include <algorithm>
#include <fstream>
#include <iostream>

#include "stepnet/core/allowed_files.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/printable.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/operators/dtypes.h"

namespace stepnet {
namespace {

constexpr std::int64_t kDefaultLimit = 1000;
constexpr std::int64_t kWorkOfElement = 400;  // as text

std::string ElementText(Float16 value) { return StrCat(ToFloat(value)); }
std::string ElementText(BFloat16 value) { return StrCat(ToFloat(value)); }
std::string ElementText(std::int8_t value) { return std::to_string(value); }
std::string ElementText(std::uint8_t value) { return std::to_string(value); }
std::string ElementText(const std::string& value) { return "\"" + PrintableLine(value) + "\""; }
template <typename T>
std::string ElementText(T value) {
  return StrCat(value);
}

// "x float [2, 3], step 4: 1, 2, 3, …"
std::string Line(const std::string& name, const TensorView& tensor, std::int64_t step, std::int64_t limit) {
  TextStream out;
  out << PrintableLine(name) << ' ' << tensor.dtype << ' ' << *tensor.shape;
  if (step > 0) out << ", step " << step;
  out << ':';
  const std::int64_t shown = std::min(tensor.size(), limit);
  ForDType(tensor.dtype, [&](auto zero) {
    const auto* x = tensor.As<decltype(zero)>();
    for (std::int64_t i = 0; i < shown; ++i) {
      CountWork(kWorkOfElement);
      out << (i == 0 ? " " : ", ") << ElementText(x[i]);
    }
  });
  if (shown < tensor.size()) out << ", …";
  out << '\n';
  return std::move(out).str();
}

// Blob names may hold slashes, and must not lead out of the folder.
std::vector<std::string> FilesOf(const OperatorCall& op) {
  if (!op.Bool("to_file")) return {};
  return {FileNameOf(op.inputs()[0]) + ".log"};
}

const Registration print =
    Operator("Print")
        .Doc("Writes a tensor as a line of text to standard error, or to a file.")
        .Input("x", "any shape and type")
        .Arg("limit", 0, "how many elements at most; 0: 1000", AtLeast(0))
        .Arg("every_n", 1, "prints in run r, step t when (r + t) is a multiple of it", AtLeast(1))
        .Arg("to_file", false,
             "appends to the file <blob>.log in the current folder, `/` in names written `__`, a control character "
             "`\\xNN`")
        .HasSideEffects()
        .OpensFiles(FilesOf)
        .StopsGradient()
        .Shapes([](const ShapeQuery&) { return std::vector<TensorInfo>{}; })
        .Cpu([](const OperatorCall& op) -> RunFn {
          const std::int64_t limit = op.Int("limit") == 0 ? kDefaultLimit : op.Int("limit");
          const std::vector<std::string> files = AllowedFiles(op);
          const std::string file = files.empty() ? "" : files.front();
          if (op.options().quiet) return [](const OpRun&) {};
          return [limit, file, every_n = op.Int("every_n"), name = op.inputs()[0]](const OpRun& run) {
            if ((run.context().RunNumber() + static_cast<std::uint64_t>(run.step())) % static_cast<std::uint64_t>(every_n) !=
                0) {
              return;
            }
            const std::string line = Line(name, run.In(0), run.step(), limit);
            if (file.empty()) {
              std::cerr << line << std::flush;
              return;
            }
            // Opened anew each time: nothing is kept from run to run, and a reader sees whole lines.
            ExpectNoPipe(file);
            std::ofstream out(file, std::ios::app);
            if (!(out << line << std::flush)) {
              throw Error(ErrorCode::kInputOutput, StrCat("Print cannot write to ", file));
            }
          };
        });

}  // namespace
}  // namespace stepnet
