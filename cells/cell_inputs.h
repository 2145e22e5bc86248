// What a cell's net is given from outside: whether it has the shape that the cell declares.
#pragma once

#include <cstdint>
#include <string>

#include "stepnet/cells/cell_expand.h"
#include "stepnet/core/tensor.h"

namespace stepnet {

// "[T, B, 5], of 3 steps and a batch of 2": what the shape of an input must be. Numbers below 0 are not
// known, and left out.
std::string ExpectedShapeText(const CellNetInput& input, std::int64_t steps, std::int64_t batch);

// What messages call a dtype: a language may have names of its own.
using DTypeText = std::string (*)(DType dtype);
std::string OwnDTypeText(DType dtype);

// Throws kShapeMismatch where the input has another shape than the cell declares, also where it could be repeated; what
// a state starts from as CheckCellStart does. Numbers below 0, which are not known, are those of no input.
void CheckCellInput(const CellNetInput& input, const Tensor& given, std::int64_t steps, std::int64_t batch,
                    DTypeText dtype_text = OwnDTypeText);

// Throws kShapeMismatch where a state starts with more or fewer rows than steps see, as outputs would be of other steps
// than they say, or with rows of another size. A batch of one is for all; a single row may lack its dimension, and one
// for all both.
void CheckCellStart(const CellNetInput& input, const Tensor& given, std::int64_t steps, std::int64_t batch,
                    DTypeText dtype_text = OwnDTypeText);

}  // namespace stepnet
