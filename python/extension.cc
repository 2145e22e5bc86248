// The file that Python imports. What it stands for is in libstepnet.so, which it needs: libraries of operators know
// that name, while this one differs between versions of Python.
#include <Python.h>

PyMODINIT_FUNC PyInit_stepnet();  // python/src/module.cc

PyMODINIT_FUNC PyInit__stepnet() { return PyInit_stepnet(); }
