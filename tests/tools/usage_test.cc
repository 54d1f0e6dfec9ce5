// Wrong command lines: status 2, and a message that names the option and the nearest choice.
#include "tests/tools/program.h"

namespace bindery {
namespace {

using UsageTest = ProgramTest;

const Words kCommands = {"train", "test", "predict", "generate", "inspect", "time", "devices", "operators"};

TEST_F(UsageTest, Commands) {
  const std::string known =
      "known: train, test, predict, generate, inspect, time, devices, verify, convert, operators, choices, manual, "
      "completion";
  Fails(2, "a command must come first; " + known, {});
  Fails(2, "a command must come first, got \"--epochs\"; " + known, {"--epochs", "3"});
  Fails(2, "unknown command \"trian\"; did you mean \"train\"?", {"trian"});
  Fails(2, "unknown command \"compile\"; " + known, {"compile"});
}

TEST_F(UsageTest, OptionsAndStrayWordsOfEveryCommand) {
  for (const std::string& command : kCommands) {
    const std::string help = "\ntry: bindery " + command + " --help";
    Fails(2, "unknown option \"--jsn\"; did you mean \"--json\"?" + help, {command, "--jsn"});
    Fails(2, "unknown option \"-json\"; did you mean \"--json\"?" + help, {command, "-json"});
    Fails(2, "unknown option \"--zzzzzzzzzz\"" + help, {command, "--zzzzzzzzzz=1"});
    Fails(2, "unexpected word \"extra\": " + command + " takes options only" + help, {command, "extra"});
    Fails(2, "unexpected word \"json\": " + command + " takes options only; did you mean \"--json\"?",
          {command, "json"});
    Fails(2, "--json takes no value", {command, "--json=yes"});
  }
  Fails(2, "unknown option \"--modle\"; did you mean \"--model\"?", {"train", "--modle", "mlp"});
  Fails(2, "unknown option \"--min-acuracy\"; did you mean \"--min-accuracy\"?", {"test", "--min-acuracy=1"});
  Fails(2, "unknown option \"--lr\": the rate is the optimizer's: --optimizer \"sgd(lr=0.1)\"", {"train", "--lr", "1"});
  Fails(2, "unknown option \"--batch\": it is --batch-size", {"test", "--batch", "8"});
  Fails(2, "unknown option \"--gpu\": GPUs are devices: --device cuda:0", {"train", "--gpu=0"});
  Fails(2, "unknown option \"--lr\"\n", {"test", "--lr", "1"});   // which has no optimizer
  Fails(2, "unknown option \"--resume\"", {"test", "--resume"});  // an option of another command
}

TEST_F(UsageTest, ValuesThatAreMissing) {
  for (const char* option :
       {"--model",          "--weights",      "--dropout",      "--device",      "--workload",         "--threads",
        "--device-timeout", "--data",         "--train-digits", "--test-digits", "--digits-seed",      "--batch-size",
        "--epochs",         "--optimizer",    "--schedule",     "--loss-scale",  "--average",          "--initializer",
        "--metrics",        "--kvstore",      "--seed",         "--checkpoints", "--checkpoint-every", "--keep",
        "--save",           "--write-digits", "--progress",     "--test-part"}) {
    Fails(2, std::string(option) + ": its value is missing", {"train", option});
    Fails(2, std::string(option) + ": its value is missing before \"--json\"", {"train", option, "--json"});
  }
  Fails(2, "--metrics: its value is missing", {"test", "--metrics"});
  Fails(2, "--min-accuracy: its value is missing", {"test", "--min-accuracy"});
  Fails(2, "--show: its value is missing", {"predict", "--show"});
  Fails(2, "--output: its value is missing", {"predict", "--output"});
  for (const std::string option : {"--prompt", "--length", "--temperature", "--seed", "--model", "--checkpoints"}) {
    Fails(2, option + ": its value is missing", {"generate", option});
  }
  Fails(2, "--shape: its value is missing", {"inspect", "--shape"});
  Fails(2, "--epochs is given twice", {"train", "--epochs", "1", "--epochs=2"});
  Fails(2, "--devices is given twice", {"train", "--device", "cpu:0", "--devices", "cpu:0"});
  EXPECT_TRUE(Files().empty());
}

TEST_F(UsageTest, WholeNumbers) {
  struct Option {
    const char *command, *name, *range;
    bool zero = false;
  };
  const std::vector<Option> options = {
      {"train", "--epochs", "from 1 to 1000000"},
      {"train", "--train-digits", "from 1 to 10000000"},
      {"train", "--test-digits", "from 1 to 10000000"},
      {"train", "--batch-size", "from 1 to 1000000"},
      {"train", "--keep", "from 1 to 1000000"},
      {"train", "--digits-seed", "from 0 to 18446744073709551615", true},
      {"train", "--seed", "from 0 to 18446744073709551615", true},
      {"train", "--threads", "from 0 to 1024", true},
      {"train", "--device-timeout", "from 0 to 1000000", true},
      {"test", "--device-timeout", "from 0 to 1000000", true},
      {"train", "--checkpoint-every", "from 0 to 9223372036854775807", true},
      {"test", "--batch-size", "from 1 to 1000000"},
      {"predict", "--show", "from 0 to 9223372036854775807", true},
      {"generate", "--length", "from 0 to 1000000", true},
      {"inspect", "--batch-size", "from 1 to 1000000"},
      {"inspect", "--shape", "from 1 to 9223372036854775807"},
  };
  for (const Option& option : options) {
    for (const std::string text :
         {"-1", "1.5", "x", "", "1x", " 1", "0x10", "1e3", "+1", "18446744073709551616", "0"}) {
      if (text == "0" && option.zero) continue;
      Fails(2, std::string(option.name) + ": expected a whole number " + option.range + ", got \"" + text + "\"",
            {option.command, option.name, text});
    }
  }
}

TEST_F(UsageTest, Numbers) {
  for (const std::string text : {"-0.1", "1", "nan", "inf", "", "0.5x", "1e999"}) {
    Fails(2, "--dropout: expected a number from 0 to 0.99, got \"" + text + "\"", {"train", "--dropout", text});
  }
  Fails(2, "--temperature: expected a number from 0 to 1000, got \"-1\"", {"generate", "--temperature", "-1"});
  Fails(2, "--test-part: expected a number from 0 to 1, got \"1.1\"", {"train", "--test-part", "1.1"});
  for (const std::string text : {"-1", "1.01", "nan", "x"}) {
    Fails(2, "--min-accuracy: expected a number from 0 to 1, got \"" + text + "\"", {"test", "--min-accuracy", text});
  }
}

TEST_F(UsageTest, DevicesAndWorkloads) {
  for (const std::string command : {"train", "test", "predict"}) {
    for (const std::string text : {"gpu:0", "cpu:x", "cpu:-1", "", "cpu:", "CPU:0", "cpu:99999999999"}) {
      Fails(2,
            "--device: invalid device \"" + text +
                "\": expected cpu, cuda or sim, or one of them with a number as in cpu:1",
            {command, "--device", text, "--weights", "none.pb"});
    }
    Fails(2, "--workload: expected 2 numbers, one per device, got 3", {command, "--workload", "1,2,3"});
    Fails(2, "--workload: not all may be 0", {command, "--workload", "0,0"});
    for (const std::string text : {"-1,1", "nan,1", "1,inf", "1,,1", "1,x", ","}) {
      Fails(2, "--workload: expected a number from 0 to 1000000000, got ", {command, "--workload", text});
    }
  }
  Fails(2, "--device: invalid device \"gpu:0\"", {"inspect", "--plan", "--device", "gpu:0"});
  Fails(2, "--device: invalid device \"\"", {"train", "--device", "cpu:0,"});
  std::string many = "cpu:0";
  for (int i = 1; i < 65; ++i) many += ",cpu:" + std::to_string(i);
  Fails(2, "--device: at most 64 devices, got 65", {"train", "--device", many});
  Fails(6, " is not available: ", {"train", "--device", "cuda:999"});  // neither on machines with GPUs
  Fails(6, "sim:0 is for tests", {"train", "--device", "sim:0"});
}

TEST_F(UsageTest, NamesAndSettings) {
  struct Case {
    const char *option, *text, *message;
  };
  const std::vector<Case> cases = {
      {"--model", "lenett", "\"lenett\" is neither a model by name nor a file; did you mean \"lenet\"?"},
      {"--model", "inception", "known: mlp, lenet, resnet20, resnet18, resnet34, resnet50, mobilenetv2, vgg11, unet"},
      {"--model", "gpt(layrs=2)", "unknown setting \"layrs\"; did you mean \"layers\"?"},
      {"--model", "gpt(width=10)", "width must be a multiple of heads, got 10 and 4"},
      {"--model", "gpt", "\"gpt\" takes text (--data text:FILE), not images"},
      {"--optimizer", "sdg(lr=1)", "unknown optimizer \"sdg\"; did you mean \"sgd\"?"},
      {"--optimizer", "sgd(lr=x)", "\"lr\" must be a number, got \"x\""},
      {"--optimizer", "sgd(lr=1", "the closing parenthesis is missing"},
      {"--optimizer", "sgd(lr=-1)", "must be a number >= 0, got -1"},
      {"--optimizer", "sgd(momentun=0.9)", "unknown setting \"momentun\"; did you mean \"momentum\"?"},
      {"--optimizer", "", "expected a name"},
      {"--schedule", "facto(1,2)", "unknown schedule \"facto\"; did you mean \"factor\"?"},
      {"--schedule", "factor", "\"step\" is missing"},
      {"--schedule", "factor(step=0, factor=0.5)", "step must be >= 1, got 0"},
      {"--schedule", "steps(at=5;3)", "steps must increase, got 3 after 5"},
      {"--precision", "bfloat", "unknown precision \"bfloat\"; did you mean \"bfloat16\"?"},
      {"--precision", "float16(Poolin=low)", "unknown setting \"Poolin\"; did you mean \"Pooling\"?"},
      {"--precision", "float16(Pooling=high)", "Pooling must be low, float32 or follow, got \"high\""},
      {"--loss-scale", "dynamik", "unknown loss scale \"dynamik\"; did you mean \"dynamic\"?"},
      {"--loss-scale", "dynamic(backoff=2)", "backoff must be in (0, 1)"},
      {"--average", "ema(1)", "decay must be in [0, 1)"},
      {"--average", "swa", "\"start\" is missing"},
      {"--initializer", "xaviar", "did you mean \"xavier\"?"},
      {"--initializer", "glorot", "the forms are zero, one"},
      {"--initializer", "normal(-1)", "\"sigma\" must be at least 0, got -1"},
      {"--metrics", "acuracy", "unknown metric \"acuracy\"; did you mean \"accuracy\"?"},
      {"--metrics", "accuracy,", "expected a name"},
      {"--metrics", "top-k(0)", "k must be >= 1, got 0"},
      {"--metrics", "top-k(11)", "output \"softmax_output\" of shape (1, 10) has 10 classes only"},
      {"--metrics", "mse", "label \"softmax_label\" of shape (1) does not fit output \"softmax_output\""},
      {"--metrics", "accuracy(output=foo)", "no output is named \"foo\"; known: softmax_output"},
      {"--mirror", "half", "expected off, auto, least, a share of the working memory as 50%, or bytes of it as 512M"},
      {"--mirror", "0%", "expected off, auto, least"},
      {"--tune", "fast", "unknown way to choose kernels \"fast\"; choices: off, measured, winograd"},
      {"--micro-batches", "two", "expected a whole number from 1 to 32768, got \"two\""},
      {"--micro-batches", "0", "expected a whole number from 1 to 32768, got \"0\""},
      {"--micro-batches", "65", "a batch of 64 samples makes at most 64, got 65"},
      {"--memory-limit", "much", "expected bytes, as 2000000, 512M or 1.5G, got \"much\""},
      {"--memory-limit", "1.5", "expected bytes, as 2000000, 512M or 1.5G"},
      {"--memory-limit", "0", "expected bytes, as 2000000, 512M or 1.5G"},
      {"--memory-limit", "-1G", "expected bytes, as 2000000, 512M or 1.5G"},
      {"--memory-limit", "9999999T", "expected bytes, as 2000000, 512M or 1.5G"},
      {"--memory-limit", "2GB", "expected bytes, as 2000000, 512M or 1.5G"},
      {"--kvstore", "devise", "unknown type of store \"devise\"; choices: local, device"},
      {"--progress", "bra", "unknown style \"bra\"; did you mean \"bar\"?"},
      {"--save", "model.txt", "expected a name that ends in .pb, .prototxt or .onnx, got \"model.txt\""},
  };
  for (const Case& c : cases) {
    const Words model = std::string(c.option) == "--model" ? Words{} : Words{"--model", "mlp"};
    const Outcome outcome =
        Fails(2, c.message, Words{"train", "--train-digits=10", "--test-digits=10", c.option, c.text} + model);
    EXPECT_EQ(outcome.err.rfind(std::string("bindery: ") + c.option + ": ", 0), 0u) << outcome;
    EXPECT_EQ(outcome.out, "");
  }
  Fails(2, "--metrics: unknown metric \"acuracy\"", {"test", "--metrics", "acuracy"});
  Fails(2, "--model: \"lenett\" is neither", {"inspect", "--model", "lenett"});
  Fails(2, "--model: \"lenett\" is neither", {"test", "--model", "lenett"});
  Fails(2, "--model: \"" + std::string(5000, 'a') + "\"", {"predict", "--model", std::string(5000, 'a')});
  EXPECT_TRUE(Files().empty());  // nothing is written before all is understood
}

TEST_F(UsageTest, OptionsThatExcludeEachOther) {
  Fails(2, "--resume needs a folder", {"train", "--resume", "--checkpoints="});
  Fails(2, "--min-accuracy needs the metric accuracy", {"test", "--min-accuracy", "0.5", "--metrics", "cross-entropy"});
  Fails(2, "--json has layers, plan and memory; --plan is another call", {"inspect", "--plan", "--json"});
  Fails(2, "--dot draws the graph", {"inspect", "--memory", "--dot", "-"});
  Fails(2, "--plan, --dot and --html are another call", {"inspect", "--memory-limit", "1G", "--plan"});
  Fails(2, "--json has layers, plan and memory; --memory-limit is text", {"inspect", "--memory-limit", "1G", "--json"});
  Fails(2, "--optimizer counts its state in the memory", {"inspect", "--optimizer", "adam"});
  Fails(2, "--optimizer: unknown optimizer", {"inspect", "--memory", "--optimizer", "adamm"});
  Fails(2, "--memory-limit says how many micro-batches there are", {"train", "--memory-limit", "1G"});
  Fails(2, "--mirror changes the plan and the memory of a training", {"inspect", "--mirror", "50%"});
  Fails(2, "--mirror changes the plan and the memory of a training",
        {"inspect", "--memory", "--predict", "--mirror", "50%"});
  Fails(2, "--tune changes the plan and its memory", {"inspect", "--tune"});
  Fails(2, "--tune chooses by what is fast here: not both", {"train", "--tune", "--reproducible"});
  Fails(2, "--mirror auto needs a --memory-limit", {"inspect", "--memory", "--mirror", "auto"});
  Write("model.pb", "");
  Fails(2, "--dropout is for models by name", {"train", "--model", "model.pb", "--dropout", "0.5"});
  Fails(2, "--sync-batch-norm is for models by name", {"inspect", "--model", "model.pb", "--sync-batch-norm"});
  Fails(2, "there is no checkpoint in \"nowhere\": train first", {"test", "--checkpoints", "nowhere"});
}

TEST_F(UsageTest, FilesThatAreWrittenAreDifferentOnes) {
  Write("table.csv", "a,label\n1,0\n2,1\n");
  Write("start.pb", "");
  const auto same = [&](const std::string& message, const Words& more) {
    Fails(2, message, Words{"train", "--model", "mlp", "--checkpoints="} + more);
  };
  same("--save and --best are the same: \"./m.pb\"", {"--save", "m.pb", "--best", "./m.pb"});
  same("--save and --best are the same: \"new/../m.pb\"", {"--best", "new/../m.pb", "--save", PathOf("m.pb")});
  same("--save and --log are the same: \"m.pb\"", {"--save", "m.pb", "--log", "m.pb"});
  same("--best and --log are the same: \"m.pb\"", {"--best", "m.pb", "--log", "m.pb"});
  Fails(2, "--save and --checkpoints are the same: \"m.pb/\"", {"train", "--save", "m.pb", "--checkpoints", "m.pb/"});
  Fails(2, "--log and --checkpoints are the same", {"train", "--log", "bindery-checkpoints"});
  same("--best and --write-digits are the same: \"m.pb\"", {"--best", "m.pb", "--write-digits", "m.pb"});
  same("--data and --log are the same: \"table.csv\"", {"--data", "csv:table.csv?label=label", "--log", "table.csv"});
  same("--weights and --log are the same: \"start.pb\"", {"--weights", "start.pb", "--log", "start.pb"});
  EXPECT_EQ(Files(), (Words{"start.pb", "table.csv"}));
}

TEST_F(UsageTest, HelpNamesCommandsOptionsAndStatuses) {
  const std::string help = Succeeds({"--help"}).out;
  for (const std::string& command : kCommands) {
    EXPECT_NE(help.find("  " + command + " "), std::string::npos) << command;
    EXPECT_EQ(Succeeds({command, "--help"}).out, Succeeds({command, "-h"}).out);
  }
  for (const char* code : {"0 done", "2 wrong usage", "4 unusable data", "75 stopped"}) {
    EXPECT_NE(help.find(code), std::string::npos) << code;
  }
  // What an option is if it stands alone is not what it is without it.
  for (const char* command : {"test", "predict"}) {  // who says nothing means no drawn digits there
    const std::string of_run = Succeeds({command, "--help"}).out;
    EXPECT_EQ(of_run.find("--data TEXT=digits"), std::string::npos);
    EXPECT_NE(of_run.find("; default: what the checkpoint's run was trained on"), std::string::npos);
  }
  const std::string train = Succeeds({"train", "--help"}).out;
  EXPECT_NE(train.find("--reproducible [INT] "), std::string::npos) << train;
  EXPECT_NE(train.find("--balance [TEXT] "), std::string::npos) << train;
  EXPECT_NE(train.find("--tune [TEXT] "), std::string::npos) << train;
  EXPECT_EQ(Succeeds({"help"}).out, help);
  EXPECT_EQ(Succeeds({"help", "train"}).out, train);
  EXPECT_EQ(Succeeds({"--version"}).out, "bindery 0.1.0\n");
  EXPECT_EQ(Succeeds({"version"}).out, "bindery 0.1.0\n");
  Fails(2, "--version stands alone, got \"train\" after it", {"--version", "train"});
}

// Standard error is for people; that nobody can read it ends no run, and opens no file to its text.
TEST_F(UsageTest, StandardErrorMayBeUnwritable) {
  const auto run = [&](const std::string& redirection, const Words& arguments) {
    return Process(Words{"/bin/sh", "-c", "exec \"$@\" " + redirection, "sh"} + Command(arguments), folder()).Wait();
  };
  for (const std::string redirection : {"2>/dev/full", "2>&-", "<&- 2>&-"}) {
    EXPECT_EQ(run(redirection, Training(2, {"--checkpoints", "run", "--overwrite", "--progress", "bar"})).status, 0)
        << redirection;
    Succeeds(Words{"test", "--checkpoints", "run", "--test-digits", "50"});
    EXPECT_EQ(run(redirection, Training(2, {"--checkpoints", "run", "--resume"})).status, 0) << redirection;
    EXPECT_EQ(run(redirection, {"train", "--epoch", "1"}).status, 2) << redirection;
    EXPECT_EQ(run(redirection, {"test", "--weights", "none.pb"}).status, 4) << redirection;
  }
  EXPECT_EQ(run(">&- 2>&-", {"devices"}).status, 4);
}

// What the shell would do with `> /dev/full`.
TEST_F(UsageTest, ResultsThatCannotBeWrittenAreAnError) {
  const auto run = [&](const std::string& arguments) {
    const std::string line = "'" + Command({})[0] + "' " + arguments + " > /dev/full";
    const Outcome outcome = Process({"/bin/sh", "-c", line}, folder()).Wait();
    EXPECT_EQ(outcome.status, 4) << outcome;
    EXPECT_NE(outcome.err.find("bindery: cannot write to standard output: "), std::string::npos) << outcome;
    return outcome;
  };
  for (const char* arguments :
       {"devices", "--help", "manual", "inspect --model mlp", "inspect --model resnet20 --plan"}) {
    const Outcome outcome = run(arguments);
    EXPECT_NE(outcome.err.find("No space left on device"), std::string::npos) << outcome;
  }
  // Lines that are written one by one: the run goes on, and leaves what it is for.
  run("train --json --model mlp --train-digits 100 --test-digits 50 --epochs 2 --threads 1 --checkpoints run");
  Succeeds({"verify", "run/step-0000000004.ckpt"});
  run("test --json --checkpoints run");
  run("predict --json --checkpoints run");
}

}  // namespace
}  // namespace bindery
