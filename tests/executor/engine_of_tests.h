// An engine for all tests of a program: what runs kernels one by one need not make streams for each.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "engine/engine.h"

namespace bindery {

// Runs everything at once; until the tests are over.
inline const std::shared_ptr<Engine>& EngineOfTests() {
  struct Owner final : testing::Environment {
    void SetUp() override { engine = MakeInlineEngine(); }
    void TearDown() override { engine = nullptr; }
    std::shared_ptr<Engine> engine = MakeInlineEngine();
  };
  static auto& owner = static_cast<Owner&>(*testing::AddGlobalTestEnvironment(new Owner));
  return owner.engine;
}

}  // namespace bindery
