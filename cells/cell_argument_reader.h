// CellArgumentReader: what stands between the brackets behind an operator's type in the short form of cells.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "stepnet/cells/cell_reader.h"
#include "stepnet/cells/size_arguments.h"
#include "stepnet/core/operator.h"

namespace stepnet {

class CellArgumentReader : protected CellReader {
 protected:
  // `is_size` says whether a name is that of a size which has been declared so far.
  CellArgumentReader(const std::string& text, const std::string& what, IsSize is_size)
      : CellReader(text, what), is_size_(std::move(is_size)) {}

  bool IsSizeName(const std::string& name) const { return is_size_(name); }

  // Takes `name=value, …)`.
  void ArgumentList(OperatorDef* op);
  // Throws for numbers without names in the arguments of a fill, where such a one comes next.
  void CheckFillNames(const OperatorDef& fill) const;
  // Throws what WithNames has made, unless that is "".
  void FailUnlessNamed(const CellToken& token, const std::string& named) const;
  // Throws where `==` comes next.
  void FailIfCompared() const;
  // Throws for the first name that is no size.
  void CheckSizes(const CellToken& token, const std::vector<std::string>& names, const char* hint) const;

 private:
  // A string in quotes, where the argument takes some.
  std::string StringValue(const ArgumentSpec* spec);
  // A number or an expression, of the form that the argument takes.
  std::string NumberText(const ArgumentSpec* spec);
  void Value(const ArgumentSpec* spec, Argument* argument);
  void ListValue(const ArgumentSpec* spec, Argument* argument);

  const IsSize is_size_;
};

}  // namespace stepnet
