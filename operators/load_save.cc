// Load, Save, DBExists: blobs in files.
//
// The file's content decides how it is read; db_type decides how it is written. Everything is read before the first
// blob is set, and a file is replaced when all of it is written: a failure leaves blobs and files as they were.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "stepnet/core/allowed_files.h"
#include "stepnet/core/operator.h"
#include "stepnet/io/tensor_io.h"

namespace stepnet {
namespace {

constexpr const char* kPathDoc = "accepted for Caffe2's files: a relative path starts at the current folder either way";
constexpr const char* kTypeDoc = "minidb, or tensor_protos for one file of TensorProtos";

bool IsMiniDb(const std::string& db_type) { return db_type == "minidb" || db_type == "MiniDB"; }
bool IsTensorProtos(const std::string& db_type) {
  return db_type == "tensor_protos" || db_type == "protodb" || db_type == "ProtoDB";
}

using Problems = std::vector<NetProblem>;

void Report(std::string message, Problems* problems) { problems->push_back({.message = std::move(message)}); }

void CheckType(const std::string& db_type, Problems* problems) {
  if (IsMiniDb(db_type) || IsTensorProtos(db_type)) return;
  Report(StrCat("db_type is \"", db_type, "\"; minidb and tensor_protos are supported",
                db_type.empty() ? "" : " (Caffe2's convert_db makes a minidb of other databases)"),
         problems);
}

void CheckDistinct(const std::vector<std::string>& names, const char* what, Problems* problems) {
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (name.empty()) Report(StrCat(what, " holds an empty name"), problems);
    if (!seen.insert(name).second) Report(StrCat(what, " holds \"", name, "\" twice"), problems);
  }
}

// Caffe2 cuts off whatever precedes the prefix as well.
std::string WithoutPrefix(const std::string& name, const std::string& prefix) {
  const size_t found = prefix.empty() ? std::string::npos : name.find(prefix);
  return found == std::string::npos ? name : name.substr(found + prefix.size());
}

std::vector<std::string> FilesToLoad(const OperatorCall& op) {
  return op.Strings("dbs").empty() ? std::vector<std::string>{op.String("db")} : op.Strings("dbs");
}

void CheckLoad(const OperatorCall& op, Problems* problems) {
  if (op.HasArg("db_type")) CheckType(op.String("db_type"), problems);
  CheckDistinct(FilesToLoad(op), op.Strings("dbs").empty() ? "db" : "dbs", problems);
  const std::vector<std::string>& sources = op.Strings("source_blob_names");
  if (sources.empty()) return;
  CheckDistinct(sources, "source_blob_names", problems);
  if (static_cast<int>(sources.size()) != op.num_outputs()) {
    Report(StrCat("source_blob_names has ", sources.size(), " names, the operator has ", op.num_outputs(), " outputs"),
           problems);
  }
  if (!op.String("strip_prefix").empty()) Report("source_blob_names and strip_prefix exclude each other", problems);
  if (op.Bool("load_all")) Report("source_blob_names and load_all exclude each other", problems);
}

struct Loader {
  std::vector<std::string> files;
  std::string strip_prefix;
  std::string add_prefix;
  bool all = false;
  bool allow_incomplete = false;
  std::map<std::string, int> outputs;  // by the name that they have once prefixes are dealt with

  std::string NameOf(const std::string& name) const { return add_prefix + WithoutPrefix(name, strip_prefix); }

  void Run(OpHost& host) const {
    std::map<std::string, Tensor> loaded;
    std::vector<std::string> present;
    for (const std::string& file : files) {
      const NamedTensors tensors = ReadTensors(file, [&](const std::string& name) {
        if (present.empty() || present.back() != name) present.push_back(name);  // chunks come one after the other
        return all || outputs.contains(NameOf(name));
      });
      for (const auto& [name, tensor] : tensors) {
        if (loaded.emplace(NameOf(name), tensor).second) continue;
        throw Error(ErrorCode::kInputOutput,
                    StrCat("\"", NameOf(name), "\" is found twice in ", Join(files, ", "), ", once as \"", name, "\""));
      }
    }
    if (!all && !allow_incomplete) CheckComplete(loaded, present);
    for (auto& [name, tensor] : loaded) {
      const auto output = outputs.find(name);
      Blob& blob = output != outputs.end() ? host.Output(output->second) : host.workspace().CreateBlob(name);
      blob.SetTensor(tensor);
    }
  }

  void CheckComplete(const std::map<std::string, Tensor>& loaded, const std::vector<std::string>& present) const {
    std::vector<std::string> missing;
    for (const auto& [name, output] : outputs) {
      if (!loaded.contains(name)) missing.push_back(name);
    }
    if (missing.empty()) return;
    std::vector<std::string> names;
    for (const std::string& name : present) names.push_back(NameOf(name));
    constexpr size_t kShown = 10;
    const size_t count = missing.size();
    missing.resize(std::min(count, kShown));
    throw Error(
        ErrorCode::kInputOutput,
        StrCat(Join(files, ", "), count == 1 ? " has no blob \"" : " has no blobs \"", Join(missing, "\", \""), "\"",
               count > kShown ? StrCat(" and ", count - kShown, " more") : "", DidYouMean(missing.front(), names)));
  }
};

const Registration load =
    Operator("Load")
        .Doc(
            "Reads blobs from a file of tensors: minidb, TensorProtos, safetensors or .npz, which its content says. A "
            "blob of the file goes to the output of its name, once strip_prefix is taken off and add_prefix put before "
            "it.")
        .OptionalOutputs("blobs", "any shape and type")
        .Arg("absolute_path", false, kPathDoc)
        .Arg("add_prefix", "", "put before the names of the file")
        .Arg("strip_prefix", "", "taken off the names of the file, with what precedes it")
        .Arg("db", "", "path of the file")
        .Arg("dbs", std::vector<std::string>{}, "paths of several files, in place of db")
        .Arg("db_type", "", "minidb or tensor_protos, as Caffe2's nets say; the content of the file decides")
        .Arg("keep_device", false, "accepted for Caffe2's files: blobs are read to the CPU")
        .Arg("load_all", false, "read every blob of the file, also those that are no output")
        .Arg("allow_incomplete", false, "leave outputs as they are that the file does not have; an error otherwise")
        .Arg("source_blob_names", std::vector<std::string>{}, "names in the file, one an output, where they differ")
        .HasSideEffects()
        .OpensFiles(FilesToLoad)
        .Check(CheckLoad)
        .StopsGradient()
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                Loader loader{.files = AllowedFiles(op),
                              .strip_prefix = op.String("strip_prefix"),
                              .add_prefix = op.String("add_prefix"),
                              .all = op.Bool("load_all"),
                              .allow_incomplete = op.Bool("allow_incomplete")};
                const std::vector<std::string>& sources = op.Strings("source_blob_names");
                for (int i = 0; i < op.num_outputs(); ++i)
                  loader.outputs[sources.empty() ? op.outputs()[i] : sources[i]] = i;
                return [loader](const OpRun& run) { loader.Run(run.host()); };
              },
              .takes_blobs = true});

// The names under which the inputs are kept.
std::vector<std::string> NamesToSave(const OperatorCall& op) {
  if (!op.Strings("blob_name_overrides").empty()) return op.Strings("blob_name_overrides");
  std::vector<std::string> names;
  for (const std::string& input : op.inputs()) names.push_back(WithoutPrefix(input, op.String("strip_prefix")));
  return names;
}

void CheckSave(const OperatorCall& op, Problems* problems) {
  CheckType(op.String("db_type"), problems);
  if (op.String("db").empty()) Report("db is empty; it must be the path of the file", problems);
  const std::vector<std::string>& overrides = op.Strings("blob_name_overrides");
  if (!overrides.empty() && static_cast<int>(overrides.size()) != op.num_inputs()) {
    Report(
        StrCat("blob_name_overrides has ", overrides.size(), " names, the operator has ", op.num_inputs(), " inputs"),
        problems);
  }
  if (!overrides.empty() && !op.String("strip_prefix").empty()) {
    Report("blob_name_overrides and strip_prefix exclude each other", problems);
  }
  CheckDistinct(NamesToSave(op), overrides.empty() ? "what is saved" : "blob_name_overrides", problems);
}

const Registration save =
    Operator("Save")
        .Doc("Writes blobs to a minidb or a file of TensorProtos, which it replaces.")
        .Inputs("blobs", "any shape and type")
        .Arg("absolute_path", false, kPathDoc)
        .Arg("strip_prefix", "", "taken off the names, with what precedes it")
        .Arg("blob_name_overrides", std::vector<std::string>{}, "names in the file, one an input")
        .Arg("db", "", "path of the file")
        .Arg("db_type", "", kTypeDoc)
        .Arg("chunk_size", kElementsOfChunk, "elements of a record of a minidb", AtLeast(1))
        .HasSideEffects()
        .OpensFiles([](const OperatorCall& op) { return std::vector{op.String("db")}; })
        .Check(CheckSave)
        .StopsGradient()
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                return [names = NamesToSave(op), path = AllowedFiles(op).front(),
                        mini_db = IsMiniDb(op.String("db_type")), chunk = op.Int("chunk_size")](const OpRun& run) {
                  NamedTensors tensors;
                  for (int i = 0; i < run.num_inputs(); ++i)
                    tensors.emplace_back(names[i], run.host().Input(i).GetTensor());
                  if (mini_db) {
                    WriteMiniDb(tensors, path, chunk);
                  } else {
                    WriteTensorProtos(tensors, path);
                  }
                };
              },
              .takes_blobs = true});

const Registration db_exists =
    Operator("DBExists")
        .Doc("Whether a file is there.")
        .Output("exists", "bool [], one element")
        .Arg("absolute_path", false, kPathDoc)
        .RequiredArg("db_name", ArgumentType::kString, "path of the file")
        .Arg("db_type", "", kTypeDoc)
        .HasSideEffects()
        .OpensFiles([](const OperatorCall& op) { return std::vector{op.String("db_name")}; })
        .Check([](const OperatorCall& op, Problems* problems) { CheckType(op.String("db_type"), problems); })
        .Shapes([](const ShapeQuery&) { return std::vector<TensorInfo>{{.dtype = DType::kBool, .shape = Shape()}}; })
        .StopsGradient()
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [path = AllowedFiles(op).front()](const OpRun& run) {
            std::error_code ignored;
            *run.Out(0).As<bool>() = std::filesystem::exists(path, ignored);
          };
        });

}  // namespace
}  // namespace stepnet
