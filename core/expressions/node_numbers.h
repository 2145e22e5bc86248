// NodeNumbers: numbers of the nodes of expressions. An array that nodes are looked for in by their addresses; that of
// few is on the stack: programs are made of formulas while somebody waits, and each walks over the nodes several times.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stepnet/core/expressions/expr.h"

namespace stepnet {

class NodeNumbers {
 public:
  NodeNumbers() = default;
  NodeNumbers(const NodeNumbers&) = delete;  // places_ may be in it
  NodeNumbers& operator=(const NodeNumbers&) = delete;

  // False, and nothing is changed, where the node has a number.
  bool Add(const ExprNode* node, int number) {
    if (2 * (num_nodes_ + 1) > places_.size()) Grow();
    Place& place = PlaceOf(node);
    if (place.node != nullptr) return false;
    place = {.node = node, .number = number};
    ++num_nodes_;
    return true;
  }

  // -1: it has none.
  int Find(const ExprNode* node) const { return PlaceOf(node).number; }

 private:
  struct Place {
    const ExprNode* node = nullptr;
    int number = -1;
  };

  // That of the node, or where it would be.
  Place& PlaceOf(const ExprNode* node) const {
    const std::uint64_t hash = reinterpret_cast<std::uintptr_t>(node) * 0x9e3779b97f4a7c15u;
    size_t at = hash >> 32 & (places_.size() - 1);
    while (places_[at].node != nullptr && places_[at].node != node) at = (at + 1) & (places_.size() - 1);
    return places_[at];
  }

  void Grow() {
    std::vector<Place> before(places_.begin(), places_.end());
    many_.assign(2 * before.size(), {});
    places_ = many_;
    for (const Place& place : before) {
      if (place.node != nullptr) PlaceOf(place.node) = place;
    }
  }

  std::array<Place, 64> few_ = {};  // a power of two, at most half of which are taken
  std::vector<Place> many_;
  std::span<Place> places_ = few_;
  size_t num_nodes_ = 0;
};

}  // namespace stepnet
