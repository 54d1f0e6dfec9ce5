// The command line program `bindery`. Results go to standard output, everything else to standard error.
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/names.h"
#include "bindery/version.h"
#include "kvstore/mpi/mpi_processes.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/json_lines.h"
#include "tools/cli/settings.h"

namespace bindery::cli {
namespace {

void LogToStandardError() {
  // no-color.org: not on a terminal either where it is set, to whatever but nothing.
  const char* const plain = std::getenv("NO_COLOR");
  const auto colors = plain && *plain ? spdlog::color_mode::never : spdlog::color_mode::automatic;
  spdlog::set_default_logger(spdlog::stderr_color_mt("bindery", colors));
  spdlog::set_pattern("bindery: %^%l%$: %v");
  SetLogCallback([](LogLevel level, const std::string& message) {
    switch (level) {
      case LogLevel::kDebug: spdlog::debug(message); break;
      case LogLevel::kInfo: spdlog::info(message); break;
      case LogLevel::kWarning: spdlog::warn(message); break;
      case LogLevel::kError: spdlog::error(message); break;
    }
  });
}

// --log-level of every command.
void AddLogLevelOption(CLI::App* app) {
  const auto set = [](const std::string& text) {
    const std::vector<std::pair<std::string, spdlog::level::level_enum>> levels = {{"debug", spdlog::level::debug},
                                                                                   {"info", spdlog::level::info},
                                                                                   {"warning", spdlog::level::warn},
                                                                                   {"error", spdlog::level::err}};
    std::vector<std::string> names;
    for (const auto& [name, level] : levels) {
      if (name == text) return spdlog::set_level(level);
      names.push_back(name);
    }
    throw UsageError(fmt::format("--log-level: unknown level \"{}\"{}", text, NameHint(text, names)));
  };
  for (CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
    command
        ->add_option_function<std::string>("--log-level", set,
                                           "lines of the log on standard error, from this level on: debug, info, "
                                           "warning, error")
        ->default_str("info")
        ->type_name("LEVEL");
  }
}

// --quiet of those that tell something on the way.
void AddQuietOption(CLI::App* app) {
  for (const char* name : {"train", "test", "predict", "generate"}) {
    CLI::App* command = app->get_subcommand(name);
    command->add_flag_callback(
        "--quiet",
        [command] {
          BeQuiet();
          if (command->count("--log-level") == 0) spdlog::set_level(spdlog::level::warn);
        },
        "nothing but results, and warnings and errors unless --log-level says otherwise");
  }
}

int Fail(ExitCode code, const std::string& message) {
  Say("bindery: {}\n", message);
  return code;
}

// Does this call print events (json_lines.h)? Also if its words are not understood, as far as they say so.
bool PrintsEvents(const CLI::App& app, int argc, const char* const* argv) {
  const std::vector<std::string_view> words(argv, argv + argc);
  return argc > 1 && words[1] == "train" &&
         (std::ranges::find(words, "--json") != words.end() || app.get_subcommand("train")->count("--json") > 0);
}

// What keeps a process from training it says to the others, of which the first one tells it, whoever had the mistake.
void LeaveProcesses(int argc, const char* const* argv, const std::string& why) {
  if (argc < 2 || std::string_view(argv[1]) != "train" || IsSilent() || !StartedByMpi()) return;
  try {
    const ProcessesPtr processes = MpiProcesses();
    if (processes->rank() > 0) BeSilent(fmt::format("process {} of {}", processes->rank(), processes->size()));
    processes->Leave(why);
  } catch (const std::exception&) {  // then each speaks for itself
  }
}

std::string CannotWrite(const std::string& why) { return "cannot write to standard output: " + why; }

int RunCommand(int argc, char** argv) {
  CLI::App app("Bindery: training and inference of neural networks, without Python.", "bindery");
  app.footer(kExitCodeHelp);
  app.set_version_flag("--version", "bindery " BINDERY_VERSION);
  app.require_subcommand(1);
  RunFn run;
  AddTrain(&app, &run);
  AddTest(&app, &run);
  AddPredict(&app, &run);
  AddGenerate(&app, &run);
  AddInspect(&app, &run);
  AddTime(&app, &run);
  AddDevices(&app, &run);
  AddVerify(&app, &run);
  AddConvert(&app, &run);
  AddOperators(&app, &run);
  AddChoices(&app, &run);
  AddManual(&app, &run);
  AddConfigOption(&app);
  AddLogLevelOption(&app);
  AddQuietOption(&app);
  Settings settings;
  const auto fail = [&](ExitCode code, const std::string& message) {
    LeaveProcesses(argc, argv, message);
    if (!IsSilent() && PrintsEvents(app, argc, argv)) PrintLine(ErrorToJson(code, message));
    return Fail(code, message);
  };
  try {
    std::vector<std::string> words = settings.Complete(app, SplitArguments(app, argc, argv));
    std::reverse(words.begin(), words.end());  // as CLI11 wants them
    app.parse(std::move(words));
    return run();
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const std::bad_alloc& e) {
    return fail(ExitCodeOf(e), "out of memory");
  } catch (const std::system_error& e) {
    if (std::ferror(stdout)) return Fail(kData, CannotWrite(e.code().message()));
    return fail(ExitCodeOf(e), e.what());
  } catch (const std::exception& e) {
    const ExitCode code = ExitCodeOf(e);
    return fail(code, code == kUsage ? e.what() + settings.SourceOf(e.what()) : e.what());
  }
}

int Main(int argc, char** argv) {
  KeepStandardStreams();
  KeepFreedMemory();
  LogToStandardError();
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond the limit of its size: an error like a full disk
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has gone: the same, and for standard error none at all
  const int code = RunCommand(argc, argv);
  // Results that did not reach their reader are no success, be they the last ones or lines before, of a run that went on.
  const bool flushed = std::fflush(stdout) == 0;
  if (code != kOk || (flushed && !std::ferror(stdout))) return code;
  return Fail(kData, CannotWrite(flushed ? "some of the results are lost" : std::generic_category().message(errno)));
}

}  // namespace
}  // namespace bindery::cli

int main(int argc, char** argv) { return bindery::cli::Main(argc, argv); }
