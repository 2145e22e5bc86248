#include "stepnet/core/workspace.h"

#include <mutex>
#include <set>

#include "stepnet/core/error.h"
#include "stepnet/core/memory_fill.h"
#include "stepnet/core/strings.h"

namespace stepnet {

const Tensor& Blob::GetTensor() const {
  if (!tensor_.defined()) {
    throw Error(ErrorCode::kTypeMismatch, StrCat("blob \"", name_, "\" holds ", Description(), ", a tensor is needed"));
  }
  return tensor_;
}

void Blob::SetTensor(Tensor tensor) {
  object_.reset();
  tensor_ = std::move(tensor);
}

void Blob::Reset() {
  object_.reset();
  tensor_ = Tensor();
}

const Tensor& Blob::MakeTensor(DType dtype, const Shape& shape, Device device) {
  object_.reset();
  const auto without_values = [&]() -> const Tensor& {
    if (device.IsHost() && dtype != DType::kString) FillUnwritten(tensor_.raw(), tensor_.size_bytes());
    return tensor_;
  };
  if (tensor_.defined() && tensor_.device() == device && tensor_.OwnsStorageAlone()) {
    if (tensor_.dtype() == dtype && tensor_.shape() == shape) return without_values();
    const bool strings = dtype == DType::kString || tensor_.dtype() == DType::kString;
    const std::int64_t capacity = tensor_.CapacityBytes();
    const bool fits = shape.size() <= capacity / DTypeBytes(dtype);
    // Memory that is far too large is given back: a blob that was once huge does not stay so.
    constexpr std::int64_t kMaxWaste = 8;
    if (!strings && fits && capacity <= kMaxWaste * shape.size() * DTypeBytes(dtype) + 4096) {
      tensor_ = tensor_.Reinterpreted(dtype, shape);
      return without_values();
    }
  }
  tensor_ = Tensor();  // first free, then allocate
  tensor_ = Tensor(dtype, shape, device);
  return tensor_;
}

std::string Blob::Description() const {
  if (tensor_.defined()) return tensor_.Description();
  return object_ != nullptr ? "an object that is no tensor" : "nothing";
}

Blob* Workspace::FindBlob(const std::string& name) const {
  {
    std::shared_lock lock(mutex_);
    const auto found = blobs_.find(name);
    if (found != blobs_.end()) return found->second.get();
  }
  return parent_ != nullptr ? parent_->FindBlob(name) : nullptr;
}

Blob& Workspace::GetBlob(const std::string& name) const {
  Blob* blob = FindBlob(name);
  if (blob == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, StrCat("no blob \"", name, "\"", DidYouMean(name, Blobs())));
  }
  return *blob;
}

Blob& Workspace::CreateBlob(const std::string& name) {
  if (Blob* blob = FindBlob(name)) return *blob;
  return CreateLocalBlob(name);
}

Blob& Workspace::CreateLocalBlob(const std::string& name) {
  std::unique_lock lock(mutex_);
  std::unique_ptr<Blob>& blob = blobs_[name];
  if (blob == nullptr) blob = std::make_unique<Blob>(name);
  return *blob;
}

bool Workspace::RemoveBlob(const std::string& name) {
  std::unique_lock lock(mutex_);
  return blobs_.erase(name) > 0;
}

std::vector<std::string> Workspace::LocalBlobs() const {
  std::shared_lock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, blob] : blobs_) names.push_back(name);
  return names;
}

std::vector<std::string> Workspace::Blobs() const {
  std::vector<std::string> names = LocalBlobs();
  if (parent_ == nullptr) return names;
  std::set<std::string> all(names.begin(), names.end());
  for (std::string& name : parent_->Blobs()) all.insert(std::move(name));
  return {all.begin(), all.end()};
}

}  // namespace stepnet
