#include "tools/cli/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string_view>

#include "tools/cli/console.h"

namespace bindery::cli {
namespace {

std::atomic<Trainer*> running = nullptr;

void SayInSignal(std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

// First signal: stop after this step, with a checkpoint. Second: at once.
void OnSignal(int signal) {
  Trainer* trainer = running.exchange(nullptr);
  if (trainer == nullptr) _exit(128 + signal);
  trainer->RequestStop();
  if (!IsSilent()) SayInSignal("\nbindery: stopping after this step; once more: at once\n");
}

// The terminal has gone, or somebody wants a checkpoint now: the run goes on.
void OnHangUp(int) {
  Trainer* trainer = running.load();
  if (trainer == nullptr) return;
  trainer->RequestCheckpoint();
  SayInSignal("\nbindery: saving a checkpoint after this step, then going on\n");
}

}  // namespace

ListenToSignals::ListenToSignals(Trainer* trainer) {
  running = trainer;
  std::signal(SIGINT, OnSignal);
  std::signal(SIGTERM, OnSignal);
  std::signal(SIGUSR1, OnSignal);  // of batch systems, some time before they end a job
  if (std::signal(SIGHUP, OnHangUp) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);  // nohup
}

ListenToSignals::~ListenToSignals() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGHUP, SIG_IGN);  // what is left is a report
  std::signal(SIGUSR1, SIG_IGN);
  running = nullptr;
}

}  // namespace bindery::cli
