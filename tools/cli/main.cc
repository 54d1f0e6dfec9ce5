// The command line program `bindery`. Results go to standard output, everything else to standard error.
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <new>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "bindery/version.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/settings.h"

namespace bindery::cli {
namespace {

void LogToStandardError() {
  spdlog::set_default_logger(spdlog::stderr_color_mt("bindery"));
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

int Fail(ExitCode code, const std::string& message) {
  Say("bindery: {}\n", message);
  return code;
}

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
  AddManual(&app, &run);
  AddConfigOption(&app);
  Settings settings;
  try {
    std::vector<std::string> words = settings.Complete(app, SplitArguments(app, argc, argv));
    std::reverse(words.begin(), words.end());  // as CLI11 wants them
    app.parse(std::move(words));
    return run();
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const std::bad_alloc& e) {
    return Fail(ExitCodeOf(e), "out of memory");
  } catch (const std::exception& e) {
    const ExitCode code = ExitCodeOf(e);
    return Fail(code, code == kUsage ? e.what() + settings.SourceOf(e.what()) : e.what());
  }
}

int Main(int argc, char** argv) {
  KeepStandardStreams();
  KeepFreedMemory();
  LogToStandardError();
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond the limit of its size: an error like a full disk
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has gone: the same, and for standard error none at all
  const int code = RunCommand(argc, argv);
  // Results that did not reach their reader are no success.
  if (std::fflush(stdout) != 0 && code == kOk) {
    return Fail(kData, fmt::format("cannot write to standard output: {}", std::generic_category().message(errno)));
  }
  return code;
}

}  // namespace
}  // namespace bindery::cli

int main(int argc, char** argv) { return bindery::cli::Main(argc, argv); }
