// What the package stepnet is made of: Python imports it as _stepnet (python/extension.cc).
#include "stepnet/core/version.h"
#include "stepnet/python/src/bindings.h"
#include "stepnet/python/src/calls.h"

NB_MODULE(stepnet, module) {
  nanobind::set_leak_warnings(false);  // threads that still run when the interpreter ends hold what they use
  module.attr("__version__") = STEPNET_VERSION;
  stepnet::python::InitCalls();
  module.def("end_calls", &stepnet::python::EndCalls);
  stepnet::python::TranslateErrors();
  stepnet::python::BindDeviceArray(module);
  stepnet::python::BindOperator(module);
  stepnet::python::BindExchange(module);
  stepnet::python::BindCell(module);
  stepnet::python::BindMemory(module);
  stepnet::python::BindModel(module);
  stepnet::python::BindParams(module);
  stepnet::python::BindTensorCall(module);
  stepnet::python::BindTexts(module);
}
