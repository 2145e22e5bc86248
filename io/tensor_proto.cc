#include "stepnet/io/tensor_proto.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

static_assert(std::endian::native == std::endian::little, "raw_data is little endian");

constexpr const char* kTensorType = "Tensor";
constexpr const char* kStringType = "std::string";

// The parts of a TensorProto that have been checked against each other.
struct Layout {
  std::string name;
  DType dtype = DType::kFloat;
  Shape shape;             // of the whole tensor
  std::int64_t begin = 0;  // of the elements that the proto holds
  std::int64_t end = 0;
  bool raw = false;       // values in raw_data
  bool bytes = false;     // values in byte_data
  bool bfloat16 = false;  // float values as bfloat16 in raw_data

  std::int64_t count() const { return end - begin; }
};

[[noreturn]] void Throw(const std::string& name, const std::string& message) {
  throw Error(ErrorCode::kInputOutput, StrCat("tensor \"", name, "\"", message));
}

// proto2 keeps enum values that it does not know among the unknown fields, and shows the default instead.
std::int64_t DataTypeNumber(const TensorProto& proto) {
  if (proto.has_data_type()) return proto.data_type();
  PrepareMessages();
  const auto& unknown = proto.GetReflection()->GetUnknownFields(proto);
  for (int i = 0; i < unknown.field_count(); ++i) {
    if (unknown.field(i).number() == TensorProto::kDataTypeFieldNumber &&
        unknown.field(i).type() == google::protobuf::UnknownField::TYPE_VARINT) {
      return static_cast<std::int64_t>(unknown.field(i).varint());
    }
  }
  return proto.data_type();
}

// Small integers that Caffe2 may have written as bytes instead of int32_data.
bool MayBeBytes(DType dtype) {
  return dtype == DType::kUInt8 || dtype == DType::kInt8 || dtype == DType::kBool || dtype == DType::kFloat16;
}

std::pair<const char*, std::int64_t> TypedField(const TensorProto& proto, DType dtype) {
  switch (dtype) {
    case DType::kFloat: return {"float_data", proto.float_data_size()};
    case DType::kDouble: return {"double_data", proto.double_data_size()};
    case DType::kInt64: return {"int64_data", proto.int64_data_size()};
    case DType::kString: return {"string_data", proto.string_data_size()};
    default: return {"int32_data", proto.int32_data_size()};
  }
}

void CheckBytes(const Layout& layout, const char* field, size_t size, std::int64_t element_bytes) {
  std::int64_t needed = 0;
  const bool overflow = __builtin_mul_overflow(layout.count(), element_bytes, &needed);
  if (overflow || needed != static_cast<std::int64_t>(size)) {
    Throw(layout.name, StrCat(" is ", layout.dtype, " ", layout.shape, ", of which ", layout.count(), " elements of ",
                              element_bytes, " bytes belong here; ", field, " has ", size, " bytes"));
  }
}

// Throws where more than one field has values: one of them would be lost.
void CheckOneField(const TensorProto& proto, const std::string& name) {
  const std::pair<const char*, bool> fields[] = {
      {"float_data", proto.float_data_size() > 0},   {"double_data", proto.double_data_size() > 0},
      {"int32_data", proto.int32_data_size() > 0},   {"int64_data", proto.int64_data_size() > 0},
      {"string_data", proto.string_data_size() > 0}, {"byte_data", !proto.byte_data().empty()},
      {"raw_data", !proto.raw_data().empty()}};
  const char* first = nullptr;
  for (const auto& [field, has_values] : fields) {
    if (!has_values) continue;
    if (first != nullptr)
      Throw(name, StrCat(" has values in ", first, " and in ", field, "; they belong in one field"));
    first = field;
  }
}

// Finds where the values are and that there are as many as the dimensions say.
Layout CheckedLayout(const TensorProto& proto, const std::string& name) {
  CheckOneField(proto, name);
  Layout layout;
  layout.name = name;
  try {
    layout.dtype = DTypeFromNumber(DataTypeNumber(proto));
    layout.shape = Shape(std::vector<std::int64_t>(proto.dims().begin(), proto.dims().end()));
  } catch (const Error& error) {
    Throw(name, StrCat(": ", error.message()));
  }
  layout.end = layout.shape.size();
  if (proto.has_segment()) {
    layout.begin = proto.segment().begin();
    layout.end = proto.segment().end();
    if (layout.begin < 0 || layout.end < layout.begin || layout.end > layout.shape.size()) {
      Throw(name, StrCat(" is ", layout.dtype, " ", layout.shape, ", its chunk has the elements [", layout.begin, ", ",
                         layout.end, ")"));
    }
  }
  layout.bfloat16 = proto.data_format() == TensorProto::FMT_BFLOAT16;
  if (proto.data_format() > TensorProto::FMT_BFLOAT16 || (layout.bfloat16 && layout.dtype != DType::kFloat)) {
    Throw(name, StrCat(" is ", layout.dtype, " with data_format ", proto.data_format(), ", which is not known"));
  }
  const auto [field, size] = TypedField(proto, layout.dtype);
  if (layout.bfloat16 || layout.dtype == DType::kBFloat16 || (proto.has_raw_data() && layout.dtype != DType::kString)) {
    layout.raw = true;
    CheckBytes(layout, "raw_data", proto.raw_data().size(), layout.bfloat16 ? 2 : DTypeBytes(layout.dtype));
  } else if (MayBeBytes(layout.dtype) && proto.has_byte_data() && size == 0) {
    layout.bytes = true;
    CheckBytes(layout, "byte_data", proto.byte_data().size(), DTypeBytes(layout.dtype));
  } else if (size != layout.count()) {
    Throw(name, StrCat(" is ", layout.dtype, " ", layout.shape, ", of which ", layout.count(),
                       " elements belong here; ", field, " has ", size));
  }
  return layout;
}

template <typename T, typename Field>
void CopyField(const Field& field, T* out) {
  std::copy(field.begin(), field.end(), out);
}

// int32_data holds every small type; what does not fit is an error, not another value.
template <typename T>
void CopyInts(const TensorProto& proto, const Layout& layout, T* out) {
  for (const std::int32_t value : proto.int32_data()) {
    if constexpr (std::is_same_v<T, bool>) {
      *out++ = value != 0;
    } else if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max()) {
      Throw(layout.name, StrCat(" is ", layout.dtype, " ", layout.shape, " and holds ", value));
    } else {
      *out++ = static_cast<T>(value);
    }
  }
}

// The bits of float16 values, as unsigned numbers; some writers have them signed.
void CopyHalves(const TensorProto& proto, const Layout& layout, Float16* out) {
  for (const std::int32_t value : proto.int32_data()) {
    if (value < std::numeric_limits<std::int16_t>::min() || value > std::numeric_limits<std::uint16_t>::max()) {
      Throw(layout.name, StrCat(" is float16 ", layout.shape, " and holds the bits ", value));
    }
    *out++ = {static_cast<std::uint16_t>(value)};
  }
}

void CopyRaw(const std::string& bytes, const Layout& layout, void* out) {
  if (layout.bfloat16) {
    for (std::int64_t i = 0; i < layout.count(); ++i) {
      BFloat16 value;
      std::memcpy(&value, bytes.data() + 2 * i, sizeof(value));
      static_cast<float*>(out)[i] = ToFloat(value);
    }
  } else if (layout.dtype == DType::kBool) {  // a bool is 0 or 1 in memory
    for (std::int64_t i = 0; i < layout.count(); ++i) static_cast<bool*>(out)[i] = bytes[i] != 0;
  } else if (!bytes.empty()) {
    std::memcpy(out, bytes.data(), bytes.size());
  }
}

// Copies the values of `proto` to their place in `tensor`, which has the layout's dtype and shape.
void CopyValues(const TensorProto& proto, const Layout& layout, const Tensor& tensor) {
  if (layout.raw || layout.bytes) {
    std::byte* out = static_cast<std::byte*>(tensor.raw()) + layout.begin * DTypeBytes(layout.dtype);
    return CopyRaw(layout.raw ? proto.raw_data() : proto.byte_data(), layout, out);
  }
  const std::int64_t at = layout.begin;
  switch (layout.dtype) {
    case DType::kFloat: return CopyField(proto.float_data(), tensor.data<float>() + at);
    case DType::kDouble: return CopyField(proto.double_data(), tensor.data<double>() + at);
    case DType::kInt64: return CopyField(proto.int64_data(), tensor.data<std::int64_t>() + at);
    case DType::kString: return CopyField(proto.string_data(), tensor.data<std::string>() + at);
    case DType::kInt32: return CopyField(proto.int32_data(), tensor.data<std::int32_t>() + at);
    case DType::kInt16: return CopyInts(proto, layout, tensor.data<std::int16_t>() + at);
    case DType::kUInt16: return CopyInts(proto, layout, tensor.data<std::uint16_t>() + at);
    case DType::kInt8: return CopyInts(proto, layout, tensor.data<std::int8_t>() + at);
    case DType::kUInt8: return CopyInts(proto, layout, tensor.data<std::uint8_t>() + at);
    case DType::kBool: return CopyInts(proto, layout, tensor.data<bool>() + at);
    case DType::kFloat16: return CopyHalves(proto, layout, tensor.data<Float16>() + at);
    case DType::kBFloat16: break;  // always raw
  }
}

// The elements [begin, end) as they are written.
void AddValues(const Tensor& tensor, std::int64_t begin, std::int64_t end, TensorProto* proto) {
  const auto add = [&](auto zero, auto* field) {
    const auto* data = tensor.data<decltype(zero)>();
    field->Add(data + begin, data + end);
  };
  switch (tensor.dtype()) {
    case DType::kFloat: return add(float{}, proto->mutable_float_data());
    case DType::kDouble: return add(double{}, proto->mutable_double_data());
    case DType::kInt64: return add(std::int64_t{}, proto->mutable_int64_data());
    case DType::kString: return add(std::string(), proto->mutable_string_data());
    case DType::kInt32: return add(std::int32_t{}, proto->mutable_int32_data());
    case DType::kInt16: return add(std::int16_t{}, proto->mutable_int32_data());
    case DType::kUInt16: return add(std::uint16_t{}, proto->mutable_int32_data());
    case DType::kInt8: return add(std::int8_t{}, proto->mutable_int32_data());
    case DType::kUInt8: return add(std::uint8_t{}, proto->mutable_int32_data());
    case DType::kBool: return add(bool{}, proto->mutable_int32_data());
    case DType::kFloat16:
      for (std::int64_t i = begin; i < end; ++i) proto->add_int32_data(tensor.data<Float16>()[i].bits);
      return;
    case DType::kBFloat16:
      proto->set_raw_data(tensor.data<BFloat16>() + begin, static_cast<size_t>(end - begin) * sizeof(BFloat16));
      return;
  }
}

TensorProto HeaderOf(const std::string& name, const Tensor& tensor) {
  TensorProto proto;
  proto.set_name(name);
  for (const std::int64_t dim : tensor.shape().dims()) proto.add_dims(dim);
  proto.set_data_type(static_cast<TensorProto::DataType>(NumberFromDType(tensor.dtype())));
  return proto;
}

bool HoldsTensor(const BlobProto& blob) {
  return blob.has_tensor() && (blob.type() == kTensorType || blob.type().empty());
}

}  // namespace

DType DTypeFromNumber(std::int64_t data_type) {
  switch (data_type) {
    case TensorProto::FLOAT: return DType::kFloat;
    case TensorProto::DOUBLE: return DType::kDouble;
    case TensorProto::FLOAT16: return DType::kFloat16;
    case TensorProto::BFLOAT16: return DType::kBFloat16;
    case TensorProto::INT8: return DType::kInt8;
    case TensorProto::INT16: return DType::kInt16;
    case TensorProto::INT32: return DType::kInt32;
    case TensorProto::INT64: return DType::kInt64;
    case TensorProto::BYTE:
    case TensorProto::UINT8: return DType::kUInt8;
    case TensorProto::UINT16: return DType::kUInt16;
    case TensorProto::BOOL: return DType::kBool;
    case TensorProto::STRING: return DType::kString;
    default: break;
  }
  std::string name;
  if (data_type >= 0 && data_type <= std::numeric_limits<int>::max() &&
      TensorProto::DataType_IsValid(static_cast<int>(data_type))) {
    name = StrCat(" (", TensorProto::DataType_Name(static_cast<TensorProto::DataType>(data_type)), ")");
  }
  throw Error(ErrorCode::kTypeMismatch, StrCat("data type ", data_type, name, " is not supported"));
}

int NumberFromDType(DType dtype) {
  switch (dtype) {
    case DType::kFloat: return TensorProto::FLOAT;
    case DType::kDouble: return TensorProto::DOUBLE;
    case DType::kFloat16: return TensorProto::FLOAT16;
    case DType::kBFloat16: return TensorProto::BFLOAT16;
    case DType::kInt8: return TensorProto::INT8;
    case DType::kInt16: return TensorProto::INT16;
    case DType::kInt32: return TensorProto::INT32;
    case DType::kInt64: return TensorProto::INT64;
    case DType::kUInt8: return TensorProto::UINT8;
    case DType::kUInt16: return TensorProto::UINT16;
    case DType::kBool: return TensorProto::BOOL;
    case DType::kString: return TensorProto::STRING;
  }
  return TensorProto::UNDEFINED;
}

Tensor TensorFromProto(const TensorProto& proto) {
  const Layout layout = CheckedLayout(proto, proto.name());
  if (layout.count() != layout.shape.size()) {
    Throw(layout.name, StrCat(" is ", layout.dtype, " ", layout.shape, ", only its elements [", layout.begin, ", ",
                              layout.end, ") are here"));
  }
  Tensor tensor(layout.dtype, layout.shape);
  CopyValues(proto, layout, tensor);
  return tensor;
}

TensorProto TensorToProto(const std::string& name, const Tensor& tensor) {
  TensorProto proto = HeaderOf(name, tensor);
  AddValues(tensor.To({}), 0, tensor.size(), &proto);
  return proto;
}

TensorProto ChunkToProto(const std::string& name, const Tensor& tensor, std::int64_t begin, std::int64_t end) {
  TensorProto proto = HeaderOf(name, tensor);
  proto.mutable_segment()->set_begin(begin);
  proto.mutable_segment()->set_end(end);
  AddValues(tensor, begin, end, &proto);
  return proto;
}

Tensor TensorFromBlob(const BlobProto& blob) {
  if (HoldsTensor(blob)) return TensorFromProto(blob.tensor());
  if (blob.type() == kStringType) return Tensor::Of<std::string>(Shape(), {blob.content()});
  if (blob.type().empty()) Throw(blob.name(), " has neither a tensor nor a type: this is no tensor, or damaged");
  Throw(blob.name(), StrCat(": the blob holds a \"", blob.type(), "\" and no tensor"));
}

BlobProto TensorToBlob(const std::string& name, const Tensor& tensor) {
  BlobProto blob;
  blob.set_name(name);
  blob.set_type(kTensorType);
  *blob.mutable_tensor() = TensorToProto(name, tensor);
  return blob;
}

void ChunkCollector::Add(const TensorProto& proto, const std::string& name) {
  const Layout layout = CheckedLayout(proto, name);
  const auto [at, is_new] = index_.emplace(name, entries_.size());
  if (is_new) {
    entries_.push_back({.found = {.name = name, .info = {.dtype = layout.dtype, .shape = layout.shape}, .place = {}}});
    entries_.back().found.place = find_place_(name, layout.dtype, layout.shape);
  }
  const FoundTensor& found = entries_[at->second].found;
  if (found.info.dtype != layout.dtype || found.info.shape != layout.shape) {
    Throw(name, StrCat(" is ", found.info.Description(), " in one chunk and ", layout.dtype, " ", layout.shape,
                       " in another"));
  }
  std::map<std::int64_t, std::int64_t>& parts = entries_[at->second].parts;
  const auto next = parts.lower_bound(layout.begin);
  const bool overlaps = (next != parts.end() && next->first < layout.end) ||
                        (next != parts.begin() && std::prev(next)->second > layout.begin);
  if (overlaps || (!is_new && layout.count() == 0)) {
    Throw(name, StrCat(" comes twice: its elements [", layout.begin, ", ", layout.end, ")"));
  }
  parts.emplace(layout.begin, layout.end);
  if (found.place.defined()) CopyValues(proto, layout, found.place);
}

void ChunkCollector::Add(const BlobProto& blob, const std::string& name) {
  if (HoldsTensor(blob)) return Add(blob.tensor(), name);
  if (!index_.emplace(name, entries_.size()).second) Throw(name, " comes twice");
  const Tensor value = TensorFromBlob(blob);
  const Tensor place = find_place_(name, value.dtype(), value.shape());
  entries_.push_back({.found = {.name = name, .info = {.dtype = value.dtype(), .shape = value.shape()}, .place = place},
                      .parts = {{0, 1}}});
  if (place.defined()) CopyElements(value.View(), place.View());
}

FoundTensors ChunkCollector::Take() {
  FoundTensors tensors;
  for (Entry& entry : entries_) {
    std::int64_t covered = 0;
    for (const auto& [begin, end] : entry.parts) {
      if (begin > covered) break;
      covered = end;
    }
    if (covered != entry.found.info.shape.size()) {
      Throw(entry.found.name,
            StrCat(" is ", entry.found.info.Description(), ", and no chunk has its element ", covered));
    }
    tensors.push_back(std::move(entry.found));
  }
  return tensors;
}

}  // namespace stepnet
