// The protocol of the threaded engine, by itself: after each step exactly those accesses are granted that nothing
// excludes.
#include "engine/threaded/access_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <vector>

namespace bindery {
namespace {

struct Waiting : Claim {
  std::vector<PendingAccess> accesses;
  bool ready = false;
};

void ExpectGranted(const Var& var) {
  bool only_shared = true;
  for (const PendingAccess* access = var.first; access; access = access->next) {
    ASSERT_EQ(access->granted, access->exclusive ? access == var.first : only_shared);
    only_shared &= !access->exclusive;
  }
}

TEST(AccessQueue, GrantsWhatNothingExcludes) {
  std::mt19937 random(1);
  for (int run = 0; run < 300; ++run) {
    std::array<Var, 3> vars = {Var(nullptr), Var(nullptr), Var(nullptr)};
    std::vector<std::unique_ptr<Waiting>> claims;
    const auto ready = [](Claim& claim) { static_cast<Waiting&>(claim).ready = true; };
    for (int step = 0; step < 150; ++step) {
      if (claims.empty() || random() % 2 == 0) {
        auto claim = std::make_unique<Waiting>();
        claim->waiting = random() % 4 == 0;
        const size_t wanted = claim->waiting ? 1 : 1 + random() % vars.size(), first = random() % vars.size();
        for (size_t v = 0; v < wanted; ++v) {
          claim->accesses.push_back({.claim = claim.get(),
                                     .var = &vars[(first + v) % vars.size()],
                                     .exclusive = claim->waiting || random() % 3 == 0});
        }
        claim->ready = Enter(*claim, claim->accesses);
        claims.push_back(std::move(claim));
      } else {  // one is finished; or not granted yet, and a thread gives up
        const auto claim = claims.begin() + static_cast<std::ptrdiff_t>(random() % claims.size());
        if (!(*claim)->ready && !(*claim)->waiting) continue;
        for (PendingAccess& access : (*claim)->accesses) Leave(access, ready);
        claims.erase(claim);
      }
      for (const Var& var : vars) ExpectGranted(var);
      for (const auto& claim : claims) {
        ASSERT_EQ(claim->ready, std::ranges::all_of(claim->accesses, &PendingAccess::granted));
      }
      if (testing::Test::HasFatalFailure()) FAIL() << "run " << run << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace bindery
