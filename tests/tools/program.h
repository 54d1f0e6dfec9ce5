// Runs programs as a user would: in a folder of its own, with its output caught, and with a time limit.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bindery {

using nlohmann::json;
using Words = std::vector<std::string>;  // a command, or other texts

struct Outcome {
  int status = -1;       // 128 + n if signal n ended it
  std::string out, err;  // what it wrote to standard output and standard error
};
std::ostream& operator<<(std::ostream& stream, const Outcome& outcome);

// A running program. Its output goes to files, so it never waits for a reader.
class Process {
 public:
  // `command[0]` is the program's path; `folder` becomes its current folder. Standard input is empty.
  Process(const Words& command, const std::string& folder);
  ~Process();  // ends it
  Process(const Process&) = delete;

  void Signal(int number);
  bool Running();
  // Ends it with SIGKILL if it does not end by itself in time.
  Outcome Wait(std::chrono::seconds limit = std::chrono::seconds(60));
  std::string Err() const;  // what it has written to standard error so far

 private:
  static constexpr int kRunning = -1;
  int pid_ = 0, status_ = kRunning;
  std::string out_path_, err_path_;
};

// Tests of `bindery`, each in an empty folder that goes with it.
class ProgramTest : public testing::Test {
 protected:
  ProgramTest();
  ~ProgramTest() override;

  static Words Command(const Words& arguments);  // the program's path before them
  Outcome Bindery(const Words& arguments) const;
  // The same, checked: the status is `status` and standard error contains `message`.
  Outcome Fails(int status, const std::string& message, const Words& arguments) const;
  // Under a limit of address space (`ulimit -v`); the sanitizers, which need terabytes of it, run without.
  Outcome WithAddressSpace(int64_t kibibytes, const Words& arguments) const;
  Outcome Succeeds(const Words& arguments) const;
  // What it prints; `arguments` ask for JSON.
  json Json(const Words& arguments) const;
  // Of JSON, one value a line.
  static std::vector<json> Lines(const std::string& text);

  std::string PathOf(const std::string& name) const { return folder_ + "/" + name; }
  std::string Read(const std::string& name) const;
  void Write(const std::string& name, const std::string& bytes) const;
  Words Files(const std::string& folder = ".") const;  // names, sorted; also those with a dot
  // All files `<path>*`, with their content: a model is a file or two, and one names the other.
  std::map<std::string, std::string> ModelFiles(const std::string& path) const;

  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

// A training that takes a moment, on 100 digits in two steps an epoch; more options may follow.
Words Training(int epochs, const Words& more = {});
Words operator+(Words a, const Words& b);

}  // namespace bindery
