// Nets with their parameters, for Python.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>

#include "stepnet/core/error.h"
#include "stepnet/core/exact_number.h"
#include "stepnet/core/memory_for.h"
#include "stepnet/core/name_characters.h"
#include "stepnet/core/printable.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/decomposition.h"
#include "stepnet/python/src/arrays.h"
#include "stepnet/python/src/bindings.h"
#include "stepnet/python/src/call_gradients.h"
#include "stepnet/python/src/calls.h"
#include "stepnet/python/src/device_calls.h"
#include "stepnet/python/src/explain.h"
#include "stepnet/python/src/loaded_net.h"
#include "stepnet/python/src/operator.h"
#include "stepnet/python/src/options.h"
#include "stepnet/python/src/text_caster.h"
#include "stepnet/python/src/with_file.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

nb::list Call(LoadedNet& net, const nb::dict& given) {
  return WithFile(net.file(), [&] {
    const std::vector<Tensor> inputs = net.TakeInputs(given);
    const std::vector<Tensor> outputs = CallOnDevice(net.place(), [&] { return net.program()->Run(inputs); });
    return net.program()->BehindRun([&] { return ArraysOf(outputs, net.outputs(), /*read_only=*/false); });
  });
}

nb::tuple Vjp(LoadedNet& net, const nb::dict& given, const nb::list& wrt, const nb::dict& gradient_requests) {
  return WithFile(net.file(), [&] {
    const std::vector<std::string> wanted = NamesOf("wrt", wrt);
    const std::vector<Tensor> inputs = net.TakeInputs(given);
    const std::vector<std::string> names = net.Differentiable(wanted, inputs);
    const GradientRequests requests = RequestsOf(gradient_requests);
    auto [outputs, pullback] = CallOnDevice(
        net.place(), [&] { return net.ProgramWithGradients(names, requests, inputs)->RunForGradients(inputs); });
    CallGradients::Of of{.text = net.Described(),
                         .file = net.file(),
                         .device = net.place().device,
                         .outputs = net.outputs(),
                         .differentiated = AskedFor(names, requests)};
    for (const std::string& name : of.differentiated) {
      of.is_parameter.push_back(std::ranges::count(net.parameters(), name) > 0);
    }
    auto gradients = std::make_unique<CallGradients>(std::make_shared<CallGradients::Of>(std::move(of)), outputs,
                                                     std::move(pullback));
    return nb::make_tuple(ArraysOf(outputs, net.outputs(), /*read_only=*/true), nb::cast(std::move(gradients)));
  });
}

nb::dict Read(LoadedNet& net, const std::vector<std::string>& names) {
  nb::dict arrays;
  WithFile(net.file(), [&] {
    for (const auto& [name, tensor] : CallOnDevice(net.place(), [&] { return net.program()->ReadShared(names); })) {
      arrays[StrOf(name)] = ArrayOf(tensor);
    }
  });
  return arrays;
}

void Restore(LoadedNet& net, const nb::dict& tensors) {
  WithFile(net.file(), [&] { net.Restore(tensors); });
}

// The tensors that the net keeps, by name; a run of a net that changes them changes these arrays.
nb::dict Filled(LoadedNet& net) {
  const InOrderOf device(net.place());
  nb::dict arrays;
  SharedBlobs& shared = *net.def().shared;
  const std::lock_guard lock(shared.mutex);
  for (const std::string& name : net.filled()) {
    const Blob* const blob = shared.workspace.FindBlob(name);
    const bool is_tensor = blob != nullptr && blob->HasTensor();
    if (!is_tensor) continue;
    const Tensor tensor = WithMemoryFor("a copy of the blob", name, [&] { return blob->GetTensor().To({}); });
    arrays[StrOf(name)] = ArrayOf(tensor, /*read_only=*/true);
  }
  return arrays;
}

// What runs, with the outputs of calls.
nb::object TextOfNet(const LoadedNet& net) {
  NetDef def = net.def().net;
  def.mutable_external_output()->Assign(net.outputs().begin(), net.outputs().end());
  return StrOf(PrintMessageText(def));
}

// The net as it was given, as text, the tensors that it keeps, by name, and how many runs there were.
nb::tuple Parts(const LoadedNet& net) {
  return WithFile(net.file(), [&] {
    std::uint64_t num_runs = 0;
    nb::dict arrays;
    for (const auto& [name, tensor] : CallOnDevice(net.place(), [&] { return net.KeptTensors(&num_runs); })) {
      arrays[StrOf(name)] = ArrayOf(tensor);
    }
    return nb::make_tuple(StrOf(PrintMessageText(net.GivenNetDef())), arrays, num_runs);
  });
}

nb::object ExplainNet(LoadedNet& net, const nb::dict& given, nb::handle format) {
  const std::string form = TextOf("format", format);
  return WithFile(net.file(), [&] {
    const std::vector<Tensor> inputs = net.TakeInputs(given);
    return StrOf(CallOnDevice(net.place(), [&] { return ExplanationOf(net.def(), inputs, form, net.Described()); }));
  });
}

using TextAndFile = std::pair<std::string, std::string>;

GivenNet GivenAs(const TextAndFile& given) { return {.text = given.first, .file = given.second}; }

// The tensors of arrays, which are copied. Needs the GIL.
std::map<std::string, Tensor> ParametersOf(const nb::dict& params) {
  std::map<std::string, Tensor> parameters;
  for (const nb::handle item : params.items()) {
    const nb::object key = item[0], value = item[1];
    const std::string name = Utf8Of(key);
    parameters[name] = TensorOf(value, {"parameter", name}).Clone();
  }
  return parameters;
}

// `params` are arrays beside what `init` fills.
std::shared_ptr<LoadedNet> Load(const TextAndFile& net, const TextAndFile& init, const nb::dict& params,
                                nb::handle threads, nb::handle device, nb::handle opt_level,
                                const nb::list& disable_pass, nb::handle seed) {
  const RunRequest request = RunRequestOf(threads, device, opt_level, disable_pass, seed);
  const std::map<std::string, Tensor> parameters = ParametersOf(params);
  return CallWithoutGil([&] {
    const RunOptions options = MakeRunOptions(request);
    const InOrderOf device({.device = options.device()});
    return std::make_shared<LoadedNet>(ReadModel(GivenAs(net), GivenAs(init), parameters), options);
  });
}

// What values the option of an optimizer takes.
std::string ValuesText(const google::protobuf::FieldDescriptor& option) {
  using Field = google::protobuf::FieldDescriptor;
  if (option.cpp_type() == Field::CPPTYPE_BOOL) return "True or False";
  if (option.cpp_type() == Field::CPPTYPE_INT64) return "a whole number";
  if (option.cpp_type() != Field::CPPTYPE_ENUM) return "a number";
  std::vector<std::string> values;
  for (int i = 0; i < option.enum_type()->value_count(); ++i) {
    values.push_back(StrCat("\"", InLowerCase(option.enum_type()->value(i)->name()), "\""));
  }
  return StrCat(Join(std::vector(values.begin(), values.end() - 1), ", "), " or ", values.back());
}

// Throws kInvalidArgument for what is no option of an optimizer, or no value of it.
void CheckOption(const std::string& name, const std::string& value) {
  const google::protobuf::Descriptor& type = *OptimizerDef::descriptor();
  std::vector<std::string> known;
  for (int i = 0; i < type.field_count(); ++i) known.push_back(type.field(i)->name());
  if (const google::protobuf::FieldDescriptor* option = type.FindFieldByName(name)) {
    try {
      OptimizerDef alone;
      return ParseMessageText(StrCat(name, ": ", value), "", &alone);
    } catch (const Error&) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat(name, " is ", InLowerCase(value), "; it must be ", ValuesText(*option)));
    }
  }
  throw Error(ErrorCode::kInvalidArgument, StrCat("the optimizer has no option \"", PrintableLine(name), "\"",
                                                  DidYouMean(name, known), "; its options are ", Join(known, ", ")));
}

// Does what Load does; `options_of_optimizer` has a text for each that is given.
std::shared_ptr<LoadedNet> Train(const TextAndFile& net, const TextAndFile& init, const nb::dict& params,
                                 nb::handle loss, const nb::list& parameters, const nb::dict& options_of_optimizer,
                                 nb::handle threads, nb::handle device, nb::handle opt_level,
                                 const nb::list& disable_pass, nb::handle seed) {
  const RunRequest request = RunRequestOf(threads, device, opt_level, disable_pass, seed);
  const std::map<std::string, Tensor> filled = ParametersOf(params);
  Training training{.loss = TextOf("loss", loss), .parameters = NamesOf("parameters", parameters)};
  std::string optimizer;
  for (const nb::handle item : options_of_optimizer.items()) {
    const std::string name = Utf8Of(item[0]), value = Utf8Of(item[1]);
    CheckOption(name, value);
    optimizer += StrCat(name, ": ", value, " ");
    if (const std::optional<double> number = NumberOfDecimal(value)) training.exact[name] = *number;
  }
  return CallWithoutGil([&] {
    const RunOptions options = MakeRunOptions(request);
    const InOrderOf device({.device = options.device()});
    ParseMessageText(optimizer, "the optimizer", &training.optimizer);
    return std::make_shared<LoadedNet>(ReadModel(GivenAs(net), GivenAs(init), filled), options, training);
  });
}

}  // namespace

void BindModel(nb::module_& module) {
  nb::class_<LoadedNet>(module, "LoadedNet")
      .def_prop_ro("name", &LoadedNet::name)
      .def_prop_ro("file", &LoadedNet::file)
      .def_prop_ro("inputs", &LoadedNet::inputs)
      .def_prop_ro("outputs", &LoadedNet::outputs)
      .def_prop_ro("parameters", &LoadedNet::parameters)
      .def_prop_ro("trained", &LoadedNet::trained)
      .def_prop_ro("state", &LoadedNet::state)
      .def("filled", &Filled)
      .def("operators",
           [](const LoadedNet& net) {
             return OperatorsOf(*Decomposed(std::make_shared<NetDef>(net.def().net), NetUse::kInference).net);
           })
      .def("call", &Call)
      .def("vjp", &Vjp)
      .def("read", &Read)
      .def("restore", &Restore)
      .def("text", &TextOfNet)
      .def("parts", &Parts)
      .def("set_num_runs", &LoadedNet::SetNumRuns)
      .def("explain", &ExplainNet, nb::arg(), Anything());
  module.def("load_net", &Load, nb::arg(), nb::arg(), nb::arg(), Anything(), Anything(), Anything(), nb::arg(),
             Anything());
  module.def("train_net", &Train, nb::arg(), nb::arg(), nb::arg(), Anything(), nb::arg(), nb::arg(), Anything(),
             Anything(), Anything(), nb::arg(), Anything());
}

}  // namespace stepnet::python
