#include "op_test.h"

namespace stepnet {
namespace {

OpTest TileBy(int tiles, int axis) { return OpTest("Tile").Arg("tiles", tiles).Arg("axis", axis); }

TEST(Tile, RepeatsAlongADimension) {
  TileBy(2, 0).Input("x", {2, 2}, {1, 2, 3, 4}).Gives({4, 2}, {1, 2, 3, 4, 1, 2, 3, 4});
  TileBy(2, -1).Input("x", {2, 2}, {1, 2, 3, 4}).Gives({2, 4}, {1, 2, 1, 2, 3, 4, 3, 4});
  TileBy(3, 0)
      .Input("x", Tensor::Of<std::string>({1}, {"a"}))
      .GivesExactly(Tensor::Of<std::string>({3}, {"a", "a", "a"}));
}

TEST(Tile, GradientMatchesDifferences) {
  TileBy(3, 1).Random("x", {2, 2, 2}, 1).GradientMatches();
  TileBy(2, 0).Random("x", {2, 3}, 1).GradientMatches();
}

TEST(Tile, AcceptsNoElementsAndNoTiles) {
  TileBy(2, 1).Input("x", {0, 2}, {}).Gives({0, 4}, {});
  TileBy(0, 1).Input("x", {1, 2}, {1, 2}).Gives({1, 0}, {});
}

TEST(Tile, RefusesBadArguments) {
  ExpectError([] { TileBy(2, 1).Random("x", {2}, 1).Run(); },
              "invalid argument: axis is 1, but the tensor is [2] and has 1 dimension\n"
              "  at op 0 `output0 = Tile(x)` with x float [2]\n"
              "  in net \"test\"");
  ExpectError([] { TileBy(-1, 0).Random("x", {2}, 1).Run(); }, "…Tile: tiles is -1, must be at least 0");
  ExpectError([] { OpTest("TileGradient").Arg("tiles", 2).Random("dy", {3}, 1).Run(); },
              "…dy is float [3]; dimension 0 is no multiple of 2 tiles");
  ExpectError([] { OpTest("TileGradient").Arg("tiles", 0).Random("dy", {3}, 1).Run(); },
              "…TileGradient with 0 tiles: nothing says what shape x has");
}

}  // namespace
}  // namespace stepnet
