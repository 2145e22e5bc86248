// OpBuilder: adds an operator to a net, argument by argument, in one expression.
//
//   AddOp(&net, "FC", {"x", "w", "b"}, {"y"}).Int("axis", -1);
#pragma once

#include <string>
#include <vector>

#include "stepnet/proto/net.pb.h"

namespace stepnet {

class OpBuilder {
 public:
  explicit OpBuilder(OperatorDef* op) : op_(op) {}

  OpBuilder& Int(const std::string& name, std::int64_t value) {
    New(name).set_i(value);
    return *this;
  }
  OpBuilder& Float(const std::string& name, float value) {
    New(name).set_f(value);
    return *this;
  }
  OpBuilder& String(const std::string& name, const std::string& value) {
    New(name).set_s(value);
    return *this;
  }
  OpBuilder& Ints(const std::string& name, const std::vector<std::int64_t>& values) {
    New(name).mutable_ints()->Assign(values.begin(), values.end());
    return *this;
  }
  OpBuilder& Strings(const std::string& name, const std::vector<std::string>& values) {
    New(name).mutable_strings()->Assign(values.begin(), values.end());
    return *this;
  }
  OpBuilder& Net(const std::string& name, const NetDef& value) {
    *New(name).mutable_n() = value;
    return *this;
  }

 private:
  Argument& New(const std::string& name) {
    Argument& argument = *op_->add_arg();
    argument.set_name(name);
    return argument;
  }

  OperatorDef* op_;
};

inline OpBuilder AddOp(NetDef* net, const std::string& type, const std::vector<std::string>& inputs,
                       const std::vector<std::string>& outputs) {
  OperatorDef* op = net->add_op();
  op->set_type(type);
  op->mutable_input()->Assign(inputs.begin(), inputs.end());
  op->mutable_output()->Assign(outputs.begin(), outputs.end());
  return OpBuilder(op);
}

}  // namespace stepnet
