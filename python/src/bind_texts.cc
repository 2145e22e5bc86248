// What can be asked without running anything: checks, operators, the net that a cell stands for.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <vector>

#include "stepnet/core/error.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/printable.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/minidb.h"
#include "stepnet/io/operator_library.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/completion.h"
#include "stepnet/nets/model.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/packed_layers.h"
#include "stepnet/python/src/arrays.h"
#include "stepnet/python/src/bindings.h"
#include "stepnet/python/src/calls.h"
#include "stepnet/python/src/options.h"
#include "stepnet/python/src/text_caster.h"
#include "stepnet/report/net_text.h"
#include "stepnet/report/operator_text.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

std::vector<std::string> ProblemsOf(const NetDef& net) {
  const std::shared_ptr<const NetDef> completed = Completed(net);
  const std::vector<NetProblem> found = CheckNet(*completed);
  std::vector<std::string> problems;
  for (const NetProblem& problem : found) problems.push_back(problem.Text());
  const std::string advice =
      AdviceOnParameters(BlobsOfNobody(*completed, found).size(), "stepnet.load(…, init=F) takes what does");
  if (!problems.empty() && !advice.empty()) problems.back() += "\n  " + advice;
  return problems;
}

// Whether what is float in a cell is double, as far as anybody says so.
using InDouble = std::optional<bool>;

// Throws kInvalidArgument where anything is said of a net that is of cells.
void CheckUseOfNet(const CellWords& words, bool training, InDouble in_double, bool is_text, const std::string& path) {
  if (words.empty() && !training && !in_double) return;
  const std::string net = is_text ? "the text is a net" : StrCat(path, " is a net");
  if (in_double) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(net, ", which computes in the dtype of its inputs: leave dtype out"));
  }
  throw Error(ErrorCode::kInvalidArgument,
              words.empty()
                  ? StrCat(net, ", which is in training by its operators' arguments: leave training out")
                  : StrCat(net, ", and sizes and options are of cells: leave ", words.begin()->first, " out"));
}

// Everything that is wrong with a cell or a net, where what cannot be read is one problem; and what is said of it in
// warnings.
nb::tuple Check(const std::string& text_or_path, bool is_text, const nb::dict& named, InDouble in_double) {
  const CellWords words = CellWordsOf(named);
  std::vector<std::string> warnings;
  const std::vector<std::string> problems = CallWithoutGil([&]() -> std::vector<std::string> {
    const std::string content = is_text ? text_or_path : ReadFile(text_or_path);
    const std::string what = is_text ? "<text>" : text_or_path;
    std::vector<std::string> found;
    bool is_net = false;
    try {
      NetDef net;
      if (IsCell(content, what)) {
        CellSource cell = ParseCell(content, what);
        const CellUse use{.sizes = TakeWords(words, &cell), .in_double = in_double.value_or(false)};
        net = ExpandCell(cell, use).net;
        warnings = WarningsOf(cell);
      } else {
        ParseMessage(content, what, &net);
        is_net = true;
      }
      found = ProblemsOf(net);
      for (const NetProblem& warning : WarningsOfNet(net)) warnings.push_back(warning.Text());
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kCancelled || error.code() == ErrorCode::kOutOfMemory) throw;
      found = {error.what()};
    }
    if (is_net) CheckUseOfNet(words, /*training=*/false, in_double, is_text, text_or_path);
    return found;
  });
  return nb::make_tuple(ListOf(problems), ListOf(warnings));
}

NetDef NetOf(const std::string& text_or_path, bool is_text, const CellWords& words, bool training, InDouble in_double) {
  const bool is_db = !is_text && LooksLikeMiniDb(text_or_path);
  const std::string content = is_text ? text_or_path : is_db ? "" : ReadFile(text_or_path);
  const std::string what = is_text ? "<text>" : text_or_path;
  if (!is_db && IsCell(content, what)) {
    CellSource cell = ParseCell(content, what);
    const CellUse use{.sizes = TakeWords(words, &cell), .training = training, .in_double = in_double.value_or(false)};
    return ExpandCell(cell, use).net;
  }
  NetDef net;
  if (is_text) {
    ParseMessage(content, what, &net);
  } else {
    net = LoadModel(text_or_path).net;
  }
  // Behind what is wrong with the text, which may be meant as a cell.
  CheckUseOfNet(words, training, in_double, is_text, text_or_path);
  return net;
}

// The net that a cell stands for, or the one that fills its parameters, as text. `in_double`: what is float in it is
// double.
nb::object Expand(const std::string& text_or_path, bool is_text, const nb::dict& named, nb::handle prefix,
                  nb::handle init, nb::handle training, nb::handle carry, bool in_double) {
  const CellWords words = CellWordsOf(named);
  CellUse use{.scope = TextOf("prefix", prefix),
              .training = TruthOf("training", training),
              .carry = TruthOf("carry", carry),
              .in_double = in_double};
  const bool is_init = TruthOf("init", init);
  return StrOf(CallWithoutGil([&] {
    CellSource source = SourceOf(text_or_path, is_text);
    use.sizes = TakeWords(words, &source);
    const CellNet cell = ExpandCell(source, use);
    return PrintMessageText(is_init ? cell.init_net : cell.net);
  }));
}

// A net, or the one that a cell stands for, for people or for Graphviz.
nb::object Show(const std::string& text_or_path, bool is_text, const nb::dict& named, nb::handle training,
                InDouble in_double, nb::handle format) {
  const CellWords words = CellWordsOf(named);
  const bool is_training = TruthOf("training", training);
  const std::string form = TextOf("format", format);
  if (form != "text" && form != "dot") {
    throw Error(ErrorCode::kInvalidArgument, StrCat("format is \"", form, "\"; it must be text or dot"));
  }
  return StrOf(CallWithoutGil([&] {
    const NetDef net = NetOf(text_or_path, is_text, words, is_training, in_double);
    return form == "dot" ? NetAsDot(net) : Printable(NetAsText(net));
  }));
}

// The operators that nets and cells may use, with what each does.
std::map<std::string, std::string> Ops() {
  std::map<std::string, std::string> docs;
  for (const std::string& type : OperatorTypes()) {
    const OperatorSchema* schema = FindOperator(type);
    if (schema != nullptr && !schema->is_private) docs[type] = schema->doc;
  }
  return docs;
}

// All about one of them. Throws kInvalidArgument for a type that there is not.
nb::object Op(nb::handle name) {
  const std::string type = TextOf("name", name);
  const OperatorSchema* const schema = FindOperator(type);
  if (schema == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("no operator type \"", PrintableLine(type), "\"", DidYouMean(type, OperatorTypes())));
  }
  return StrOf(OperatorAsText(*schema));
}

// (name, shape, offset) of each parameter of layers in the vector of MXNet and cuDNN, and the length of that.
nb::tuple PackedLayoutOf(const std::string& mode, std::int64_t input, std::int64_t state, std::int64_t layers,
                         bool has_biases, bool bidirectional, std::int64_t projection) {
  const PackedLayers packed{.mode = mode,
                            .layers = layers,
                            .input = input,
                            .state = state,
                            .projection = projection,
                            .bidirectional = bidirectional,
                            .has_biases = has_biases};
  const PackedLayout layout = LayoutOf(packed);
  const std::vector<std::string> names = NamesOf(packed);
  nb::list parts;
  for (size_t i = 0; i < names.size(); ++i) {
    nb::list shape;
    for (const std::int64_t size : layout.parts[i].shape.dims()) shape.append(size);
    parts.append(nb::make_tuple(names[i], nb::tuple(shape), layout.parts[i].offset));
  }
  return nb::make_tuple(parts, layout.size);
}

}  // namespace

void BindTexts(nb::module_& module) {
  module.def("check", &Check, nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
  module.def("expand", &Expand, nb::arg(), nb::arg(), nb::arg(), Anything(), Anything(), Anything(), Anything(),
             nb::arg());
  // With the GIL, so that no other thread loads a library at the same time.
  module.def("load_operator_library", &LoadOperatorLibrary);
  module.def("ops", &Ops);
  module.def("op", &Op, Anything());
  module.def("packed_layout", &PackedLayoutOf);
  module.def("show", &Show, nb::arg(), nb::arg(), nb::arg(), Anything(), nb::arg().none(), Anything());
}

}  // namespace stepnet::python
