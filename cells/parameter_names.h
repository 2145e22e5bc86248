// The parameters of a cell under other names: those of a model with the cell in it, or PyTorch's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stepnet {

// What recurrent layers of PyTorch call a parameter of those of stepnet.layers: weight_ih_l1_reverse is
// layer1/reverse/weight_ih. The name itself of any other parameter.
std::string TorchNameOf(std::string_view parameter);

// How the parameters of a cell are called elsewhere.
struct OtherNames {
  std::string prefix = {};  // "encoder.lstm.": what stands before each
  bool are_torch = false;   // whether TorchNameOf is behind it, and not the cell's own name
};
std::string NameIn(const OtherNames& others, std::string_view parameter);

// Each way in which all of the cell's `parameters` are among `names` under other names, in the order of `names`.
std::vector<OtherNames> FindOtherNames(const std::vector<std::string>& names,
                                       const std::vector<std::string>& parameters);

// What they are called there, and how Python reads them, for messages; "" where there is none.
std::string OtherNamesText(const std::vector<OtherNames>& found, const std::string& parameter);

}  // namespace stepnet
