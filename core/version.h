// The version of these headers, and of the library that they belong to. CMake reads it from here.
#pragma once

#define STEPNET_VERSION "0.1.0"
