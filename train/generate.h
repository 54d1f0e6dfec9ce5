// Text written by a model of text: character by character, each drawn from what the model says comes next.
#pragma once

#include <cstdint>
#include <string>

#include "symbol/model.h"

namespace bindery {

struct GenerateOptions {
  std::string prompt = "\n";  // what the text follows: at least one character
  int64_t characters = 500;
  double temperature = 1;  // probabilities are p^(1 / temperature), made to add up to 1; 0: always the likeliest
  uint64_t seed = 0;       // the same seed writes the same text
};

// The text, without the prompt. The model reads windows of class numbers "data" (N, characters) or (characters, N), gives
// the next class's probabilities for each place, and has its characters as metadata (train/data/text.h). At most one
// window is read: what stands further back than its first character does not count, nor does a recurrent state.
// Throws ModelError for a model that is not of this kind; DataError for a prompt with other characters, or none.
std::string GenerateText(const Model& model, const GenerateOptions& options = {});

}  // namespace bindery
