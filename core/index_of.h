// IndexOf: where something stands in a list.
#pragma once

#include <algorithm>
#include <functional>

namespace stepnet {

// The index of the first of `items` that is `value`, or whose `field` is (as in std::ranges::find); -1: there is none.
template <typename Items, typename Value, typename Field = std::identity>
int IndexOf(const Items& items, const Value& value, Field field = {}) {
  const auto found = std::ranges::find(items, value, field);
  return found == items.end() ? -1 : static_cast<int>(found - items.begin());
}

}  // namespace stepnet
