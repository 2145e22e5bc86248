// What compiled code depends on: the version of the headers and the layout of the types in them. Every object that
// declares operators carries it as an ELF note, so that a library built for another version is known before any code
// of it runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stepnet/core/version.h"

namespace stepnet {

struct Abi {
  char version[16] = {};
  std::uint32_t layout = 0;

  bool operator==(const Abi&) const = default;
  std::string Text() const;  // "0.1.0 (layout 1a2b3c4d)"
};

// Sizes and alignments of types, as one number (FNV-1a).
template <typename... Types>
constexpr std::uint32_t LayoutOf() {
  std::uint32_t hash = 2166136261U;
  for (const std::size_t fact : {sizeof(Types)..., alignof(Types)...}) {
    hash = (hash ^ static_cast<std::uint32_t>(fact)) * 16777619U;
  }
  return hash;
}

constexpr Abi MakeAbi(std::string_view version, std::uint32_t layout) {
  Abi abi{.layout = layout};
  for (std::size_t i = 0; i < version.size() && i + 1 < sizeof(abi.version); ++i) abi.version[i] = version[i];
  return abi;
}

inline constexpr std::uint32_t kAbiNoteType = 1;

// It is what the System V ABI says of notes: sizes of name and content, type, name, content.
struct AbiNote {
  std::uint32_t name_bytes = sizeof(name);
  std::uint32_t content_bytes = sizeof(Abi);
  std::uint32_t type = kAbiNoteType;
  char name[8] = "StepNet";
  Abi abi;
};

}  // namespace stepnet
