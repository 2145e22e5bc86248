// The learning curve of a training run as a picture, drawn by gnuplot.
#pragma once

#include <string>

namespace stepnet::runner {

// Draws bits per character of the CSV file of Metrics into a PNG file: of the training text, averaged over a hundredth
// of the run, and of the validation text. False, with a remark on standard error, where gnuplot is missing or fails.
bool DrawLearningCurve(const std::string& csv, const std::string& png, const std::string& title);

}  // namespace stepnet::runner
