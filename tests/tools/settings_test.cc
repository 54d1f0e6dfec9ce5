// Options from the environment and from files of settings; the manual page and what shells complete by.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "base/files.h"
#include "tests/tools/program.h"

namespace bindery {
namespace {

class SettingsTest : public ProgramTest {
 protected:
  // `variables` are "NAME=value".
  Outcome With(const Words& variables, const Words& arguments) const {
    return Process(Words{"/usr/bin/env"} + variables + Command(arguments), folder()).Wait();
  }
  // The batch size that `inspect` shows.
  std::string BatchOf(const Words& variables, const Words& arguments = {}) const {
    const Outcome outcome = With(variables, Words{"inspect", "--model", "mlp"} + arguments);
    EXPECT_EQ(outcome.status, 0) << outcome;
    const size_t at = outcome.out.find("(input)"), open = outcome.out.find('(', at + 1),
                 end = outcome.out.find(',', at);
    return outcome.status == 0 ? outcome.out.substr(open + 1, end - open - 1) : "";
  }
  void FailsWith(int status, const std::string& message, const Words& variables, const Words& arguments) const {
    const Outcome outcome = With(variables, arguments);
    EXPECT_EQ(outcome.status, status) << outcome;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << "expected: " << message << "\n" << outcome;
  }
};

TEST_F(SettingsTest, TheNearestOneCounts) {
  Write("all.ini", "# of every command\nbatch-size = 3   # the last one that counts\n");
  Write("own.ini", "batch_size = 3\n\n[train]\nepochs=1\n[inspect]\r\n--batch-size = \"4\" # quoted\n");
  EXPECT_EQ(BatchOf({}), "64");
  EXPECT_EQ(BatchOf({}, {"--config", "all.ini"}), "3");
  EXPECT_EQ(BatchOf({"BINDERY_CONFIG=all.ini"}), "3");
  EXPECT_EQ(BatchOf({}, {"--config=own.ini"}), "4");
  EXPECT_EQ(BatchOf({"BINDERY_CONFIG=none.ini"}, {"--config=own.ini"}), "4");
  EXPECT_EQ(BatchOf({"BINDERY_BATCH_SIZE=5"}, {"--config=own.ini"}), "5");
  EXPECT_EQ(BatchOf({"BINDERY_BATCH_SIZE="}, {"--config=own.ini"}), "4");
  EXPECT_EQ(BatchOf({"BINDERY_BATCH_SIZE=5"}, {"--config=own.ini", "--batch-size=6"}), "6");
  EXPECT_EQ(BatchOf({"BINDERY_EPOCHS=nonsense"}), "64");  // of another command
}

TEST_F(SettingsTest, Flags) {
  const auto is_json = [&](const Words& variables, const Words& arguments = {}) {
    const Outcome outcome = With(variables, Words{"devices"} + arguments);
    EXPECT_EQ(outcome.status, 0) << outcome;
    return outcome.out.starts_with("{") || outcome.out.starts_with("[");
  };
  EXPECT_FALSE(is_json({}));
  for (const char* yes : {"1", "true", "Yes", "ON"}) EXPECT_TRUE(is_json({std::string("BINDERY_JSON=") + yes})) << yes;
  for (const char* no : {"0", "false", "No", "off", ""}) {
    EXPECT_FALSE(is_json({std::string("BINDERY_JSON=") + no})) << no;
  }
  Write("on.ini", "json = true");
  EXPECT_TRUE(is_json({}, {"--config", "on.ini"}));
  EXPECT_FALSE(is_json({"BINDERY_JSON=0"}, {"--config", "on.ini"}));
  FailsWith(2, "--json (BINDERY_JSON): expected true or false, got \"maybe\"", {"BINDERY_JSON=maybe"}, {"devices"});
}

TEST_F(SettingsTest, ATrainingByAFileAlone) {
  Write("run.ini",
        "[train]\nmodel = mlp\ntrain-digits = 100\ntest-digits = 50\nepochs = 2\nthreads = 1\n"
        "optimizer = adam(lr=1e-3, beta1=0.8)\ncheckpoints =\nreproducible = 16\njson = yes\n");
  const Outcome by_file = Succeeds({"train", "--config", "run.ini"});
  const Outcome by_words = Succeeds(Words{"train", "--model", "mlp", "--train-digits", "100", "--test-digits", "50"} +
                                    Words{"--epochs", "2", "--threads", "1", "--optimizer"} +
                                    Words{"adam(lr=1e-3, beta1=0.8)", "--checkpoints=", "--reproducible=16", "--json"});
  const auto end = [](const Outcome& outcome) {
    const size_t last = outcome.out.rfind('\n', outcome.out.size() - 2);
    return json::parse(outcome.out.substr(last + 1));
  };
  EXPECT_EQ(end(by_file).at("test"), end(by_words).at("test"));
  EXPECT_EQ(Files(), Words{"run.ini"});
}

// What a training began with, of those that these settings make.
TEST_F(SettingsTest, ASolver) {
  Write("solver.prototxt",
        "model: 'mlp'  # a comment\nepochs: 1 seed: 18446744073709551615 threads: 1\n"
        "optimizer: \"adam(lr=0.002)\" metrics: 'accuracy' checkpoints: 'run' save: 'net.pb' use_average: false\n");
  const Words digits = {"--train-digits", "100", "--test-digits", "50", "--json"};
  const auto start = [&](const Words& variables, const Words& arguments) {
    const Outcome outcome = With(variables, Words{"train"} + arguments + digits);
    EXPECT_EQ(outcome.status, 0) << outcome;
    return outcome.status == 0 ? json::parse(outcome.out.substr(0, outcome.out.find('\n'))) : json();
  };
  const json all = start({}, {"--solver", "solver.prototxt"});
  EXPECT_EQ(all.at("model"), "mlp");
  EXPECT_EQ(all.at("seed"), UINT64_MAX);
  EXPECT_EQ(all.at("optimizer"), "adam(lr=0.002)");
  EXPECT_EQ(all.at("metrics").get<Words>(), Words{"accuracy"});
  EXPECT_EQ(Files("run").size(), 1u);
  EXPECT_EQ(ModelFiles("net.pb").size(), 1u);
  // Everything else counts more: a file of settings, the environment, the command line.
  Write("all.ini", "[train]\nsolver = solver.prototxt\nepochs = 2\noverwrite = yes\n");
  EXPECT_EQ(start({"BINDERY_CONFIG=all.ini"}, {}).at("epochs"), 2);
  EXPECT_EQ(start({"BINDERY_CONFIG=all.ini", "BINDERY_EPOCHS=3"}, {}).at("epochs"), 3);
  const json by_words = start({"BINDERY_SOLVER=solver.prototxt"}, {"--epochs", "4", "--overwrite"});
  EXPECT_EQ(by_words.at("epochs"), 4);
  EXPECT_EQ(by_words.at("optimizer"), "adam(lr=0.002)");
  // The run is as the checkpoint knows it, without the file.
  std::filesystem::remove(PathOf("solver.prototxt"));
  EXPECT_EQ(start({}, {"--resume", "--checkpoints", "run", "--epochs", "5"}).at("optimizer"), "adam(lr=0.002)");

  const auto fails = [&](int status, const std::string& text, const std::string& message) {
    Write("bad.prototxt", text);
    Fails(status, message, {"train", "--solver", "bad.prototxt"});
  };
  fails(2, "epochz: 3", "--solver: bad.prototxt:1:7: ");
  fails(2, "model: 'mlp'\nepochs: 'many'", "--solver: bad.prototxt:2:9: ");
  fails(2, "epochs: 1 epochs: 2", "\"epochs\" is specified multiple times");
  fails(2, "epochs: 0", "\n--epochs is from bad.prototxt");
  fails(2, std::string("\0\xff", 2), "--solver: bad.prototxt:1:");
  Fails(4, "none.prototxt", {"train", "--solver", "none.prototxt"});
  Fails(2, "unknown option \"--solver\"", {"test", "--solver", "bad.prototxt"});
}

// proto/solver.proto names all options of a training but those of one call, of drawn digits and of a machine.
TEST_F(SettingsTest, ASolverHasEveryOptionOfARun) {
  const std::string description =
      ReadFile(std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") + "/proto/solver.proto");
  std::set<std::string> fields, options;
  const auto collect = [](const std::string& text, const char* pattern, std::set<std::string>* names) {
    const std::regex expression(pattern);
    for (std::sregex_iterator at(text.begin(), text.end(), expression), end; at != end; ++at) {
      std::string name = (*at)[1];
      std::ranges::replace(name, '_', '-');
      names->insert(name);
    }
  };
  collect(description, "\\n  optional [a-z0-9]+ ([a-z_]+) =", &fields);
  collect(Succeeds({"completion", "--shell", "fish"}).out, "subcommand_from train' -l ([-a-z]+)", &options);
  const std::set<std::string> others = {"help",           "config",       "solver",      "overwrite",   "resume",
                                        "trace",          "trace-steps",  "progress",    "json",        "json-every",
                                        "device-timeout", "train-digits", "test-digits", "digits-seed", "write-digits",
                                        "log-level",      "quiet"};
  std::set<std::string> both = fields;
  both.insert(others.begin(), others.end());
  EXPECT_EQ(both, options);
  for (const std::string& other : others) EXPECT_FALSE(fields.contains(other)) << other;
}

TEST_F(SettingsTest, AFileAsEditorsOfWindowsWriteIt) {
  Write("run.ini",
        "\xef\xbb\xbf"
        "batch-size = 0\r\n[train]\r\n");
  Fails(2, "--batch-size: expected a whole number from 1 to 1000000, got \"0\"", {"train", "--config", "run.ini"});
}

TEST_F(SettingsTest, WhatIsWrongIsNamed) {
  const auto in_file = [&](const std::string& text, const std::string& message) {
    Write("bad.ini", text);
    Fails(2, message, {"devices", "--config", "bad.ini"});
  };
  in_file("\nbatch-sise = 3", "bad.ini:2: there is no option \"batch-sise\"; did you mean \"batch-size\"?");
  in_file("[test]\nepochs = 3", "bad.ini:2: test has no option \"epochs\"");
  in_file("[trian]", "bad.ini:1: unknown command \"trian\"; did you mean \"train\"?");
  in_file("[train", "bad.ini:1: expected a section as [train]");
  in_file("[train] x", "bad.ini:1: expected a section as [train]");
  in_file("epochs 3", "bad.ini:1: expected option = value, got \"epochs 3\"");
  in_file("seed = 3\nseed = 4", "bad.ini:2: seed is given twice");
  in_file("model = \"mlp", "bad.ini:1: model: a quotation mark without the other");
  in_file("model = 'mlp' x", "bad.ini:1: model: a quotation mark without the other, or words behind it");
  in_file("config = other.ini", "bad.ini:1: there is no option \"config\"");
  in_file("help = true", "bad.ini:1: there is no option \"help\"");
  in_file(std::string("\0\xff = \n", 6), "bad.ini:1: there is no option");
  Fails(4, "none.ini", {"devices", "--config", "none.ini"});
  Fails(4, "the limit is 1048576", {"devices", "--config", "/proc/self/exe"});
  // Of a value that makes no sense, where it comes from.
  FailsWith(2, "\n--epochs is from BINDERY_EPOCHS", {"BINDERY_EPOCHS=many"}, {"train"});
  Write("bad.ini", "batch-size = 0");
  Fails(2, "\n--batch-size is from bad.ini", {"train", "--config", "bad.ini"});
}

// Of options, of what the libraries read, and of what is like nothing; each by a line.
TEST_F(SettingsTest, UnknownVariablesAreWarnedOf) {
  const auto warned = [&](const std::string& variable, const std::string& ending) {
    const Outcome outcome = With({variable + "=no"}, {"devices"});
    EXPECT_EQ(outcome.status, 0) << outcome;
    const std::string line = variable + " in the environment is nothing that is read" + ending + "\n";
    const size_t at = outcome.err.find(line);
    ASSERT_NE(at, std::string::npos) << outcome;
    EXPECT_EQ(outcome.err.find(variable, at + line.size()), std::string::npos) << outcome;
  };
  warned("BINDERY_BATCHSIZE", "; did you mean BINDERY_BATCH_SIZE?");
  warned("BINDERY_CUDDN", "; did you mean BINDERY_CUDNN?");
  warned("BINDERY_CUDA_GRAPH", "; did you mean BINDERY_CUDA_GRAPHS?");
  warned("BINDERY_MAXISA", "; did you mean BINDERY_MAX_ISA?");
  warned("BINDERY_CONFG", "; did you mean BINDERY_CONFIG?");
  warned("BINDERY_QQQQQQQQ", "");
  const Words known = {"BINDERY_BATCH_SIZE=3", "BINDERY_TEST_X=1", "BINDERY_MAX_ISA=avx2", "BINDERY_CUDNN=no",
                       "BINDERY_CUBLASLT=no",  "BINDERY_NCCL=no",  "BINDERY_TF32=yes",     "BINDERY_CUDA_GRAPHS=no",
                       "BINDERY_NVRTC=no",     "BINDERYX=1"};
  EXPECT_EQ(With(known, {"devices"}).err, "");
}

TEST_F(SettingsTest, ManualPage) {
  const std::string page = Succeeds({"manual"}).out;
  EXPECT_TRUE(page.starts_with(".TH BINDERY 1 "));
  for (const char* part : {".SS \"bindery train\"", "\\fB\\-\\-batch\\-size\\fR \\fINUMBER\\fR", "BINDERY_BATCH_SIZE",
                           ".SH \"EXIT STATUS\"", "\n.br\nDefault: constant\n", "BINDERY_MAX_ISA"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
}

TEST_F(SettingsTest, Completion) {
  Write("bash", Succeeds({"completion", "--shell", "bash"}).out);
  const auto completed = [&](const std::string& words) {
    return Process({"/bin/bash", "-c",
                    "source ./bash; COMP_WORDS=(" + words +
                        "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _bindery; echo \"${COMPREPLY[*]}\""},
                   folder())
        .Wait()
        .out;
  };
  EXPECT_EQ(completed("bindery tr"), "train\n");
  EXPECT_EQ(completed("bindery train --batch"), "--batch-size\n");
  EXPECT_EQ(completed("bindery train --resume --mod"), "--model\n");
  EXPECT_EQ(completed("bindery train --model m"), "\n");  // files, by the shell
  EXPECT_EQ(completed("bindery devices ''"), "--help --json --config --log-level\n");
  EXPECT_NE(Succeeds({"devices", "--help"}).out.find("--json"), std::string::npos);
  for (const std::string shell : {"zsh", "fish"}) {
    const std::string text = Succeeds({"completion", "--shell", shell}).out;
    for (const char* part : {"train", "batch-size", "generate"}) {
      EXPECT_NE(text.find(part), std::string::npos) << shell << " " << part;
    }
  }
  Fails(2, "--shell: unknown shell \"bsh\"; did you mean \"bash\"?", {"completion", "--shell", "bsh"});
  Fails(2, "--shell", {"completion"});
}

TEST_F(SettingsTest, LevelOfTheLog) {
  const Words words = Training(1, {"--checkpoints=", "--batch-size=2", "--optimizer=sgd(lr=0)"});
  const std::string warning = "bindery: warning: the model has learned nothing";
  EXPECT_NE(Succeeds(words).err.find(warning), std::string::npos);
  EXPECT_NE(Succeeds(words + Words{"--log-level", "warning"}).err.find(warning), std::string::npos);
  EXPECT_EQ(Succeeds(words + Words{"--log-level=error"}).err.find("warning: "), std::string::npos);
  Fails(2, "--log-level: unknown level \"warnings\"; did you mean \"warning\"?", {"devices", "--log-level=warnings"});
}

TEST_F(SettingsTest, QuietLeavesResultsWarningsAndErrors) {
  const Words words = Training(1, {"--overwrite", "--batch-size=2", "--optimizer=sgd(lr=0)", "--quiet"});
  const Outcome trained = Succeeds(words);
  EXPECT_TRUE(trained.err.starts_with("bindery: warning: the model has learned nothing")) << trained;
  EXPECT_EQ(std::count(trained.err.begin(), trained.err.end(), '\n'), 1) << trained;
  EXPECT_TRUE(trained.out.starts_with("\nresult\n")) << trained;
  EXPECT_EQ(Succeeds(words + Words{"--progress", "lines", "--log-level", "error"}).err, "");
  // Who asks for more of the log gets it.
  const Outcome resumed = Succeeds(Training(2, {"--resume", "--quiet", "--log-level", "info"}));
  EXPECT_NE(resumed.err.find("going on after step 50"), std::string::npos) << resumed;
  EXPECT_EQ(resumed.err.find("epoch 2/2"), std::string::npos) << resumed;
  const Outcome events = Succeeds(words + Words{"--json"});
  EXPECT_EQ(std::count(events.out.begin(), events.out.end(), '\n'), 3) << events;
  for (const char* command : {"test", "predict"}) {
    const Outcome outcome = Succeeds({command, "--quiet"});
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(outcome.out, Succeeds({command}).out);
  }
  Fails(2, "bindery: unknown option \"--quiet\"", {"devices", "--quiet"});
}

// As each shell itself reads what it is given, where it is present; the others' tests are skipped.
class CompletionSyntaxTest : public ProgramTest, public testing::WithParamInterface<const char*> {};

TEST_P(CompletionSyntaxTest, IsAScriptOfItsShell) {
  const std::string shell = GetParam();
  const auto run = [&](const std::string& command) { return Process({"/bin/sh", "-c", command}, folder()).Wait(); };
  if (run("command -v " + shell).status != 0) GTEST_SKIP() << "there is no " << shell;
  Write("script", Succeeds({"completion", "--shell", shell}).out);
  const Outcome good = run(shell + " -n script");
  EXPECT_EQ(good.status, 0) << good;
  EXPECT_EQ(good.err, "") << good;
  Write("script", "if (\n");
  EXPECT_NE(run(shell + " -n script").status, 0) << "the check finds mistakes";
}

INSTANTIATE_TEST_SUITE_P(Shells, CompletionSyntaxTest, testing::Values("bash", "zsh", "fish"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace bindery
