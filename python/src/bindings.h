// What the module _stepnet has, one function a file.
#pragma once

#include <nanobind/nanobind.h>

namespace stepnet::python {

void BindCell(nanobind::module_& module);
void BindDeviceArray(nanobind::module_& module);
void BindExchange(nanobind::module_& module);
void BindMemory(nanobind::module_& module);
void BindModel(nanobind::module_& module);
void BindOperator(nanobind::module_& module);
void BindParams(nanobind::module_& module);
void BindTensorCall(nanobind::module_& module);
void BindTexts(nanobind::module_& module);

}  // namespace stepnet::python
