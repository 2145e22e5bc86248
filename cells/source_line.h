// The line of a text that a message is about.
#pragma once

#include <string>

namespace stepnet {

// Line `line` of `text` with a caret below its byte `column`, both counted from 1, to be put behind a message:
//
//     10 |   h = Tanh(x @ w + c)
//        |                    ^
//
// Begins with a line feed. Shows the part of a long line around the caret; "" where the text has no such place.
std::string SourceLine(const std::string& text, int line, int column);

}  // namespace stepnet
