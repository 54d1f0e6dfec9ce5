// A GPT of characters: learns to write from any text file, character by character.
//
//   char_gpt input.txt 8                # trains for 8 epochs, then writes 500 characters
//   tools/bazel run //examples:char_gpt # writes a text of its own first: sums in words
//
// Each epoch prints the test loss, in nats per character, and a line written by the model as it is then. The text that it
// makes when it is given none has lines such as "four and five make nine", all true; so it can be counted how much
// of what the model writes is, too.
//
// Expected: without a file, in about half a minute, a loss below 0.35 and at least a third of its sums true.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "bindery/bindery.h"

using namespace bindery;

namespace {

constexpr int kBelow = 6;  // what is added
const char* const kNumbers[] = {"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"};

std::string Sum(int a, int b) { return std::string(kNumbers[a]) + " and " + kNumbers[b] + " make " + kNumbers[a + b]; }

void WriteSums(const std::string& path) {
  PhiloxStream random(/*seed=*/1, "sums");
  std::ofstream file(path);
  for (int line = 0; line < 3000; ++line) {
    const int a = static_cast<int>(random.Uniform(0, kBelow)), b = static_cast<int>(random.Uniform(0, kBelow));
    file << Sum(a, b) << "\n";
  }
}

void CountTrueSums(const std::string& text) {
  std::set<std::string> sums;
  for (int a = 0; a < kBelow; ++a) {
    for (int b = 0; b < kBelow; ++b) sums.insert(Sum(a, b));
  }
  std::istringstream lines(text.substr(0, text.rfind('\n')));  // the last one may be cut off
  int all = 0, right = 0;
  for (std::string line; std::getline(lines, line); ++all) right += sums.contains(line);
  std::printf("%d of %d sums are true\n", right, all);
}

// Trains on the file and returns what the model then writes.
std::string TrainAndWrite(const std::string& path, int64_t epochs) {
  const TextSet text = ReadTextSet(path);  // its last tenth is for the test
  TextIter train(text.train, {.batch_size = 8, .length = 64, .random = true});
  TextIter test(text.validation, {.batch_size = 32, .length = 64});
  Model model{.symbol = ModelByName("gpt(layers=2, width=64, heads=4)", {.num_classes = text.vocabulary.size()})};
  model.metadata[kVocabularyKey] = text.vocabulary.characters();  // so that the model's file can read and write
  Trainer trainer(model, {.optimizer = "adamw(lr=0.004)",
                          .schedule = "cosine(" + std::to_string(epochs) + ", unit=epoch)",
                          .metrics = "cross-entropy(axis=2)"});
  const auto write = [&](int64_t characters) {
    return GenerateText(trainer.ToModel(), {.prompt = "\n", .characters = characters, .temperature = 0.5, .seed = 1});
  };
  trainer.Fit(train, {.epochs = epochs, .validation = &test, .on_epoch = [&](const EpochReport& report) {
                        const std::string sample = write(60);
                        std::printf("epoch %d: loss %.4f  %s\n", static_cast<int>(report.epoch + 1),
                                    report.validation[0].second, sample.substr(0, sample.find('\n')).c_str());
                        std::fflush(stdout);
                      }});
  trainer.Save(path + ".pb");
  return write(500);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    // `bazel run` starts programs in a folder of its own and says where it was called.
    const char* called_in = std::getenv("BUILD_WORKING_DIRECTORY");
    const bool own = argc < 2;
    const std::string path = own ? std::string(called_in ? called_in : ".") + "/sums.txt" : argv[1];
    if (own) WriteSums(path);
    const std::string text = TrainAndWrite(path, argc > 2 ? std::atoi(argv[2]) : 8);
    std::printf("\n%s\n\n", text.c_str());
    if (own) CountTrueSums(text);
    std::printf("saved: %s.pb\n", path.c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "char_gpt: %s\n", e.what());
    return 1;
  }
}
