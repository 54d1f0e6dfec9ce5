// What the program says of itself in other forms than --help, made of the same descriptions: a manual page, and what
// shells complete command lines by.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace bindery::cli {

// In the language of man(1): `bindery manual | man -l -`.
std::string ManualPage(const CLI::App& app);

inline const std::vector<std::string> kShells = {"bash", "zsh", "fish"};
// Throws UsageError for another shell.
std::string CompletionFor(const CLI::App& app, const std::string& shell);

}  // namespace bindery::cli
