#include "tools/cli/manual.h"

#include <fmt/format.h>

#include "base/names.h"
#include "bindery/version.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/environment.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/settings.h"

namespace bindery::cli {
namespace {

struct OptionText {
  std::string name;   // "--device"
  std::string names;  // "-h, --help"
  std::string value;  // "NUMBER"; empty for a flag
  std::string help, by_default;
  bool may_stand_alone = false;
};
struct CommandText {
  std::string name, help;
  std::vector<OptionText> options = {};
  std::string words = {};  // that are no option's, with a space before each
};

std::vector<CommandText> CommandsOf(const CLI::App& app) {
  std::vector<CommandText> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    CommandText& text = commands.emplace_back(CommandText{command->get_name(), command->get_description()});
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_positional()) {
        text.words += fmt::format(" {}", option->get_name(true));
        continue;
      }
      const bool is_flag = option->get_expected_max() == 0;
      std::vector<std::string> names;
      for (const std::string& name : option->get_snames()) names.push_back("-" + name);
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
      text.options.push_back({.name = names.back(),
                              .names = fmt::format("{}", fmt::join(names, ", ")),
                              .value = is_flag ? "" : option->get_type_name(),
                              .help = option->get_description(),
                              .by_default = is_flag ? "" : option->get_default_str(),
                              .may_stand_alone = !is_flag && option->get_expected_min() == 0});
    }
  }
  return commands;
}

// --- the manual page

// Text as itself, whatever it begins with.
std::string Roff(std::string_view text) {
  std::string escaped = text.starts_with(".") || text.starts_with("'") ? "\\&" : "";
  for (const char c : text) {
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string RoffOf(const OptionText& option) {
  std::string text = fmt::format(".TP\n\\fB{}\\fR", Roff(option.names));
  if (option.may_stand_alone) {
    text += fmt::format(" [\\fI{}\\fR]", Roff(option.value));
  } else if (!option.value.empty()) {
    text += fmt::format(" \\fI{}\\fR", Roff(option.value));
  }
  text += "\n" + Roff(option.help);
  if (!option.by_default.empty()) {
    text += fmt::format("\n.br\n{}: {}", option.may_stand_alone ? "Alone" : "Default", Roff(option.by_default));
  }
  return text + "\n";
}

// --- shells

std::string Words(const std::vector<CommandText>& commands) {
  std::vector<std::string> names;
  for (const CommandText& command : commands) names.push_back(command.name);
  return fmt::format("{}", fmt::join(names, " "));
}

// In a word between single quotation marks.
std::string Quoted(std::string_view text) {
  std::string quoted;
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted;
}

// After an option with a value come files (-o default), elsewhere options.
std::string ForBash(const std::vector<CommandText>& commands) {
  std::string cases;
  for (const CommandText& command : commands) {
    std::vector<std::string> all, with_value;
    for (const OptionText& option : command.options) {
      all.push_back(option.name);
      if (!option.value.empty()) with_value.push_back(option.name);
    }
    cases += fmt::format("    {}) options=\"{}\" valued=\" {} \" ;;\n", command.name, fmt::join(all, " "),
                         fmt::join(with_value, " "));
  }
  return fmt::format(R"(# bash completion of bindery
_bindery() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} options= valued=
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{} --help --version" -- "$current"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  case $valued in
    *" $before "*) [[ $current == -* ]] || return 0 ;;
  esac
  COMPREPLY=($(compgen -W "$options" -- "$current"))
}}
complete -o default -F _bindery bindery
)",
                     Words(commands), cases);
}

std::string ForZsh(const std::vector<CommandText>& commands) {
  // What _arguments and _describe read otherwise: brackets and colons.
  const auto escaped = [](std::string_view text) {
    std::string all;
    for (const char c : text) all += c == '[' || c == ']' || c == ':' ? std::string("\\") + c : std::string(1, c);
    return Quoted(all);
  };
  std::string described, cases;
  for (const CommandText& command : commands) {
    described += fmt::format("    '{}:{}'\n", command.name, escaped(command.help));
    cases += fmt::format("    {}) _arguments", command.name);
    for (const OptionText& option : command.options) {
      cases += fmt::format(" \\\n      '{}[{}]{}'", option.name, escaped(option.help),
                           option.value.empty()     ? ""
                           : option.may_stand_alone ? "::value:_files"
                                                    : ":value:_files");
    }
    cases += " ;;\n";
  }
  return fmt::format(R"(#compdef bindery
# zsh completion of bindery
_bindery() {{
  local -a commands
  commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{}  esac
}}
if [ "$funcstack[1]" = _bindery ]; then
  _bindery "$@"
else
  compdef _bindery bindery
fi
)",
                     described, cases);
}

std::string ForFish(const std::vector<CommandText>& commands) {
  const auto escaped = [](std::string_view text) {
    std::string all;
    for (const char c : text) all += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    return all;
  };
  std::string lines = "# fish completion of bindery\ncomplete -c bindery -n __fish_use_subcommand -f\n";
  for (const CommandText& command : commands) {
    lines += fmt::format("complete -c bindery -n __fish_use_subcommand -a {} -d '{}'\n", command.name,
                         escaped(command.help));
  }
  for (const CommandText& command : commands) {
    for (const OptionText& option : command.options) {
      lines += fmt::format("complete -c bindery -n '__fish_seen_subcommand_from {}' -l {}{} -d '{}'\n", command.name,
                           option.name.substr(2), option.value.empty() || option.may_stand_alone ? "" : " -r",
                           escaped(option.help));
    }
  }
  return lines;
}

}  // namespace

std::string ManualPage(const CLI::App& app) {
  const std::vector<CommandText> commands = CommandsOf(app);
  std::string page = fmt::format(
      ".TH BINDERY 1 \"\" \"Bindery {}\" \"User Commands\"\n.SH NAME\nbindery \\- {}\n.SH SYNOPSIS\n"
      ".B bindery\n\\fIcommand\\fR [\\fIoption\\fR...]\n.SH COMMANDS\n",
      BINDERY_VERSION, Roff("training and inference of neural networks"));
  for (const CommandText& command : commands) {
    page += fmt::format(".TP\n\\fB{}\\fR\n{}\n", Roff(command.name), Roff(command.help));
  }
  page += ".SH OPTIONS\n";
  for (const CommandText& command : commands) {
    page += fmt::format(".SS \"bindery {}{}\"\n", Roff(command.name), Roff(command.words));
    for (const OptionText& option : command.options) page += RoffOf(option);
  }
  const std::string example = VariableOf("--batch-size");
  std::string variables;
  for (const EnvironmentVariable& variable : EnvironmentVariables()) {
    variables += fmt::format(".TP\n.B {}\n{}\n", variable.name, Roff(variable.description));
  }
  page += fmt::format(
      ".SH ENVIRONMENT\nAn option that is not on the command line comes from a variable of its name, as {} for\n"
      "\\fB{}\\fR; a flag's is true or false. Empty variables count as none.\n{}"
      ".SH FILES\n{}\n.PP\n.nf\n{}\n.fi\n.SH \"EXIT STATUS\"\n{}\n",
      example, Roff("--batch-size"), variables,
      Roff("What is neither on the command line nor in the environment comes from the file of --config, or of\n"
           "BINDERY_CONFIG: lines before the first section are for every command that has the option."),
      Roff("batch-size = 32\n[train]\noptimizer = \"adam(lr=1e-3)\"\nresume = true"), Roff(kExitCodeHelp));
  return page;
}

std::string CompletionFor(const CLI::App& app, const std::string& shell) {
  const std::vector<CommandText> commands = CommandsOf(app);
  if (shell == "bash") return ForBash(commands);
  if (shell == "zsh") return ForZsh(commands);
  if (shell == "fish") return ForFish(commands);
  throw UsageError(fmt::format("--shell: unknown shell \"{}\"{}", shell, NameHint(shell, kShells)));
}

void AddManual(CLI::App* app, RunFn* run) {
  CLI::App* manual = app->add_subcommand("manual", "print the manual page, for man(1)");
  manual->callback([app, run] {
    *run = [app] {
      fmt::print("{}", ManualPage(*app));
      return kOk;
    };
  });
  const auto shell = std::make_shared<std::string>();
  CLI::App* completion = app->add_subcommand("completion", "print what a shell completes command lines by");
  completion->add_option("--shell", *shell, "bash, zsh or fish")->required();
  completion->callback([app, run, shell] {
    *run = [app, shell] {
      fmt::print("{}", CompletionFor(*app, *shell));
      return kOk;
    };
  });
}

}  // namespace bindery::cli
