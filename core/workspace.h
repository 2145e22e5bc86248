// Workspace: names to blobs, with an optional parent whose blobs are visible too.
//
// Look-up and creation are safe from many threads. What a blob holds is not: nets order the operators that touch it.
#pragma once

#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <typeindex>
#include <vector>

#include "stepnet/core/tensor.h"

namespace stepnet {

// A named value: nothing, a tensor, or an object of any other type (the record of a recurrent run, for one).
class Blob {
 public:
  explicit Blob(std::string name) : name_(std::move(name)) {}
  Blob(const Blob&) = delete;
  Blob& operator=(const Blob&) = delete;

  const std::string& name() const { return name_; }
  bool HasTensor() const { return tensor_.defined(); }
  bool HasObject() const { return object_ != nullptr; }

  // Throws kTypeMismatch, naming the blob, when it holds no tensor.
  const Tensor& GetTensor() const;
  void SetTensor(Tensor tensor);

  // Null when the blob holds no T.
  template <typename T>
  std::shared_ptr<const T> GetObject() const {
    if (object_ == nullptr || type_ != std::type_index(typeid(T))) return nullptr;
    return std::static_pointer_cast<const T>(object_);
  }
  template <typename T>
  void SetObject(std::shared_ptr<const T> object) {
    tensor_ = Tensor();
    object_ = std::move(object);
    type_ = typeid(T);
  }
  void Reset();

  // A tensor of this dtype and shape on the device, to be overwritten: the one the blob holds where its memory fits and
  // nobody else shares it, otherwise a new one.
  const Tensor& MakeTensor(DType dtype, const Shape& shape, Device device = {});

  std::string Description() const;  // "float [32, 64]", "nothing", or the type of the object

 private:
  friend class BlobState;
  std::string name_;
  Tensor tensor_;
  std::shared_ptr<const void> object_;
  std::type_index type_ = typeid(void);
};

class Workspace {
 public:
  // `parent`, where given, must outlive the workspace.
  explicit Workspace(Workspace* parent = nullptr) : parent_(parent) {}
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // The blob of this name here or in a parent; null when there is none. Blobs stay where they are until removed.
  Blob* FindBlob(const std::string& name) const;
  // Throws kInvalidArgument, with the nearest name, when there is none.
  Blob& GetBlob(const std::string& name) const;
  bool HasBlob(const std::string& name) const { return FindBlob(name) != nullptr; }
  // The visible blob of this name, created here when there is none.
  Blob& CreateBlob(const std::string& name);
  // Does what CreateBlob does, without looking at parents.
  Blob& CreateLocalBlob(const std::string& name);
  // False when there is no such blob here. Nets that use the blob must have been destroyed before.
  bool RemoveBlob(const std::string& name);

  std::vector<std::string> LocalBlobs() const;  // sorted
  std::vector<std::string> Blobs() const;       // with those of the parents; sorted, no name twice

  // Shorthands. GetTensor throws as GetBlob and Blob::GetTensor do.
  const Tensor& GetTensor(const std::string& name) const { return GetBlob(name).GetTensor(); }
  void SetTensor(const std::string& name, Tensor tensor) { CreateBlob(name).SetTensor(std::move(tensor)); }

 private:
  Workspace* parent_;
  mutable std::shared_mutex mutex_;
  std::map<std::string, std::unique_ptr<Blob>> blobs_;
};

}  // namespace stepnet
