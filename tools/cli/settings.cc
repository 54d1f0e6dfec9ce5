#include "tools/cli/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <set>

#include "base/files.h"
#include "base/names.h"
#include "base/split_text.h"
#include "tools/cli/arguments.h"
#include "tools/cli/environment.h"
#include "tools/cli/solver.h"

namespace bindery::cli {
namespace {

constexpr const char* kConfig = "--config";
constexpr const char* kSolver = "--solver";
constexpr int64_t kMostBytes = 1 << 20;  // of a file

using OptionTexts = std::map<std::string, std::string>;  // by "--option"
using Sections = std::map<std::string, OptionTexts>;     // by command, "" being all

bool IsFlag(const CLI::Option& option) { return option.get_expected_max() == 0; }

std::vector<const CLI::App*> Subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// The option that can be set so, or nullptr: not those that ask for something else than the command.
const CLI::Option* Find(const CLI::App& command, const std::string& name) {
  if (name == "--help" || name == kConfig) return nullptr;
  const CLI::Option* option = command.get_option_no_throw(name);
  return option == nullptr || option->get_lnames().empty() ? nullptr : option;
}

std::vector<std::string> NamesOf(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (Find(command, "--" + name)) names.push_back(name);
    }
  }
  return names;
}

// Without what a comment begins behind a space, or all between quotation marks. No value: a mark has no other.
std::optional<std::string> ValueOf(std::string_view text) {
  if (text.empty() || (text.front() != '"' && text.front() != '\'')) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '#' && (i == 0 || std::isspace(static_cast<unsigned char>(text[i - 1])))) text = text.substr(0, i);
    }
    return std::string(Trim(text));
  }
  const size_t end = text.find(text.front(), 1);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view rest = Trim(text.substr(end + 1));
  if (!rest.empty() && rest.front() != '#') return std::nullopt;
  return std::string(text.substr(1, end - 1));
}

void WarnOfMisspelled(const CLI::App& app) {
  std::vector<std::string> known = {VariableOf(kConfig)};
  for (const CLI::App* command : Subcommands(app)) {
    for (const std::string& name : NamesOf(*command)) known.push_back(VariableOf("--" + name));
  }
  WarnOfUnknownVariables(known);
}

}  // namespace

std::string VariableOf(std::string_view option) {
  std::string name = "BINDERY_";
  for (const char c : option.substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

void AddConfigOption(CLI::App* app) {
  for (CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
    command->add_option(kConfig, "a file of lines \"option = value\", for what is neither here nor in the environment")
        ->type_name("FILE");
  }
  app->get_subcommand("train")
      ->add_option(kSolver, "a .prototxt of options, for what the others do not say (proto/solver.proto)")
      ->type_name("FILE");
}

Sections Settings::Parse(const CLI::App& app, const std::string& path, std::string_view text) {
  std::vector<std::string> commands, names;
  std::map<std::string, std::vector<std::string>> names_of;
  for (const CLI::App* command : Subcommands(app)) {
    commands.push_back(command->get_name());
    names_of[command->get_name()] = NamesOf(*command);
    names.insert(names.end(), names_of[command->get_name()].begin(), names_of[command->get_name()].end());
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  names_of[""] = names;

  Sections sections;
  std::string section;
  if (constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf"; text.starts_with(kByteOrderMark)) {
    text.remove_prefix(kByteOrderMark.size());
  }
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = Trim(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const auto fail = [&](const std::string& message) {
      throw UsageError(fmt::format("{}:{}: {}", path, number, message));
    };
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      const size_t close = line.find(']');
      const std::string_view rest = close == std::string_view::npos ? "?" : Trim(line.substr(close + 1));
      if (!rest.empty() && rest.front() != '#') fail("expected a section as [train]");
      section = Trim(line.substr(1, close - 1));
      if (std::ranges::find(commands, section) == commands.end()) {
        fail(fmt::format("unknown command \"{}\"{}", section, NameHint(section, commands)));
      }
      continue;
    }
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) fail(fmt::format("expected option = value, got \"{}\"", line));
    std::string name(Trim(line.substr(0, equals)));
    if (name.starts_with("--")) name.erase(0, 2);
    std::ranges::replace(name, '_', '-');
    const std::vector<std::string>& known = names_of[section];
    if (std::ranges::find(known, name) == known.end()) {
      const std::string nearest = NearestName(name, known);
      fail(fmt::format("{} no option \"{}\"{}", section.empty() ? "there is" : section + " has", name,
                       nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest)));
    }
    const std::optional<std::string> value = ValueOf(Trim(line.substr(equals + 1)));
    if (!value) fail(fmt::format("{}: a quotation mark without the other, or words behind it", name));
    if (!sections[section].emplace("--" + name, *value).second) fail(fmt::format("{} is given twice", name));
  }
  return sections;
}

std::vector<std::string> Settings::Complete(const CLI::App& app, std::vector<std::string> words) {
  if (words.empty() || words[0].starts_with("-")) return words;
  const CLI::App& command = *app.get_subcommand(words[0]);
  std::set<const CLI::Option*> given;
  std::string path, solver;  // files
  for (size_t i = 1; i < words.size();) {
    const CLI::Option* option = command.get_option_no_throw(words[i]);
    if (option != nullptr && option == command.get_help_ptr()) return words;
    if (option == nullptr) {  // a word that is no option's
      ++i;
      continue;
    }
    given.insert(option);
    const bool is_flag = IsFlag(*option);
    if (words[i] == kConfig) path = words[i + 1];
    if (words[i] == kSolver) solver = words[i + 1];
    i += is_flag ? 1 : 2;
  }
  if (const char* variable = std::getenv(VariableOf(kConfig).c_str()); path.empty() && variable) path = variable;
  Sections sections;
  if (!path.empty()) sections = Parse(app, path, ReadFile(path, kMostBytes));
  WarnOfMisspelled(app);

  struct Found {
    std::string name, source, value;
  };
  OptionTexts of_solver;
  const auto find = [&](const CLI::Option& option) -> std::optional<Found> {
    for (const std::string& plain : option.get_lnames()) {
      const std::string own = "--" + plain, variable = VariableOf(own);
      if (!Find(command, own)) continue;
      if (const char* text = std::getenv(variable.c_str()); text && *text != '\0') return Found{own, variable, text};
    }
    const auto in = [&](const OptionTexts& texts, const std::string& source) -> std::optional<Found> {
      for (const std::string& plain : option.get_lnames()) {
        const auto found = texts.find("--" + plain);
        if (found != texts.end()) return Found{found->first, source, found->second};
      }
      return std::nullopt;
    };
    for (const std::string& section : {words[0], std::string()}) {
      if (const auto found = in(sections[section], path)) return found;
    }
    return in(of_solver, solver);
  };
  if (const CLI::Option* option = command.get_option_no_throw(kSolver)) {
    if (const auto found = find(*option); found && !given.contains(option)) solver = found->value;
    if (!solver.empty()) of_solver = ReadSolver(solver);
  }

  for (const CLI::Option* option : command.get_options()) {
    if (given.contains(option)) continue;
    const std::optional<Found> found = find(*option);
    if (!found) continue;
    if (IsFlag(*option)) {
      if (IsTrue(fmt::format("{} ({})", found->name, found->source), found->value, "true or false"))
        words.push_back(found->name);
    } else {
      words.push_back(found->name);
      words.push_back(found->value);
    }
    sources_[found->name] = found->source;
  }
  return words;
}

std::string Settings::SourceOf(const std::string& message) const {
  std::string lines;
  for (const auto& [name, source] : sources_) {
    const size_t at = message.find(name);
    if (at == std::string::npos) continue;
    const size_t behind = at + name.size();
    if (behind < message.size() &&
        (std::isalnum(static_cast<unsigned char>(message[behind])) || message[behind] == '-'))
      continue;
    lines += fmt::format("\n{} is from {}", name, source);
  }
  return lines;
}

}  // namespace bindery::cli
