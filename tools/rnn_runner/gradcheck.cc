// rnn_runner gradcheck: the gradients that a net computes against differences of its loss, in double.
//
// The loss is L = sum of the elements of the blobs whose gradients the net starts with. For element x_i of an input,
// (L(x_i + h) - L(x_i - h)) / 2h must be what the net gives as gradient; where it is not, smaller steps and how well
// they agree (differences.h) tell whether that is the net's fault.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <map>
#include <set>

#include "stepnet/core/random.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/completion.h"
#include "stepnet/nets/double_net.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/cell_file.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/differences.h"
#include "stepnet/tools/rnn_runner/gradcheck_causes.h"
#include "stepnet/tools/rnn_runner/inputs.h"
#include "stepnet/tools/rnn_runner/losses.h"
#include "stepnet/tools/rnn_runner/progress.h"
#include "stepnet/tools/rnn_runner/session.h"
#include "stepnet/tools/rnn_runner/tensor_text.h"
#include "stepnet/tools/rnn_runner/weights_flag.h"

DEFINE_string(loss, "",
              "blobs whose elements are summed, when the net itself does not say of what its gradients are;\n"
              "BLOB:WEIGHTS multiplies with those of another blob, which the net or --shape or --input gives");
DEFINE_bool(rebuild, false, "leave out the gradient operators that the net has, and make new ones");
DEFINE_int32(samples, 64, "elements of each input to check, chosen at random; 0: all");
DEFINE_double(tolerance, 1e-5, "largest error, as a part of the largest gradient of the input");

namespace stepnet::runner {
namespace {

// A net with gradients, in double, and what it is a gradient of.
struct Problem {
  NetDef net;      // with gradient operators
  NetDef forward;  // what the loss needs
  std::vector<Loss> losses;
  std::map<std::string, GradientBlobs> gradients;  // of inputs
};

struct Result {
  std::string input;
  std::int64_t checked = 0;
  double worst = 0;      // largest |analytic - numeric|
  double scale = 0;      // largest |gradient| among those checked
  bool is_zero = false;  // within rounding, by the net and by differences: nothing was compared
  std::string problem = {};
  std::string doubt = {};  // where differences tell less than is asked
  double finest = 0;       // the tolerance from which on they would tell, where only rounding is in the way
};

void RunOnce(Net& net, const TensorMap& tensors, Workspace& workspace) {
  FeedCopies(tensors, workspace);
  net.SetRunCounter(0);  // the same random numbers in every run
  RunNet(net);
}

std::vector<std::string> DoubleInputs(const NetDef& net, const TensorMap& tensors) {
  std::vector<std::string> inputs;
  for (const std::string& blob : ReadFirst(net)) {
    const auto found = tensors.find(blob);
    if (found != tensors.end() && found->second.dtype() == DType::kDouble) inputs.push_back(blob);
  }
  return inputs;
}

// Without gradients in the net and without --loss: every output in double.
std::vector<Loss> OutputLosses(const NetDef& net, const std::vector<std::string>& outputs, const TensorMap& tensors,
                               const RunOptions& options) {
  Workspace workspace;
  FeedCopies(tensors, workspace);
  const std::unique_ptr<Net> forward = CreateNet(net, workspace, options);
  RunOnce(*forward, tensors, workspace);
  std::vector<Loss> losses;
  for (const std::string& blob : outputs) {
    const Blob* found = workspace.FindBlob(blob);
    if (found != nullptr && found->HasTensor() && found->GetTensor().dtype() == DType::kDouble) {
      losses.push_back({.blob = blob});
    }
  }
  return losses;
}

std::map<std::string, GradientBlobs> GradientsByName(const NetDef& net, const std::vector<std::string>& inputs) {
  std::set<std::string> written;
  for (const OperatorDef& op : net.op()) written.insert(op.output().begin(), op.output().end());
  std::map<std::string, GradientBlobs> gradients;
  for (const std::string& input : inputs) {
    const std::string name = input + "_grad";
    if (written.contains(name)) {
      gradients[input] = {.dense = name};
    } else if (written.contains(name + "_indices") && written.contains(name + "_values")) {
      gradients[input] = {.dense = {}, .indices = name + "_indices", .values = name + "_values"};
    }
  }
  return gradients;
}

// The net as it is, with its own gradient operators.
Problem WithOwnGradients(NetDef net, const TensorMap& tensors) {
  Problem problem{.net = std::move(net), .forward = {}, .losses = ParseLosses(FLAGS_loss), .gradients = {}};
  if (problem.losses.empty()) problem.losses = SeededLosses(problem.net);
  if (problem.losses.empty()) {
    throw UsageError(
        "the net has gradient operators, and it does not show of what; say --loss=BLOB or --loss=BLOB:GRADIENT");
  }
  problem.gradients = GradientsByName(problem.net, DoubleInputs(problem.net, tensors));
  return problem;
}

// Throws where the weights of a loss are blobs of the net: they would change with what differences are taken of, and
// the gradient takes them as given.
void CheckWeights(const Loss& loss, const NetDef& net) {
  const auto has = [&](const auto& blobs) { return std::ranges::find(blobs, loss.weights) != blobs.end(); };
  if (std::ranges::none_of(net.op(), [&](const OperatorDef& op) { return has(op.input()) || has(op.output()); }))
    return;
  throw UsageError(
      StrCat("--loss=", loss.blob, ":", loss.weights, " multiplies with ", Quoted(loss.weights),
             ", which the net itself reads or writes; another blob is needed, given by --shape or --input"));
}

// The net with gradient operators made here.
Problem WithNewGradients(const NetDef& net, const TensorMap& tensors, std::vector<std::string> outputs,
                         const RunOptions& options) {
  Problem problem{.net = WithoutGradients(net), .forward = {}, .losses = ParseLosses(FLAGS_loss), .gradients = {}};
  if (problem.losses.empty()) problem.losses = SeededLosses(net);
  if (HasGradients(net)) outputs = UnreadBlobs(problem.net);  // of the whole net they are gradients
  if (problem.losses.empty()) problem.losses = OutputLosses(problem.net, outputs, tensors, options);
  std::map<std::string, std::string> seeds;
  std::vector<Loss> losses = std::move(problem.losses);
  problem.losses.clear();
  for (Loss& loss : losses) {
    if (FLAGS_loss.empty()) loss = {.blob = loss.blob};  // the weights may be what the net itself computes
    if (!loss.weights.empty()) CheckWeights(loss, problem.net);
    if (seeds.emplace(loss.blob, loss.weights).second) {
      problem.losses.push_back(loss);
    } else if (!FLAGS_loss.empty()) {
      throw UsageError(StrCat("--loss has ", Quoted(loss.blob), " twice"));
    }
  }
  AddBackwardStepNets(&problem.net, [&](const std::string& blob) {
    const auto found = tensors.find(blob);
    return found == tensors.end() || found->second.dtype() == DType::kDouble;
  });
  NetWithGradients made = AddGradientsFrom(problem.net, seeds, DoubleInputs(problem.net, tensors));
  problem.net = std::move(made.net);
  problem.gradients = std::move(made.gradients);
  return problem;
}

Problem MakeProblem(const Session& session, const TensorMap& tensors, const RunOptions& options) {
  NetDef net = InDouble(session.def);
  const bool has_own = HasGradients(net) && !FLAGS_rebuild;
  Problem problem =
      has_own ? WithOwnGradients(std::move(net), tensors) : WithNewGradients(net, tensors, session.outputs, options);
  problem.forward = Needed(problem.net, problem.losses);
  return problem;
}

// The gradient as one tensor of the input's shape. Throws kShapeMismatch, kTypeMismatch.
Tensor Dense(const GradientBlobs& gradient, const Tensor& input, const Workspace& workspace) {
  const Tensor values = workspace.GetTensor(gradient.dense.empty() ? gradient.values : gradient.dense).To({});
  if (values.dtype() != DType::kDouble) {
    throw Error(ErrorCode::kTypeMismatch, StrCat("the gradient is ", values.Description(), ", must be double"));
  }
  if (!gradient.dense.empty()) {
    if (values.size() == input.size()) return values.Clone();
    throw Error(ErrorCode::kShapeMismatch, StrCat("the gradient is ", values.shape(), ", the input ", input.shape()));
  }
  std::vector<std::int64_t> rows;
  ForEachNumber(workspace.GetTensor(gradient.indices),
                [&](std::int64_t, double row) { rows.push_back(static_cast<std::int64_t>(row)); });
  Tensor dense = Tensor::Zeros(DType::kDouble, input.shape());
  const std::int64_t width = input.shape().rank() > 0 ? input.shape().SizeFrom(1) : 1;
  if (values.size() != static_cast<std::int64_t>(rows.size()) * width) {
    throw Error(ErrorCode::kShapeMismatch, StrCat("the gradient has ", rows.size(), " indices and values ",
                                                  values.shape(), " for ", input.shape()));
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    if (rows[r] < 0 || rows[r] >= input.dim(0)) {
      throw Error(ErrorCode::kShapeMismatch, StrCat("the gradient has row ", rows[r], " of ", input.shape()));
    }
    for (std::int64_t i = 0; i < width; ++i) {
      dense.data<double>()[rows[r] * width + i] += values.data<double>()[static_cast<std::int64_t>(r) * width + i];
    }
  }
  return dense;
}

// Which elements to look at: all, or --samples of them.
std::vector<std::int64_t> Chosen(std::int64_t size, std::uint64_t input_number) {
  std::vector<std::int64_t> chosen;
  if (FLAGS_samples == 0 || size <= FLAGS_samples) {
    for (std::int64_t i = 0; i < size; ++i) chosen.push_back(i);
    return chosen;
  }
  // One at random from each of as many stretches of equal length.
  const RandomStream random(FLAGS_seed, input_number, /*run=*/0, /*step=*/0);
  const double stretch = static_cast<double>(size) / FLAGS_samples;
  for (int s = 0; s < FLAGS_samples; ++s) {
    const auto i = static_cast<std::int64_t>((s + random.Uniform(s)) * stretch);
    if (chosen.empty() || i > chosen.back()) chosen.push_back(std::min(i, size - 1));
  }
  return chosen;
}

class Checker {
 public:
  Checker(const Problem& problem, TensorMap tensors, const RunOptions& options)
      : problem_(problem), tensors_(std::move(tensors)), options_(options) {}

  std::vector<Result> Run() {
    const TensorMap analytic = Analytic();
    FeedCopies(tensors_, workspace_);
    forward_ = CreateNet(problem_.forward, workspace_, options_);
    loss_ = Evaluate();
    CheckLossIsFinite(loss_, problem_.forward, workspace_);
    Progress progress("gradcheck");
    for (auto& [input, tensor] : tensors_) {
      if (!problem_.gradients.contains(input)) continue;
      progress.Show(static_cast<std::int64_t>(results_.size()), static_cast<std::int64_t>(problem_.gradients.size()),
                    input);
      Result& result = Find(input);
      if (result.problem.empty()) Check(analytic.at(input), &tensor, &result);
    }
    return std::move(results_);
  }

 private:
  Result& Find(const std::string& input) {
    const auto found = std::ranges::find(results_, input, &Result::input);
    return found != results_.end() ? *found : results_.emplace_back(Result{.input = input});
  }

  TensorMap Analytic() {
    Workspace workspace;
    FeedCopies(tensors_, workspace);
    const std::unique_ptr<Net> net = CreateNet(problem_.net, workspace, options_);
    RunOnce(*net, tensors_, workspace);
    TensorMap gradients;
    for (const auto& [input, blobs] : problem_.gradients) {
      try {
        gradients[input] = Dense(blobs, tensors_.at(input), workspace);
      } catch (const Error& error) {
        Find(input).problem = error.message();
      }
    }
    return gradients;
  }

  double Evaluate() {
    RunOnce(*forward_, tensors_, workspace_);
    return LossValue(problem_.losses, workspace_);
  }

  double Numeric(double* element, double step) {
    const double value = *element;
    *element = value + step;
    const double above = Evaluate();
    *element = value - step;
    const double below = Evaluate();
    *element = value;
    return (above - below) / (2 * step);
  }

  struct Compared {
    std::int64_t element = 0;
    double numeric = 0;
    double error = std::numeric_limits<double>::infinity();
    double doubt = 0;  // by how much the differences may be wrong
    double scale = 0;  // of the differences, which at a kink have several values
  };

  // The error that rounding of the loss makes in differences of this step. An error within that of the first step is
  // never called wrong, nor right where it is beyond the tolerance.
  double RoundingOver(double step) const { return kRounding * std::max(1.0, std::abs(loss_)) / step; }

  // The differences that are nearest to the gradient of an element, which may lie at a kink or where the loss curves
  // fast.
  Compared Compare(double gradient, std::int64_t i, double scale, double* element) {
    Compared best{.element = i};
    if (std::isinf(*element)) return {.element = i, .numeric = 0, .error = std::abs(gradient)};  // no step moves it
    if (!std::isfinite(gradient)) {
      best.numeric = Numeric(element, kSteps[0] * std::max(1.0, std::abs(*element)));
      return best;
    }
    const auto is_right = [&] {
      return best.error <= FLAGS_tolerance * std::max({scale, std::abs(gradient), best.scale});
    };
    for (const double step : kSteps) {
      const double numeric = Numeric(element, step * std::max(1.0, std::abs(*element)));
      const double error = std::abs(gradient - numeric);
      if (error < best.error) best = {i, numeric, error, 0, std::abs(numeric)};
      if (is_right()) return best;
    }
    const double value = *element;
    const auto loss_at = [&](double x) {
      *element = x;
      return Evaluate();
    };
    const Derivative found = Differentiate(loss_at, value, RoundingOver(1));
    *element = value;
    const auto [low, high] = std::minmax({found.value, found.below, found.above});
    const double nearest = std::clamp(gradient, low, high);
    return {i, nearest, std::abs(gradient - nearest), std::max(found.doubt, RoundingOver(kSteps[0])),
            std::max(0.0, std::max(std::abs(low), std::abs(high)) - found.doubt)};
  }

  void Check(const Tensor& analytic, Tensor* input, Result* result) {
    std::vector<Compared> all;
    for (const std::int64_t i : Chosen(input->size(), results_.size())) {
      const double gradient = analytic.data<double>()[i];
      const Compared compared = Compare(gradient, i, result->scale, input->data<double>() + i);
      result->scale = std::max({result->scale, std::abs(gradient), compared.scale});
      all.push_back(compared);
    }
    result->checked = static_cast<std::int64_t>(all.size());
    const double rounding = RoundingOver(kSteps[0]);
    result->is_zero = result->scale <= rounding;
    const double allowed = result->is_zero ? rounding : FLAGS_tolerance * result->scale;
    // Where all is zero no gradient says how small an error has to be. Differences that hold what the net gives within
    // their own error do, where that would move the loss by no more than the tolerance.
    const auto is_held = [&](double error, double doubt) {
      return result->is_zero && error <= doubt && doubt <= FLAGS_tolerance * std::max(1.0, std::abs(loss_));
    };
    double worst_wrong = 0, worst_doubtful = 0;
    for (const auto& [i, numeric, error, doubt, scale] : all) {
      result->worst = std::max(result->worst, error);
      if (error <= allowed || is_held(error, doubt)) continue;
      // Where no two steps agree, not even the doubt is known.
      const bool is_known = doubt <= std::max(rounding, std::abs(numeric) / 10);
      const bool is_wrong = !std::isfinite(error) || (is_known && error > allowed + doubt);
      double& worst = is_wrong ? worst_wrong : worst_doubtful;
      if (error < worst) continue;
      worst = error;
      if (!is_wrong) result->finest = doubt <= rounding ? rounding / result->scale : 0;
      const std::string text = StrCat("element ", i, ": the net gives ", Number(analytic.data<double>()[i], 8),
                                      ", differences give ", Number(numeric, 8));
      (is_wrong ? result->problem : result->doubt) =
          is_wrong ? text : StrCat(text, ", which may be wrong by ", Number(doubt, 2));
    }
  }

  // The second and third step are for elements beside a kink, or where L is so large that the first drowns.
  static constexpr double kSteps[] = {1e-5, 1e-7, 1e-4};
  static constexpr double kRounding = 1e-14;  // of the loss

  const Problem& problem_;
  TensorMap tensors_;
  const RunOptions& options_;
  Workspace workspace_;
  std::unique_ptr<Net> forward_;
  double loss_ = 0;
  std::vector<Result> results_;
};

std::string Status(const Result& result) {
  if (!result.problem.empty()) return "FAILED: " + result.problem;
  if (!result.doubt.empty()) return "UNSURE: " + result.doubt;
  return result.is_zero ? "zero" : "ok";
}

void ExplainDoubts(const std::vector<Result>& results) {
  bool any_jumps = false;
  double finest = 0;
  for (const Result& result : results) {
    if (!result.problem.empty() || result.doubt.empty()) continue;
    any_jumps |= result.finest == 0;
    finest = std::max(finest, result.finest);
  }
  if (any_jumps) {
    std::cerr
        << "UNSURE: differences of no two steps agree well enough to tell, as where the loss jumps. Other values\n"
           "of the input, by --shape or --input, may do.\n";
  }
  if (finest > 0) {
    std::cerr << "UNSURE: rounding of the loss hides errors that are this small. What differences can tell here is a\n"
              << "--tolerance of " << Number(finest, 2) << " or more.\n";
  }
}

// The exit status. To have compared nothing but zeros is no success.
int Report(const std::vector<Result>& results, const TensorMap& tensors, const NetDef& net) {
  Table table({"input", "shape", "checked", "error", "relative", ""});
  std::int64_t ok = 0, zero = 0, unsure = 0, failed = 0;
  for (const Result& result : results) {
    const Tensor& input = tensors.at(result.input);
    ++(!result.problem.empty() ? failed : !result.doubt.empty() ? unsure : result.is_zero ? zero : ok);
    const double relative = result.scale > 0 && !result.is_zero ? result.worst / result.scale : 0;
    table.Add({NameText(result.input), input.shape().ToString(), StrCat(result.checked, " of ", input.size()),
               Number(result.worst, 2), Number(relative, 2), Status(result)});
  }
  std::cout << Printable(table.Text()) << Count(std::ssize(results), "input") << ": " << ok << " ok, " << failed
            << " failed" << (unsure > 0 ? StrCat(", ", unsure, " unsure") : "")
            << (zero > 0 ? StrCat(", ", zero, " zero") : "") << "\n";
  if (zero > 0) {
    std::cerr
        << "zero: the net and differences give no gradient beyond rounding, so that nothing is compared. Does the\n"
           "loss depend on the input? Where sequences are too short (--steps, lengths), it does not: what a step "
           "makes\n"
           "of an input may be read several steps later. The sum of a softmax is 1, whatever it is of;\n"
           "--loss=BLOB:WEIGHTS with --shape=WEIGHTS=SIZES, the sizes of BLOB, multiplies its elements with random\n"
           "numbers.\n";
  }
  if (const std::string stops = failed > 0 ? NetWithStopGradient(net) : ""; !stops.empty()) {
    std::cerr << Printable(StrCat("FAILED: the net ", Quoted(stops),
                                  " has a StopGradient, which gradients do not pass and differences ",
                                  "do; to check the\nrest of the net, put a Copy in its place.\n"));
  }
  ExplainDoubts(results);
  return failed == 0 && unsure == 0 && ok > 0 ? kOk : kFault;
}

// Throws what `run` says of the net as it is written: where gradients are made, arguments are written anew, and what
// was wrong with them would go unnoticed. What --rebuild leaves out may be wrong.
void CheckAsWritten(const Session& session, const RunOptions& options) {
  try {
    const NetDef net = *Completed(FLAGS_rebuild ? WithoutGradients(session.def) : session.def);
    ThrowIfProblems(CheckNet(net, {.run = options, .blob_exists = [&](const std::string& blob) {
                                     return session.workspace->HasBlob(blob);
                                   }}));
  } catch (...) {
    throw CurrentError().At({.file = FLAGS_net});
  }
}

int Gradcheck(const std::vector<std::string>&) {
  RunOptions options = RunOptionsFromFlags();
  if (options.math != Math::kFloat32) {
    throw UsageError(
        StrCat("--math=", MathName(options.math), " is of products of float, and gradcheck computes in double"));
  }
  options.quiet = true;
  std::vector<std::string> weights;
  for (const Loss& loss : ParseLosses(FLAGS_loss)) weights.push_back(loss.weights);
  const Session session = OpenSession(
      options,
      {.also_read = weights, .lengths = MadeUpLengths::kRandom, .draws = FLAGS_samples > 0, .becomes_double = true});
  CheckInputs(session.def, *session.workspace);
  CheckAsWritten(session, options);
  PrintCellWarnings(FLAGS_net);
  TensorMap tensors = DoubleTensors(*session.workspace);
  const Problem problem = MakeProblem(session, tensors, options);
  std::vector<std::string> terms;
  for (const Loss& loss : problem.losses) {
    terms.push_back(NameText(loss.blob) + (loss.weights.empty() ? "" : " * " + NameText(loss.weights)));
  }
  std::cout << Printable("loss: the sum of " + Join(terms, ", ")) << "\n";
  for (const std::string& input : DoubleInputs(problem.forward, tensors)) {
    if (!problem.gradients.contains(input)) {
      std::cerr << Printable(StrCat("the net computes no gradient of \"", input, "\"")) << "\n";
    }
  }
  const std::vector<Result> results = Checker(problem, tensors, options).Run();
  if (results.empty()) throw Error(ErrorCode::kInvalidNet, "the net computes no gradient of any of its inputs");
  return Report(results, tensors, problem.forward);
}

std::string UnknownFlag(const std::string& name) {
  const std::string advice = AdviceOnWeights(name);
  return advice.empty() ? AdviceOnOptions(name) : advice;
}

std::vector<FlagUse> GradcheckFlags() {
  std::vector<FlagUse> flags = SessionFlags();
  std::erase_if(flags, [](const FlagUse& flag) { return flag.name == WeightsFlag().name; });
  std::ranges::find(flags, CellDTypeFlag().name, &FlagUse::name)->doc =
      "what a cell computes in, as elsewhere: float32, or float64; gradients are compared in double either way";
  flags.push_back({.name = "loss", .value = "BLOB,…", .is_list = true});
  flags.push_back({.name = "rebuild"});
  flags.push_back({.name = "samples", .value = "N", .min = 0});
  flags.push_back({.name = "tolerance", .value = "X", .min = 0, .above_min = true});
  return WithCommonFlags(std::move(flags));
}

}  // namespace

const Command kGradcheck = {
    .name = "gradcheck",
    .operands = "F",
    .doc = "compares a net's gradients with differences, in double",
    .details =
        "F is a NetDef, a MetaNetDef, a minidb model or a cell, binary or text.\n"
        "The net and its inputs are rewritten to double. Lengths and masks of a cell that are not given are random, "
        "but\n"
        "for the first sequence, which has all steps. The loss is the sum of the blobs whose gradients the net starts\n"
        "with (or --loss, or its outputs); the gradient of an input x is what the net computes as x_grad. A net "
        "without\n"
        "gradient operators gets them. Each input's largest error is printed, as it is and as a part of the largest\n"
        "gradient; the exit status is 1 when one is beyond --tolerance, when differences of no step can tell "
        "(UNSURE), or\n"
        "when all gradients are zero within rounding, so that nothing was compared.",
    .example = "rnn_runner gradcheck net.pb --input_pb=inputs.pb",
    .flags = GradcheckFlags(),
    .min_operands = 0,
    .max_operands = 0,
    .unknown_flag = UnknownFlag,
    .run = Gradcheck,
};

}  // namespace stepnet::runner
