// Options that are not on the command line: the environment has them (BINDERY_BATCH_SIZE for --batch-size), a file of
// settings, or that of --solver, in this order.
//
// The file, of --config or BINDERY_CONFIG, has a line for each option, comments and sections:
//
//   batch-size = 32              # for every command that has the option
//   [train]                      # for this one, before those above
//   optimizer = "adam(lr=1e-3)"
//   resume = true
//
// Values end with the line or a comment, unless they are in quotation marks. A flag is true or false. What no command
// knows, or the section's does not, is an error.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace bindery::cli {

// The option --config of every command, and --solver of train.
void AddConfigOption(CLI::App* app);

class Settings {
 public:
  // `text` of the file `path`. Throws UsageError with the line for what is none of the above.
  static std::map<std::string, std::map<std::string, std::string>> Parse(const CLI::App& app, const std::string& path,
                                                                         std::string_view text);

  // `words` as SplitArguments gives them, and behind them those of the options that they do not have. Throws UsageError,
  // and DataError for a file that cannot be read.
  std::vector<std::string> Complete(const CLI::App& app, std::vector<std::string> words);

  // A line that says where an option comes from that a message names; empty if it was on the command line.
  std::string SourceOf(const std::string& message) const;

 private:
  std::map<std::string, std::string> sources_;  // "--epochs" -> "BINDERY_EPOCHS"
};

// The environment's name of an option: "--batch-size" -> "BINDERY_BATCH_SIZE".
std::string VariableOf(std::string_view option);

}  // namespace bindery::cli
