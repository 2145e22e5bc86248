#include "stepnet/core/error.h"

#include <algorithm>
#include <new>
#include <utility>

#include "stepnet/core/printable.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// Names in untrusted files can hold anything and be as long as the file; a message must stay readable.
std::string Shown(const std::string& text) {
  constexpr size_t kMaxBytes = 600;
  if (text.size() <= kMaxBytes) return PrintableLine(text);
  return PrintableLine(text.substr(0, kMaxBytes)) + "…";
}

std::string PlaceText(const Place& place) {
  std::string text;
  if (place.op_index >= 0 || !place.op_text.empty()) {
    text += "\n  at op";
    if (place.op_index >= 0) text += StrCat(" ", place.op_index);
    if (!place.op_text.empty()) text += StrCat(" `", Shown(place.op_text), "`");
    if (!place.blobs.empty()) text += StrCat(" with ", Shown(place.blobs));
  }
  std::vector<std::string> within;
  if (!place.net.empty()) within.push_back(StrCat("net \"", Shown(place.net), "\""));
  if (place.step >= 0) within.push_back(StrCat("step ", place.step));
  if (!place.file.empty()) within.push_back(StrCat("file ", Shown(place.file)));
  if (!within.empty()) text += StrCat("\n  in ", Join(within, ", "));
  return text;
}

// Whether the place says no more than that of a file, which the error names already.
bool IsKnown(const Place& place, const std::string& message, const std::vector<Place>& places) {
  const bool is_file = place.net.empty() && place.op_index < 0 && place.op_text.empty() && place.step < 0;
  if (!is_file || place.file.empty()) return false;
  return message.starts_with(place.file + ":") || message.starts_with(place.file + " ") ||
         std::ranges::count(places, place.file, &Place::file) > 0;
}

}  // namespace

const char* ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid argument";
    case ErrorCode::kInvalidNet: return "invalid net";
    case ErrorCode::kShapeMismatch: return "shape mismatch";
    case ErrorCode::kTypeMismatch: return "type mismatch";
    case ErrorCode::kInputOutput: return "input/output error";
    case ErrorCode::kOutOfMemory: return "out of memory";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kFailed: return "operator failed";
    case ErrorCode::kInternal: return "internal error";
    case ErrorCode::kSyntaxError: return "syntax error";
  }
  return "error";
}

Error::Error(ErrorCode code, std::string message)
    : code_(code), message_(std::move(message)), text_(StrCat(ErrorCodeName(code), ": ", Printable(message_))) {}

Error& Error::At(Place place) {
  if (IsKnown(place, message_, places_)) return *this;
  text_ += PlaceText(place);
  places_.push_back(std::move(place));
  return *this;
}

Error CurrentError() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, "the system has no more memory to give");
  } catch (const std::exception& error) {
    return Error(ErrorCode::kFailed, error.what());
  } catch (...) {
    return Error(ErrorCode::kFailed, "an exception that is no std::exception");
  }
}

}  // namespace stepnet
