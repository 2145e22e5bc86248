// How every str of Python becomes a std::string, and back: in place of nanobind/stl/string.h, which refuses a str with
// lone surrogates by a TypeError that lists C++ signatures.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace nanobind::detail {

// In UTF-8. Lone surrogates become escapes, and so do bytes that are no UTF-8 on the way back: what is not known by
// such a name is refused by that name, in words that can be printed. Paths with surrogates are refused before
// (source.py).
template <>
struct type_caster<std::string> {
  NB_TYPE_CASTER(std::string, const_name("str"))

  bool from_python(handle given, std::uint32_t, cleanup_list*) noexcept {
    if (PyUnicode_Check(given.ptr()) == 0) return false;
    Py_ssize_t size = 0;
    if (const char* text = PyUnicode_AsUTF8AndSize(given.ptr(), &size)) {
      value.assign(text, static_cast<size_t>(size));
      return true;
    }
    PyErr_Clear();
    const object bytes = steal(PyUnicode_AsEncodedString(given.ptr(), "utf-8", "backslashreplace"));
    if (!bytes.is_valid()) {  // there is no memory
      PyErr_Clear();
      return false;
    }
    value.assign(PyBytes_AsString(bytes.ptr()), static_cast<size_t>(PyBytes_Size(bytes.ptr())));
    return true;
  }

  static handle from_cpp(const std::string& text, rv_policy, cleanup_list*) noexcept {
    return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace");
  }
};

}  // namespace nanobind::detail
