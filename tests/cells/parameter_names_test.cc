#include "stepnet/cells/parameter_names.h"

#include <gtest/gtest.h>

namespace stepnet {
namespace {

const std::vector<std::string> kGru = {"weight_ih", "weight_hh"};

TEST(ParameterNames, AreThoseOfPyTorchForParametersOfLayersAlone) {
  EXPECT_EQ(TorchNameOf("weight_ih"), "weight_ih_l0");
  EXPECT_EQ(TorchNameOf("reverse/bias_hh"), "bias_hh_l0_reverse");
  EXPECT_EQ(TorchNameOf("layer12/weight_hr"), "weight_hr_l12");
  EXPECT_EQ(TorchNameOf("layer1/reverse/weight_ih"), "weight_ih_l1_reverse");
  EXPECT_EQ(TorchNameOf("peephole"), "peephole");
  EXPECT_EQ(TorchNameOf("layer0/w"), "layer0/w");
}

TEST(ParameterNames, AreFoundBehindEachPrefixThatHasAllOfThem) {
  const std::vector<OtherNames> found =
      FindOtherNames({"a.weight_ih", "a.weight_hh", "b.weight_ih", "c.rnn.weight_ih_l0", "c.rnn.weight_hh_l0",
                      "d.weight_hh_l0", "weight_hh"},
                     kGru);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].prefix, "a.");
  EXPECT_FALSE(found[0].are_torch);
  EXPECT_EQ(found[1].prefix, "c.rnn.");
  EXPECT_TRUE(found[1].are_torch);
  EXPECT_EQ(OtherNamesText(found, kGru[0]),
            "all of its parameters are there under other names, \"a.weight_ih\" or \"c.rnn.weight_ih_l0\" for "
            "\"weight_ih\": stepnet.load_params(PATH, cell=CELL, prefix=\"a.\") reads them");
}

TEST(ParameterNames, OfPyTorchNeedNoPrefix) {
  const std::vector<OtherNames> found = FindOtherNames({"weight_ih_l0", "weight_hh_l0"}, kGru);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].prefix, "");
  EXPECT_EQ(NameIn(found[0], "weight_hh"), "weight_hh_l0");
}

TEST(ParameterNames, AreNotFoundWhereOneIsMissingOrTheyAreItsOwn) {
  EXPECT_TRUE(FindOtherNames({"a.weight_ih", "b.weight_hh"}, kGru).empty());
  EXPECT_TRUE(FindOtherNames({"weight_ih", "weight_hh"}, kGru).empty());
  EXPECT_TRUE(FindOtherNames({"a.w"}, {}).empty());
  EXPECT_TRUE(FindOtherNames({"weight_ih_l0", "weight_hh_l0", "weight_ih"}, kGru).empty()) << "which is there twice";
  EXPECT_EQ(OtherNamesText({}, "w"), "");
}

}  // namespace
}  // namespace stepnet
