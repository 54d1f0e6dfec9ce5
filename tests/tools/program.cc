#include "tests/tools/program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace bindery {
namespace {

namespace fs = std::filesystem;

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

std::string NewFolder(const char* kind) {
  const char* base = std::getenv("TEST_TMPDIR");
  std::string path = std::string(base ? base : "/tmp") + "/" + kind + "-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("cannot make the folder " + path);
  return path;
}

}  // namespace

std::ostream& operator<<(std::ostream& stream, const Outcome& outcome) {
  return stream << "status " << outcome.status << "\nstdout:\n" << outcome.out << "\nstderr:\n" << outcome.err;
}

Process::Process(const Words& command, const std::string& folder) {
  static int count = 0;
  const std::string output = folder + ".output" + std::to_string(count++);
  out_path_ = output + ".out";
  err_path_ = output + ".err";
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  const int error = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + command[0]);
}

Process::~Process() {
  if (Running()) Signal(SIGKILL);
  if (status_ == kRunning) ::waitpid(pid_, nullptr, 0);
  fs::remove(out_path_);
  fs::remove(err_path_);
}

void Process::Signal(int number) {
  if (Running()) ::kill(pid_, number);
}

bool Process::Running() {
  if (status_ != kRunning) return false;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == 0) return true;
  status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return false;
}

Outcome Process::Wait(std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (Running()) {
    if (std::chrono::steady_clock::now() > end) Signal(SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return {.status = status_, .out = ReadBytes(out_path_), .err = ReadBytes(err_path_)};
}

std::string Process::Err() const { return ReadBytes(err_path_); }

ProgramTest::ProgramTest() : folder_(NewFolder("bindery")) {}
ProgramTest::~ProgramTest() { fs::remove_all(folder_); }

Words ProgramTest::Command(const Words& arguments) {
  const char* sources = std::getenv("TEST_SRCDIR");
  const char* workspace = std::getenv("TEST_WORKSPACE");
  if (sources == nullptr || workspace == nullptr) throw std::runtime_error("run this test with bazel");
  return Words{std::string(sources) + "/" + workspace + "/tools/bindery"} + arguments;
}

Outcome ProgramTest::Bindery(const Words& arguments) const { return Process(Command(arguments), folder_).Wait(); }

Outcome ProgramTest::Fails(int status, const std::string& message, const Words& arguments) const {
  const Outcome outcome = Bindery(arguments);
  std::string line = "bindery";
  for (const std::string& argument : arguments) line += " '" + argument + "'";
  EXPECT_EQ(outcome.status, status) << line << "\n" << outcome;
  EXPECT_NE(outcome.err.find(message), std::string::npos) << line << "\nexpected: " << message << "\n" << outcome;
  return outcome;
}

Outcome ProgramTest::WithAddressSpace(int64_t kibibytes, const Words& arguments) const {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return Bindery(arguments);
#endif
  const std::string line = "ulimit -v " + std::to_string(kibibytes) + "; exec \"$@\"";
  return Process(Words{"/bin/sh", "-c", line, "sh"} + Command(arguments), folder_).Wait();
}

Outcome ProgramTest::Succeeds(const Words& arguments) const { return Fails(0, "", arguments); }

json ProgramTest::Json(const Words& arguments) const {
  const Outcome outcome = Succeeds(arguments);
  return outcome.status == 0 ? json::parse(outcome.out) : json();
}

std::vector<json> ProgramTest::Lines(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
  return lines;
}

std::string ProgramTest::Read(const std::string& name) const { return ReadBytes(PathOf(name)); }

void ProgramTest::Write(const std::string& name, const std::string& bytes) const {
  std::ofstream(PathOf(name), std::ios::binary) << bytes;
}

Words ProgramTest::Files(const std::string& folder) const {
  Words names;
  for (const auto& entry : fs::directory_iterator(PathOf(folder))) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::map<std::string, std::string> ProgramTest::ModelFiles(const std::string& path) const {
  const fs::path folder = fs::path(path).parent_path(), name = fs::path(path).filename();
  std::map<std::string, std::string> files;
  for (const std::string& file : Files(folder)) {
    if (file.starts_with(name.string())) files[file] = Read(folder / file);
  }
  return files;
}

Words Training(int epochs, const Words& more) {
  const Words words = {"train", "--model", "mlp", "--train-digits", "100", "--test-digits", "50"};
  return words + Words{"--epochs", std::to_string(epochs), "--threads", "1"} + more;
}

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace bindery
