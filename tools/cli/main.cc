// The command line program `bindery`. Results go to standard output, everything else to standard error.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <new>

#include "base/log.h"
#include "base/memory.h"
#include "base/names.h"
#include "tools/cli/commands.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/options.h"

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
  fmt::print(stderr, "\nbindery: {}\n", message);
  return code;
}

// CLI11 says only that an argument was not expected: add the nearest option or command.
std::string Hint(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> commands, options;
  const CLI::App* chosen = nullptr;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(sub->get_name());
    if (argc > 1 && sub->get_name() == argv[1]) chosen = sub;
  }
  if (!chosen) {
    const auto first = std::find_if(argv + 1, argv + argc, [](const char* a) { return a[0] != '-'; });
    return first == argv + argc ? "" : NameHint(*first, commands);
  }
  for (const CLI::Option* option : chosen->get_options()) for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  for (int i = 2; i < argc; ++i) {
    const std::string name = std::string(argv[i]).substr(0, std::string(argv[i]).find('='));
    if (name.starts_with("--") && std::find(options.begin(), options.end(), name) == options.end()) return NameHint(name, options);
  }
  return "";
}

int Main(int argc, char** argv) {
  KeepFreedMemory();
  LogToStandardError();
  CLI::App app("Bindery: training and inference of neural networks, without Python.", "bindery");
  app.footer(kExitCodeHelp);
  app.set_version_flag("--version", "bindery 0.1.0");
  app.require_subcommand(1);
  RunFn run;
  AddTrain(&app, &run);
  AddTest(&app, &run);
  AddPredict(&app, &run);
  AddInspect(&app, &run);
  AddDevices(&app, &run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {   // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return Fail(kUsage, fmt::format("{}{}\ntry: bindery --help, or bindery COMMAND --help", e.what(), Hint(app, argc, argv)));
  }
  try {
    return run();
  } catch (const UsageError& e) {
    return Fail(kUsage, e.what());
  } catch (const ModelError& e) {
    return Fail(kModel, e.what());
  } catch (const ShapeError& e) {
    return Fail(kModel, e.what());
  } catch (const DataError& e) {
    return Fail(kData, e.what());
  } catch (const CheckpointError& e) {
    return Fail(kCheckpoint, e.what());
  } catch (const DeviceError& e) {
    return Fail(kDevice, e.what());
  } catch (const std::bad_alloc&) {
    return Fail(kDevice, "out of memory");
  } catch (const NumericError& e) {
    return Fail(kNumeric, e.what());
  } catch (const std::exception& e) {
    return Fail(kFailed, e.what());
  }
}

}  // namespace
}  // namespace bindery::cli

int main(int argc, char** argv) { return bindery::cli::Main(argc, argv); }
