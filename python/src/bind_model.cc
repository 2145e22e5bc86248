// Nets with their parameters, for Python.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "stepnet/cells/cell.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/io/minidb.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/model.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/python/src/arrays.h"
#include "stepnet/python/src/bindings.h"
#include "stepnet/python/src/calls.h"
#include "stepnet/python/src/operator.h"
#include "stepnet/python/src/options.h"
#include "stepnet/python/src/program.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

// The blobs that hold the record of a run, which is no tensor.
bool IsRecord(const NetDef& net, const std::string& blob) {
  return std::ranges::any_of(net.op(), [&](const OperatorDef& op) {
    return op.type() == "RecurrentNetwork" && !op.output().empty() && *op.output().rbegin() == blob;
  });
}

// A net and its parameters.
class LoadedNet {
 public:
  LoadedNet(const Model& model, const RunOptions& options) : net_(model.net), name_(model.net.name()) {
    auto shared = std::make_shared<Workspace>();
    model.Initialize(*shared, options);
    SetConstant(FilledBy(model), model.net, *shared);
    for (const std::string& blob : ReadFirst(model.net)) {
      if (!shared->HasBlob(blob)) inputs_.push_back(blob);
    }
    filled_ = FilledBy(model);
    shared_ = shared;
    outputs_ = model.outputs;
    if (outputs_.empty()) {
      outputs_ = UnreadBlobs(model.net);
      std::erase_if(outputs_, [&](const std::string& blob) { return IsRecord(model.net, blob); });
    }
    program_ = std::make_shared<Program>(ProgramDef{
        .net = model.net, .inputs = inputs_, .outputs = outputs_, .options = options, .shared = std::move(shared)});
  }

  const std::string& name() const { return name_; }
  const NetDef& net() const { return net_; }
  const std::vector<std::string>& inputs() const { return inputs_; }
  const std::vector<std::string>& outputs() const { return outputs_; }

  // The tensors that the net keeps, by name; a run of a net that changes them changes these arrays.
  nb::dict Params() const {
    nb::dict arrays;
    for (const std::string& name : filled_) {
      const Blob* const blob = shared_->FindBlob(name);
      const bool is_tensor = blob != nullptr && blob->HasTensor();
      if (is_tensor) arrays[name.c_str()] = ArrayOf(blob->GetTensor().To({}), /*read_only=*/true);
    }
    return arrays;
  }

  nb::list Call(const nb::dict& given) const {
    std::vector<Tensor> tensors;
    for (const std::string& input : inputs_) {
      const nb::object array = nb::borrow(PyDict_GetItemString(given.ptr(), input.c_str()));
      if (!array.is_valid()) {
        CheckNames(given);  // a name may be misspelled
        throw Error(ErrorCode::kInvalidArgument, StrCat("the input \"", input, "\" of ", Named(), " is missing"));
      }
      tensors.push_back(TensorOf(array, {"input", input}));
    }
    if (tensors.size() != given.size()) CheckNames(given);
    nb::list arrays;
    for (const Tensor& tensor : CallWithoutGil([&] { return program_->Run(tensors); })) arrays.append(ArrayOf(tensor));
    return arrays;
  }

 private:
  std::string Named() const { return name_.empty() ? "the net" : StrCat("the net \"", name_, "\""); }

  // Throws for the first name in `given` that no input has.
  void CheckNames(const nb::dict& given) const {
    for (const nb::handle key : given.keys()) {
      const std::string name = nb::str(key).c_str();
      if (std::ranges::count(inputs_, name) > 0) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat(Named(), " has no input \"", name, "\"", DidYouMean(name, inputs_), "; its inputs are ",
                         Join(inputs_, ", ")));
    }
  }

  NetDef net_;
  std::string name_;
  std::vector<std::string> filled_;
  std::shared_ptr<Workspace> shared_;
  std::vector<std::string> inputs_;
  std::vector<std::string> outputs_;
  std::shared_ptr<Program> program_;
};

std::shared_ptr<LoadedNet> Load(const std::string& net_path, const std::string& init_path, std::int64_t threads,
                                const std::string& device, std::int64_t opt_level, std::uint64_t seed) {
  return CallWithoutGil([&] {
    const RunOptions options = MakeRunOptions(threads, device, opt_level, seed);
    if (!LooksLikeMiniDb(net_path) && IsCell(ReadFile(net_path), net_path)) {
      throw Error(ErrorCode::kInvalidArgument, StrCat(net_path, " is a cell; stepnet.cell takes it"));
    }
    return std::make_shared<LoadedNet>(LoadModel(net_path, init_path), options);
  });
}

// A net from its text, with tensors for its parameters, which are copied.
std::shared_ptr<LoadedNet> Make(const std::string& text, const nb::dict& params, std::int64_t threads,
                                const std::string& device, std::int64_t opt_level, std::uint64_t seed) {
  Model model;
  for (const nb::handle item : params.items()) {
    const nb::object key = item[0], value = item[1];
    const std::string name = nb::str(key).c_str();
    model.parameters[name] = TensorOf(value, {"parameter", name}).Clone();
  }
  return CallWithoutGil([&] {
    const RunOptions options = MakeRunOptions(threads, device, opt_level, seed);
    ParseMessageText(text, "<text>", &model.net);
    model.outputs.assign(model.net.external_output().begin(), model.net.external_output().end());
    return std::make_shared<LoadedNet>(model, options);
  });
}

}  // namespace

void BindModel(nb::module_& module) {
  nb::class_<LoadedNet>(module, "LoadedNet")
      .def_prop_ro("name", &LoadedNet::name)
      .def_prop_ro("inputs", &LoadedNet::inputs)
      .def_prop_ro("outputs", &LoadedNet::outputs)
      .def("params", &LoadedNet::Params)
      .def("operators", [](const LoadedNet& net) { return OperatorsOf(net.net()); })
      .def("call", &LoadedNet::Call);
  module.def("load_net", &Load);
  module.def("make_net", &Make);
}

}  // namespace stepnet::python
