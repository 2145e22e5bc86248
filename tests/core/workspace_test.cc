#include "stepnet/core/workspace.h"

#include <thread>

#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

using Names = std::vector<std::string>;

TEST(Blob, HoldsATensorOrAnObjectOrNothing) {
  Blob blob("b");
  EXPECT_EQ(blob.Description(), "nothing");
  ExpectError([&] { blob.GetTensor(); }, "type mismatch: blob \"b\" holds nothing, a tensor is needed");
  blob.SetTensor(Tensor::Of<float>({1}, {3}));
  EXPECT_EQ(blob.Description(), "float [1]");
  EXPECT_FALSE(blob.HasObject());
  blob.SetObject<std::string>(std::make_shared<const std::string>("text"));
  EXPECT_FALSE(blob.HasTensor());
  EXPECT_EQ(*blob.GetObject<std::string>(), "text");
  EXPECT_EQ(blob.GetObject<int>(), nullptr);
  ExpectError([&] { blob.GetTensor(); },
              "type mismatch: blob \"b\" holds an object that is no tensor, a tensor is needed");
  blob.SetTensor(Tensor::Of<float>({1}, {3}));
  EXPECT_EQ(blob.GetObject<std::string>(), nullptr);
  blob.Reset();
  EXPECT_FALSE(blob.HasTensor());
}

TEST(Blob, MakesTensorsInMemoryOfItsOwn) {
  Blob blob("b");
  const void* memory = blob.MakeTensor(DType::kFloat, {1000}).raw();
  EXPECT_EQ(blob.MakeTensor(DType::kFloat, {1000}).raw(), memory);
  EXPECT_EQ(blob.MakeTensor(DType::kDouble, {10, 50}).raw(), memory);
  EXPECT_EQ(blob.GetTensor().Description(), "double [10, 50]");
  EXPECT_EQ(blob.MakeTensor(DType::kFloat, {1000}).raw(), memory);  // the memory is still all there
  EXPECT_NE(blob.MakeTensor(DType::kFloat, {1001}).size_bytes(), 4000);
  const std::int64_t before = TensorMemory().current;
  blob.MakeTensor(DType::kFloat, {1000000});
  blob.MakeTensor(DType::kFloat, {1});  // memory that is far too large is given back
  EXPECT_LT(TensorMemory().current, before + 1000);
}

TEST(Blob, LeavesMemoryAloneThatOthersHold) {
  Blob blob("b");
  blob.MakeTensor(DType::kFloat, {4}).data<float>()[0] = 7;
  const Tensor held = blob.GetTensor();
  blob.MakeTensor(DType::kFloat, {4}).data<float>()[0] = 8;
  EXPECT_EQ(held.data<float>()[0], 7);
}

TEST(Blob, StringsGetMemoryOfTheirOwn) {
  Blob blob("b");
  blob.MakeTensor(DType::kFloat, {1000});
  blob.MakeTensor(DType::kString, {2}).data<std::string>()[1] = std::string(100, 'x');
  blob.MakeTensor(DType::kUInt8, {4});
  EXPECT_EQ(blob.GetTensor().Description(), "uint8 [4]");
}

TEST(Blob, HugeShapesAreErrors) {
  Blob blob("b");
  blob.MakeTensor(DType::kFloat, {4});
  EXPECT_THROW(blob.MakeTensor(DType::kDouble, {std::int64_t{1} << 61}), Error);
  EXPECT_FALSE(blob.HasTensor());
  EXPECT_EQ(blob.MakeTensor(DType::kFloat, {2}).size(), 2);
}

TEST(Workspace, FindsAndCreatesBlobs) {
  Workspace workspace;
  EXPECT_EQ(workspace.FindBlob("x"), nullptr);
  Blob& x = workspace.CreateBlob("x");
  EXPECT_EQ(x.name(), "x");
  EXPECT_EQ(&workspace.CreateBlob("x"), &x);
  EXPECT_EQ(&workspace.GetBlob("x"), &x);
  workspace.SetTensor("hidden", Tensor::Of<float>({1}, {3}));
  EXPECT_EQ(workspace.GetTensor("hidden").data<float>()[0], 3);
  EXPECT_EQ(workspace.LocalBlobs(), (Names{"hidden", "x"}));
  ExpectError([&] { workspace.GetBlob("hiden"); }, "invalid argument: no blob \"hiden\"; did you mean \"hidden\"?");
  EXPECT_TRUE(workspace.RemoveBlob("x"));
  EXPECT_FALSE(workspace.RemoveBlob("x"));
  EXPECT_FALSE(workspace.HasBlob("x"));
}

TEST(Workspace, SeesItsParentsBlobs) {
  Workspace outer;
  outer.SetTensor("shared", Tensor::Of<float>({1}, {1}));
  Workspace middle(&outer);
  Workspace inner(&middle);
  EXPECT_EQ(inner.FindBlob("shared"), outer.FindBlob("shared"));
  EXPECT_EQ(&inner.CreateBlob("shared"), outer.FindBlob("shared"));
  inner.CreateBlob("own");
  EXPECT_FALSE(outer.HasBlob("own"));
  Blob& hides = inner.CreateLocalBlob("shared");
  EXPECT_NE(&hides, outer.FindBlob("shared"));
  EXPECT_EQ(inner.FindBlob("shared"), &hides);
  EXPECT_EQ(inner.LocalBlobs(), (Names{"own", "shared"}));
  outer.CreateBlob("another");
  EXPECT_EQ(inner.Blobs(), (Names{"another", "own", "shared"}));
  EXPECT_FALSE(inner.RemoveBlob("another"));  // only what is here
  ExpectError([&] { inner.GetBlob("anothr"); }, "invalid argument: no blob \"anothr\"; did you mean \"another\"?");
}

TEST(Workspace, BlobsStayWhereTheyAre) {
  Workspace workspace;
  Blob& first = workspace.CreateBlob("first");
  for (int i = 0; i < 1000; ++i) workspace.CreateBlob(StrCat("blob", i));
  EXPECT_EQ(workspace.FindBlob("first"), &first);
}

TEST(Workspace, ThreadsCreateAndFindAtTheSameTime) {
  Workspace outer;
  Workspace workspace(&outer);
  constexpr int kThreads = 4;
  constexpr int kBlobs = 300;
  std::vector<std::vector<Blob*>> seen(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kBlobs; ++i) {
          seen[t].push_back(&workspace.CreateBlob(StrCat("blob", i)));
          workspace.FindBlob(StrCat("blob", (i * 7) % kBlobs));
          if (i % 50 == 0) workspace.Blobs();
        }
      });
    }
  }
  for (int t = 1; t < kThreads; ++t) EXPECT_EQ(seen[t], seen[0]);
  EXPECT_EQ(workspace.LocalBlobs().size(), static_cast<size_t>(kBlobs));
}

}  // namespace
}  // namespace stepnet
