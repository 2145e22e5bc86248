// ProductChoices: what computes a product: which algorithm of cuBLASLt, chosen once for all products alike, in this
// process and, kept on disk, in the next ones.
#pragma once

#include <cublasLt.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/gpu/kept_files.h"

namespace stepnet {

// Safe to use from any thread.
class ProductChoices {
 public:
  explicit ProductChoices(std::string folder);

  using Choose = std::function<cublasLtMatmulAlgo_t()>;
  // Chooses for a product that `text` describes: all that the choice depends on but the GPU, which is `gpu`, "NVIDIA
  // H100 PCIe, 114 processors". Algorithms are of a version of the library, which is part of the key. Throws what
  // `choose` throws.
  cublasLtMatmulAlgo_t Get(int device, const std::string& gpu, const std::string& text, const Choose& choose);

  // What computes a product that cuBLASLt does not; for Texts.
  void Note(int device, const std::string& text, const std::string& choice);

  // "product of float, float32, [64, 512] x [512, 2048]: algorithm 71, tile 20, …" for those of a device, by text.
  std::vector<std::string> Texts(int device) const;

 private:
  const KeptFiles kept_;
  mutable std::mutex mutex_;
  std::map<std::pair<int, std::string>, cublasLtMatmulAlgo_t> chosen_;  // by device and text
  std::map<std::pair<int, std::string>, std::string> noted_;            // likewise
};

// Returns the choices that all of this process share.
ProductChoices& SharedProductChoices();

}  // namespace stepnet
