#include "region_runner.h"

#include <dlfcn.h>

#include <cstdlib>
#include <optional>

#include "cuda_on_host_functions.h"
#include "no_device_compiler.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/vector_math.h"
#include "stepnet/tests/core/every_stored.h"
#include "stepnet/tests/core/expressions/random_exprs.h"
#include "stepnet/tests/core/regions/random_region.h"
#include "stepnet/tests/core/source_path.h"
#include "stepnet/tests/core/temp_dir.h"

namespace stepnet {
namespace {

std::string FaultText(const std::optional<RegionFault>& fault) {
  return fault ? StrCat(fault->element, ": ", fault->message) : "none";
}

std::string FaultText(const DeviceFault& record) {
  if (!record.any()) return "none";
  const Fault fault = FaultOf(record);
  if (fault.place.step != kStepOfTests || fault.place.op != kInstructionOfTests) return "of another place";
  return StrCat(fault.place.element, ": ", fault.error.message());
}

}  // namespace

DeviceFaultSite SiteOfTests(const PrintedRegion& printed) {
  DeviceFaultSite site = DeviceFaultSite::Of({.first_step = kStepOfTests, .op = kInstructionOfTests}, nullptr, 0);
  site.messages = printed.messages->first();
  return site;
}

std::vector<PrintedRegion> PrintedOf(const std::vector<Region>& regions, RegionSourceOptions options) {
  std::vector<PrintedRegion> printed;
  for (const Region& region : regions) {
    CheckRegion(region);
    options.name = StrCat("r", printed.size());
    printed.push_back({.region = region, .source = PrintRegion(region, options)});
  }
  return printed;
}

std::vector<Region> PrimitiveRegions() {
  constexpr std::int64_t kCount = 3 * 256 + 77;
  std::vector<Region> regions;
  for (int k = static_cast<int>(ExprOp::kAdd); k < kNumExprOps; ++k) {
    const auto op = static_cast<ExprOp>(k);
    for (const DType dtype : kOperandTypes) {
      for (int count = 1; count <= kMaxExprOperands; ++count) {
        for (const DType to : kOperandTypes) {
          if (op != ExprOp::kCast && op != ExprOp::kUniform && to != DType::kFloat) continue;
          Region region{.sizes = {1, 1, 1, kCount}};
          std::vector<Expr> operands;
          for (int i = 0; i < count; ++i) {
            const DType own = op == ExprOp::kWhere && i == 0 ? DType::kBool : dtype;
            operands.push_back(Expr::Input(i, StrCat("x", i), own));
            region.inputs.push_back({.dtype = own, .size = kCount, .strides = {0, 0, 0, 1}});
          }
          try {
            const Expr value = MakeExpr(op, operands, {.dtype = to, .text = "{} of {}, {} and {}"});
            region.outputs.push_back(
                {.value = value, .memory = {.dtype = value.dtype(), .size = kCount, .strides = {0, 0, 0, 1}}});
          } catch (const Error&) {  // not of so many operands, or not of that dtype
            continue;
          }
          regions.push_back(region);
        }
      }
    }
  }
  return regions;
}

std::string FirstWrongConversion(RegionRunner& runner) {
  for (const DType stored : kStoredTypes) {
    std::vector<DType> sources(std::begin(kStoredFrom), std::end(kStoredFrom));
    sources.push_back(stored);
    for (const DType source : sources) {
      const bool loads = source == stored;
      const std::vector<std::uint64_t> values = loads ? EveryStored(stored) : NumbersAround(stored, source);
      const auto count = static_cast<std::int64_t>(values.size());
      const RegionOperand of{.size = count, .strides = {0, 0, 0, 1}};
      Region region{.sizes = {1, 1, 1, count}, .inputs = {of}, .outputs = {{.memory = of}}};
      region.inputs[0].dtype = source;
      region.outputs[0].memory.dtype = loads ? DType::kFloat : stored;
      region.outputs[0].value = Cast(region.outputs[0].memory.dtype, Expr::Input(0, "x", region.inputs[0].dtype));
      const std::vector<PrintedRegion> printed = PrintedOf({region});
      runner.Compile(printed);
      std::vector<std::byte> from = Packed(values, region.inputs[0].dtype), to(4 * values.size());
      const void* inputs[] = {from.data()};
      void* outputs[] = {to.data()};
      runner.Run(printed[0], inputs, outputs, nullptr);
      std::string wrong = WrongConversion(region, values, to.data());
      if (!wrong.empty()) return wrong;
    }
  }
  return "";
}

std::string DifferenceFromDefinition(const PrintedRegion& printed, unsigned seed, RegionRunner& runner) {
  const Region& region = printed.region;
  const auto memory = [&] {
    std::mt19937 random(seed);
    return RegionMemory(region, random);
  };
  RegionMemory want = memory(), got = memory();
  const std::string want_fault = FaultText(EvaluateRegion(region, want.Inputs(), want.Outputs()));
  DeviceFault record;
  runner.Run(printed, got.Inputs(), got.Outputs(), &record);
  std::string what = got.DifferenceFrom(want, region);
  const std::string fault = FaultText(record);
  if (what.empty() && fault != want_fault) what = StrCat("fault ", fault, ", not ", want_fault);
  if (what.empty()) return "";
  return StrCat("seed ", seed, ": ", what, "\n", RegionText(region), "\n", printed.source.kernels);
}

std::string FirstDifference(std::span<const PrintedRegion> printed, RegionRunner& runner) {
  constexpr size_t kTogether = 300;
  for (size_t begin = 0; begin < printed.size(); begin += kTogether) {
    const auto some = printed.subspan(begin, std::min(kTogether, printed.size() - begin));
    runner.Compile(some);
    for (size_t i = 0; i < some.size(); ++i) {
      std::string difference = DifferenceFromDefinition(some[i], static_cast<unsigned>(begin + i), runner);
      if (!difference.empty()) return difference;
    }
  }
  return "";
}

std::string HostRegionRunner::WhyNot() {
  static const bool has_compiler = std::system("c++ --version >/dev/null 2>&1") == 0;
  if (const std::string why = WhyNoTestsOfKernels(); !why.empty()) return why;
  return has_compiler ? "" : "there is no C++ compiler named c++";
}

HostRegionRunner::~HostRegionRunner() {
  if (library_ != nullptr) dlclose(library_);
}

void HostRegionRunner::Compile(std::span<const PrintedRegion> printed) {
  TextStream text;
  text << "#include \"" << SourcePath("tests/gpu/cuda_on_host.h") << "\"\n"
       << DeviceCodeText() << "\nusing namespace stepnet::device;\n";
  for (const PrintedRegion& one : printed) {
    text << one.source.kernels;
    for (const RegionLaunch& launch : one.source.launches) {
      text << "extern \"C\" void call_" << launch.kernel << "(const void* p) { " << launch.kernel
           << "(*static_cast<const " << launch.kernel << "_parameters*>(p)); }\n";
    }
  }
  const TempDir dir;
  const std::string source = dir.Put("kernels.cc", std::move(text).str()), library = dir.Path("kernels.so");
  const std::string command = StrCat("c++ -std=c++20 -O0 -w -fPIC -shared -ffp-contract=off -o ", library, " ", source,
                                     " > ", dir.Path("log"), " 2>&1");
  if (std::system(command.c_str()) != 0) throw Error(ErrorCode::kFailed, dir.Get("log").substr(0, 4000));
  if (library_ != nullptr) dlclose(library_);
  library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) throw Error(ErrorCode::kFailed, dlerror());
  const HostFunctions functions = {VectorExp,  VectorExp,     VectorLog,     VectorLog,  VectorTanh,
                                   VectorTanh, VectorSigmoid, VectorSigmoid, VectorErfc, VectorErfc,
                                   VectorSin,  VectorSin,     VectorCos,     VectorCos};
  reinterpret_cast<void (*)(const HostFunctions*)>(Symbol("SetHostFunctions"))(&functions);
}

void* HostRegionRunner::Symbol(const std::string& name) const {
  void* symbol = dlsym(library_, name.c_str());
  if (symbol == nullptr) throw Error(ErrorCode::kFailed, StrCat("the library of kernels has no ", name));
  return symbol;
}

void HostRegionRunner::Run(const PrintedRegion& printed, std::span<const void* const> inputs,
                           std::span<void* const> outputs, DeviceFault* fault) {
  using Call = void (*)(const void*);
  const auto launch_on_host =
      reinterpret_cast<void (*)(Call, const void*, long long, int, bool)>(Symbol("LaunchOnHost"));
  std::vector<std::uint64_t> scratch(static_cast<size_t>(printed.source.scratch_bytes / 8 + 1));
  const RegionPointers pointers{
      .inputs = inputs, .outputs = outputs, .scratch = scratch.data(), .fault = fault, .site = SiteOfTests(printed)};
  for (const RegionLaunch& launch : printed.source.launches) {
    const std::vector<std::uint64_t> words = printed.source.Bind(launch, pointers);
    const auto call = reinterpret_cast<Call>(Symbol("call_" + launch.kernel));
    launch_on_host(call, words.data(), launch.blocks, launch.threads, launch.threads_exchange);
  }
}

}  // namespace stepnet
