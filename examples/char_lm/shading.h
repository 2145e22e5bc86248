// Text in which every character is shaded by how probable a model found it: for a terminal, for a file without colours,
// and as a web page.
#pragma once

#include <string>
#include <vector>

// One character of a text, as a model that had read the text up to it saw it.
struct SeenCharacter {
  char character;
  float probability;                            // that the model gave it
  std::vector<std::pair<char, float>> guesses;  // the most probable characters instead, best first
};

enum class ColorMode { kNone, k256, kTrueColor };

// The mode for `choice`: "always", "never", or "auto": colours when standard output is a terminal and NO_COLOR is not
// set. Throws stepnet::Error for anything else.
ColorMode ChooseColorMode(const std::string& choice);

// Without colours, a line of marks stands under each line of text.
std::string ShadedText(const std::vector<SeenCharacter>& text, ColorMode mode);
std::string ShadingLegend(ColorMode mode);

// A page of its own; the guesses appear when the mouse rests on a character.
std::string ShadedPage(const std::vector<SeenCharacter>& text, const std::string& title);

// A character so that it can be seen: "a", "\n", "space".
std::string Visible(char c);
