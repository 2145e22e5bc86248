// A library of operators for --op_library, as users write them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "stepnet/core/formulas/formula.h"

namespace stepnet {
namespace {

const Registration half = Operator("test.Half")
                              .Doc("y = x / 2, element by element.")
                              .Input("x", "any shape, float")
                              .Output("y", "the shape of x")
                              .Shapes(SameAsInput(0))
                              .InPlace({{0, 0}})
                              .Elementwise()
                              .Gradient("test.Half", {"dy"}, {"dx"})
                              .Cpu([](const OperatorCall&) -> RunFn {
                                return [](const OpRun& run) {
                                  if (run.In(0).dtype == DType::kDouble) {
                                    for (std::int64_t i = 0; i < run.In(0).size(); ++i)
                                      run.Out(0).As<double>()[i] = run.In(0).As<double>()[i] / 2;
                                  } else {
                                    for (std::int64_t i = 0; i < run.In(0).size(); ++i)
                                      run.Out(0).As<float>()[i] = run.In(0).As<float>()[i] / 2;
                                  }
                                };
                              });

// Its gradient is wrong: twice what it should be.
const Registration wrong_gradient = Operator("test.WrongGradient")
                                        .Doc("y = x / 2 with the gradient of y = x.")
                                        .Input("x", "any shape")
                                        .Output("y", "the shape of x")
                                        .Shapes(SameAsInput(0))
                                        .Gradient([](GradientBuilder& g) { g.SetDense(0, g.GO(0)); })
                                        .Cpu([](const OperatorCall& op) -> RunFn {
                                          return FindOperator("test.Half")->FindKernel(DeviceKind::kCpu)->make(op);
                                        });

const Registration broken_gradient =
    Operator("test.BrokenGradient")
        .Doc("Its gradient is an operator that there is not.")
        .Input("x", "any shape")
        .Output("y", "the shape of x")
        .Shapes(SameAsInput(0))
        .Gradient([](GradientBuilder& g) { g.Add({.type = "test.Hafl", .inputs = {g.GO(0)}, .outputs = {g.GI(0)}}); });

const Registration throws = Operator("test.Throws")
                                .Doc("Fails whenever it runs, with an exception that is no Error.")
                                .Input("x", "any shape")
                                .Output("y", "the shape of x")
                                .Shapes(SameAsInput(0))
                                .Cpu([](const OperatorCall&) -> RunFn {
                                  return [](const OpRun&) { throw std::runtime_error("the disk is on fire"); };
                                });

const Registration mostly_late = Operator("test.MostlyLate")
                                     .Doc("y = x; of five runs, four take 10 ms.")
                                     .Input("x", "any shape, float")
                                     .Output("y", "the shape of x")
                                     .Shapes(SameAsInput(0))
                                     .Cpu([](const OperatorCall&) -> RunFn {
                                       return [](const OpRun& run) {
                                         static std::atomic<int> runs = 0;
                                         if (++runs % 5 != 0)
                                           std::this_thread::sleep_for(std::chrono::milliseconds(10));
                                         std::copy_n(run.In(0).As<float>(), run.In(0).size(), run.Out(0).As<float>());
                                       };
                                     });

}  // namespace
}  // namespace stepnet
