#include "stepnet/gpu/cuda/product_choices.h"

#include <cstdint>
#include <cstring>
#include <optional>

#include "stepnet/core/strings.h"
#include "stepnet/gpu/cuda/cublas_lt.h"
#include "stepnet/gpu/cuda/product_kernel.h"

namespace stepnet {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{8} << 20;  // of some hundred a choice
// Known at once. Runs of ever new sizes meet ever new products; a choice that is forgotten is read, or made, again.
constexpr size_t kMaxChoices = 4096;

// The library says that its algorithms may be kept as their bytes, for the same version.
std::string BytesOf(const cublasLtMatmulAlgo_t& algorithm) {
  return {reinterpret_cast<const char*>(&algorithm), sizeof(algorithm)};
}

std::string TextOf(const cublasLtMatmulAlgo_t& algorithm) {
  const auto number = [&](cublasLtMatmulAlgoConfigAttributes_t attribute) -> std::string {
    std::int32_t value = 0;
    size_t written = 0;
    const cublasStatus_t status = TheCublasLt().algorithm_get(&algorithm, attribute, &value, sizeof(value), &written);
    return status == CUBLAS_STATUS_SUCCESS ? StrCat(value) : "unknown";
  };
  return StrCat("algorithm ", number(CUBLASLT_ALGO_CONFIG_ID), ", tile ", number(CUBLASLT_ALGO_CONFIG_TILE_ID),
                ", stages ", number(CUBLASLT_ALGO_CONFIG_STAGES_ID), ", split-K ",
                number(CUBLASLT_ALGO_CONFIG_SPLITK_NUM));
}

}  // namespace

ProductChoices::ProductChoices(std::string folder) : kept_(std::move(folder), ".product", kMaxBytes) {}

cublasLtMatmulAlgo_t ProductChoices::Get(int device, const std::string& gpu, const std::string& text,
                                         const Choose& choose) {
  const std::lock_guard lock(mutex_);
  const auto found = chosen_.find({device, text});
  if (found != chosen_.end()) return found->second;
  const std::string key =
      StrCat("cuBLASLt ", TheCublasLt().version(), ", scratch ", ProductKernel::kScratchBytes, "\n", gpu, "\n", text);
  cublasLtMatmulAlgo_t algorithm = {};
  const std::optional<std::vector<std::string>> kept = kept_.Read(key);
  if (kept && kept->size() == 1 && kept->front().size() == sizeof(algorithm)) {
    std::memcpy(&algorithm, kept->front().data(), sizeof(algorithm));
  } else {
    algorithm = choose();
    kept_.Keep(key, {BytesOf(algorithm)});
  }
  if (chosen_.size() == kMaxChoices) chosen_.clear();
  chosen_.emplace(std::pair(device, text), algorithm);
  return algorithm;
}

void ProductChoices::Note(int device, const std::string& text, const std::string& choice) {
  const std::lock_guard lock(mutex_);
  if (noted_.size() == kMaxChoices) noted_.clear();
  noted_.emplace(std::pair(device, text), choice);
}

std::vector<std::string> ProductChoices::Texts(int device) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> texts;
  for (const auto& [key, algorithm] : chosen_) {
    if (key.first == device) texts.push_back(StrCat(key.second, ": ", TextOf(algorithm)));
  }
  for (const auto& [key, choice] : noted_) {
    if (key.first == device) texts.push_back(StrCat(key.second, ": ", choice));
  }
  return texts;
}

ProductChoices& SharedProductChoices() {
  static ProductChoices& choices = *new ProductChoices(DefaultCacheFolder());
  return choices;
}

}  // namespace stepnet
