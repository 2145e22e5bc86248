#include "stepnet/cells/parameter_names.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "stepnet/core/strings.h"

namespace stepnet {

std::string TorchNameOf(std::string_view parameter) {
  constexpr std::string_view kKinds[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"};
  constexpr std::string_view kLayer = "layer", kReverse = "reverse/";
  std::string_view kind = parameter, layer = "0";
  if (const size_t slash = kind.find('/'); kind.starts_with(kLayer) && slash != std::string_view::npos) {
    layer = kind.substr(kLayer.size(), slash - kLayer.size());
    kind.remove_prefix(slash + 1);
  }
  const bool is_reverse = kind.starts_with(kReverse);
  if (is_reverse) kind.remove_prefix(kReverse.size());
  if (std::ranges::find(kKinds, kind) == std::end(kKinds)) return std::string(parameter);
  return StrCat(kind, "_l", layer, is_reverse ? "_reverse" : "");
}

std::string NameIn(const OtherNames& others, std::string_view parameter) {
  return others.prefix + (others.are_torch ? TorchNameOf(parameter) : std::string(parameter));
}

std::vector<OtherNames> FindOtherNames(const std::vector<std::string>& names,
                                       const std::vector<std::string>& parameters) {
  std::vector<OtherNames> found;
  if (parameters.empty()) return found;
  const std::string& first = parameters.front();
  const std::set<std::string_view> known(names.begin(), names.end());
  for (const std::string& name : names) {
    for (const bool are_torch : {false, true}) {
      const std::string end = are_torch ? TorchNameOf(first) : first;
      if (!name.ends_with(end) || name == first || (are_torch && end == first)) continue;
      const OtherNames others{.prefix = name.substr(0, name.size() - end.size()), .are_torch = are_torch};
      const auto is_there = [&](const std::string& parameter) { return known.contains(NameIn(others, parameter)); };
      const auto is_there_twice = [&](const std::string& parameter) {
        return are_torch && TorchNameOf(parameter) != parameter && known.contains(others.prefix + parameter);
      };
      if (std::ranges::none_of(parameters, is_there_twice) && std::ranges::all_of(parameters, is_there)) {
        found.push_back(others);
      }
    }
  }
  return found;
}

std::string OtherNamesText(const std::vector<OtherNames>& found, const std::string& parameter) {
  if (found.empty()) return "";
  std::vector<std::string> names;
  for (const OtherNames& others : found) names.push_back(StrCat('"', NameIn(others, parameter), '"'));
  return StrCat("all of its parameters are there under other names, ", Join(names, " or "), " for \"", parameter,
                "\": stepnet.load_params(PATH, cell=CELL, prefix=\"", found.front().prefix, "\") reads them");
}

}  // namespace stepnet
