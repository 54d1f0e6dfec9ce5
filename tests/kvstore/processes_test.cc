// Collectives among processes: their values, their order, and what becomes of those who fail.
#include "kvstore/processes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "engine/team.h"
#include "kvstore/kvstore.h"
#include "kvstore/process_exchange.h"
#include "tests/message_of.h"
#include "tests/thread_processes.h"

namespace bindery {
namespace {

template <class T>
std::vector<T> Drawn(int64_t count, uint64_t seed) {
  PhiloxStream stream(seed, "values");
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<T>(stream.Uniform() - 0.5));
  return values;
}

template <class T>
Processes::Values Of(DType dtype, std::vector<T>* values) {
  return {dtype, values->data(), std::ssize(*values)};
}

// In the order of the processes, to the bit; lengths that the pieces of an exchange do not divide, too.
TEST(Processes, ShareTheCoresThatAllMayRunOn) {
  for (const int count : {1, 2, 3}) {
    ExpectProcesses(
        count, [&](const ProcessesPtr& processes) { EXPECT_EQ(processes->cores(), std::max(1, NumCores() / count)); });
  }
}

TEST(Processes, SumsAreInTheOrderOfTheProcesses) {
  for (const int count : {1, 2, 3, 5}) {
    for (const int64_t elements : {0, 1, 2, 7, 100'003, 3'000'001}) {
      std::vector<float> expected = Drawn<float>(elements, 0);
      for (int other = 1; other < count; ++other) {
        const std::vector<float> values = Drawn<float>(elements, static_cast<uint64_t>(other));
        for (size_t i = 0; i < expected.size(); ++i) expected[i] += values[i];
      }
      ExpectProcesses(count, [&](const ProcessesPtr& processes) {
        std::vector<float> values = Drawn<float>(elements, static_cast<uint64_t>(processes->rank()));
        std::vector<double> ones = {1.0, 2.0};
        const Processes::Values both[] = {Of(DType::kFloat32, &values), Of(DType::kFloat64, &ones)};
        processes->AllReduceSum(both);
        EXPECT_TRUE(values == expected);
        EXPECT_EQ(ones, (std::vector<double>{1.0 * count, 2.0 * count}));
      });
    }
  }
}

// Each has ranges of its own, which are all together; what becomes of these is gathered.
TEST(Processes, SumsAreSharedOutByRanges) {
  for (const int count : {1, 2, 3, 5}) {
    for (const int64_t elements : {0, 1, 17, 4096, 300'001}) {
      std::vector<double> expected = Drawn<double>(elements, 0);
      for (int other = 1; other < count; ++other) {
        const std::vector<double> values = Drawn<double>(elements, static_cast<uint64_t>(other));
        for (size_t i = 0; i < expected.size(); ++i) expected[i] += values[i];
      }
      std::atomic<int64_t> owned = 0;
      ExpectProcesses(count, [&](const ProcessesPtr& processes) {
        const std::vector<double> before = Drawn<double>(elements, static_cast<uint64_t>(processes->rank()));
        std::vector<double> whole = before, own;
        for (const auto& [begin, end] : processes->OwnRanges(DType::kFloat64, elements)) {
          own.resize(own.size() + static_cast<size_t>(end - begin));
        }
        owned += std::ssize(own);
        const Processes::Shared values[] = {{DType::kFloat64, whole.data(), own.data(), elements}};
        processes->ReduceScatterSum(values);
        EXPECT_EQ(whole, before);
        size_t at = 0;
        for (const auto& [begin, end] : processes->OwnRanges(DType::kFloat64, elements)) {
          for (int64_t i = begin; i < end; ++i) ASSERT_EQ(own[at++], expected[static_cast<size_t>(i)]);
        }
        for (double& value : own) value *= 2;
        processes->AllGatherRanges(values);
        for (size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(whole[i], 2 * expected[i]);
      });
      EXPECT_EQ(owned, elements);
    }
  }
}

// One of two, whose other one has the same values: notes where they are taken from and put.
class WithItsDouble final : public Processes {
 public:
  WithItsDouble() : Processes(0, 2) {}
  std::vector<const void*> sent, received;
  std::function<void()> within = {};  // the next exchange

 private:
  void DoAllGather(const void* mine, void* all, int64_t bytes) override {
    for (int i = 0; i < 2; ++i) std::memcpy(static_cast<char*>(all) + i * bytes, mine, static_cast<size_t>(bytes));
    received.push_back(all);
    if (within) std::exchange(within, {})();
  }
  void DoBroadcast(void*, int64_t) override {}
  void DoAllToAll(const void* mine, void* all, int64_t bytes) override {
    for (int i = 0; i < 2; ++i) std::memcpy(static_cast<char*>(all) + i * bytes, mine, static_cast<size_t>(bytes));
    sent.push_back(mine);
  }
};

// Values that divide evenly are copied by nobody but those who exchange them.
TEST(Processes, ValuesAreExchangedWhereTheyAre) {
  WithItsDouble processes;
  std::vector<float> values(64, 3), own(32);
  const Processes::Values in_place[] = {Of(DType::kFloat32, &values)};
  processes.AllReduceSum(in_place);
  EXPECT_EQ(values, std::vector<float>(64, 6));
  const Processes::Shared shared[] = {{DType::kFloat32, values.data(), own.data(), 64}};
  processes.ReduceScatterSum(shared);
  EXPECT_EQ(own, std::vector<float>(32, 12));
  EXPECT_EQ(processes.sent, std::vector<const void*>(2, values.data()));
  EXPECT_EQ(processes.received[1], values.data());
  processes.AllGatherRanges(shared);
  EXPECT_EQ(processes.received.back(), values.data());
}

// Whoever asks gets the whole, whatever the others are about to call, which they then do.
TEST(Processes, WhatIsOfferedIsGivenFromWithinAnyCall) {
  for (const int askers : {1, 2, 3}) {
    ExpectProcesses(3, [&](const ProcessesPtr& processes) {
      const int64_t elements = 100'000;
      int64_t count = 0;
      for (const auto& [begin, end] : processes->OwnRanges(DType::kFloat32, elements)) count += end - begin;
      std::vector<float> own(static_cast<size_t>(count), static_cast<float>(processes->rank()));
      const auto offered = [&] {
        return Processes::Given{.values = {{DType::kFloat32, nullptr, own.data(), elements}}};
      };
      const int64_t other = processes->Offer([] { return Processes::Given(); });
      const int64_t offer = processes->Offer(offered);
      for (int round = 0; round < 3; ++round) {
        if (processes->rank() < askers) {
          std::vector<float> whole(static_cast<size_t>(elements), -1);
          void* const wholes[] = {whole.data()};
          processes->Ask(offer, wholes);
          if (processes->rank() == 1) processes->Ask(other, {});
          for (const auto& [begin, end] : processes->OwnRanges(DType::kFloat32, elements)) {
            for (int64_t i = begin; i < end; ++i) EXPECT_EQ(whole[static_cast<size_t>(i)], processes->rank());
          }
          for (const float value : whole) ASSERT_TRUE(value >= 0 && value <= 2);
        }
        std::vector<double> ones = {1};
        const Processes::Values all[] = {Of(DType::kFloat64, &ones)};
        processes->AllReduceSum(all);
        EXPECT_EQ(ones[0], 3);
        processes->Barrier();
      }
      processes->Withdraw(offer);
      processes->Withdraw(other);
    });
  }
}

// What it gave away is kept as long as it is read.
TEST(Processes, AnOfferIsWithdrawnWhateverCallWaits) {
  WithItsDouble processes;
  const auto own = std::make_shared<std::vector<float>>(32, 3);
  const std::weak_ptr<const void> kept = own;
  const int64_t offer = processes.Offer([own = own]() -> Processes::Given {
    return {.values = {{DType::kFloat32, nullptr, own->data(), 64}}, .keeps = own};
  });
  std::vector<float> whole(64);
  void* const wholes[] = {whole.data()};
  processes.within = [&] {  // of meeting; then that of sizes
    processes.within = [&] {
      std::thread([&] { processes.Withdraw(offer); }).join();
      EXPECT_GT(kept.use_count(), 1);
    };
  };
  processes.Ask(offer, wholes);
  EXPECT_EQ(whole, std::vector<float>(64, 3));
}

TEST(Processes, WhatIsNotOfferedByAllIsAnErrorOnAll) {
  const std::vector<std::string> errors = RunProcesses(2, [](const ProcessesPtr& processes) {
    const int64_t offer = processes->Offer([] { return Processes::Given(); });
    if (processes->rank() == 1) processes->Withdraw(offer);
    processes->Barrier();
    if (processes->rank() == 0) processes->Ask(offer, {});
    processes->Barrier();
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error, "Error: one asks for values of all processes, but processes 0 and 1 do not have the same");
  }
  const std::vector<std::string> left = RunProcesses(2, [](const ProcessesPtr& processes) {
    const int64_t offer = processes->Offer([] { return Processes::Given(); });
    if (processes->rank() == 0) processes->Ask(offer, {});
  });
  EXPECT_EQ(left[0], "Error: process 1 of 2 has stopped: its program has ended");
}

TEST(Processes, SumsAreWeighed) {
  ExpectProcesses(3, [](const ProcessesPtr& processes) {
    std::vector<double> values = {1.0, std::pow(10, processes->rank())};
    const std::vector<double> weights = {0.5, 2, 3};
    const Processes::Values all[] = {Of(DType::kFloat64, &values)};
    processes->AllReduceSum(all, weights);
    EXPECT_EQ(values, (std::vector<double>{5.5, 320.5}));
    double own = 0;
    std::vector<double> whole = {1.0 + processes->rank()};
    const Processes::Shared shared[] = {{DType::kFloat64, whole.data(), &own, 1}};
    processes->ReduceScatterSum(shared, weights);
    EXPECT_EQ(own, processes->rank() == 0 ? 13.5 : 0);
  });
}

TEST(Processes, BytesAndTextsOfAnyLengthAreGatheredAndBroadcast) {
  ExpectProcesses(3, [](const ProcessesPtr& processes) {
    const auto text_of = [](int rank) { return std::string(static_cast<size_t>(rank) * 5'000'000, 'a' + rank); };
    EXPECT_EQ(processes->AllGather(text_of(processes->rank())),
              (std::vector<std::string>{text_of(0), text_of(1), text_of(2)}));
    std::string text = processes->rank() == 0 ? text_of(1) : "mine";
    processes->Broadcast(&text);
    EXPECT_EQ(text, text_of(1));
    text = processes->rank() == 0 ? "" : "mine";
    processes->Broadcast(&text);
    EXPECT_EQ(text, "");
    std::vector<int64_t> numbers(1'000'000, processes->rank());
    std::vector<int64_t> all(3'000'000, -1);
    processes->AllGather(numbers.data(), all.data(), 8'000'000);
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<int64_t>(i / 1'000'000));
    processes->Broadcast(numbers.data(), 8'000'000);
    EXPECT_EQ(numbers, std::vector<int64_t>(1'000'000, 0));
    processes->Barrier();
  });
}

TEST(Processes, CallsThatDoNotFitAreErrorsOnAll) {
  const std::vector<std::string> errors = RunProcesses(2, [](const ProcessesPtr& processes) {
    std::vector<double> values(processes->rank() == 0 ? 2 : 3);
    const Processes::Values all[] = {Of(DType::kFloat64, &values)};
    processes->AllReduceSum(all);
  });
  EXPECT_EQ(errors[0], "Error: AllReduceSum: process 0 has 16 bytes, process 1 has 24");
  EXPECT_EQ(errors[1], "Error: AllReduceSum: process 1 has 24 bytes, process 0 has 16");
  const std::vector<std::string> kinds = RunProcesses(2, [](const ProcessesPtr& processes) {
    std::vector<float> a(static_cast<size_t>(2 + processes->rank())), b(static_cast<size_t>(3 - processes->rank()));
    const Processes::Values both[] = {Of(DType::kFloat32, &a), Of(DType::kFloat32, &b)};
    processes->AllReduceSum(both);
  });
  EXPECT_EQ(kinds[0], "Error: AllReduceSum: processes 0 and 1 have as many bytes of other values");
  const std::vector<std::string> lines = RunProcesses(3, [](const ProcessesPtr& processes) {
    processes->CheckSame("a\nb\n", "they differ");
    processes->CheckSame(processes->rank() == 2 ? "a\n" : "a\nb\n", "they differ");
  });
  for (const std::string& line : lines)
    EXPECT_EQ(line, "Error: they differ: process 0 has b, process 2 has nothing more");
  const std::vector<std::string> places = RunProcesses(2, [](const ProcessesPtr& processes) {
    if (processes->rank() == 0) {
      processes->Barrier();
    } else {
      processes->AllGather(std::string("text"));
    }
  });
  EXPECT_EQ(places[0],
            "Error: the processes are not at the same place: process 0 calls Barrier, process 1 calls AllGather of "
            "texts");
  ExpectProcesses(2, [](const ProcessesPtr& processes) {
    int32_t number = 0;
    const Processes::Values all[] = {{DType::kInt32, &number, 1}};
    EXPECT_EQ(MessageOf<Error>([&] { processes->AllReduceSum(all); }),
              "Error: AllReduceSum: float32 and float64 are summed over processes, not int32");
    processes->Barrier();  // nothing was exchanged, so nothing is broken
  });
}

TEST(Processes, WhoLeavesIsHeardByAll) {
  const std::vector<std::string> errors = RunProcesses(3, [](const ProcessesPtr& processes) {
    processes->Barrier();
    if (processes->rank() == 1) Throw<DataError>("\"x.csv\" cannot be read");
    EXPECT_EQ(MessageOf<Error>([&] { processes->Barrier(); }),
              "Error: process 1 of 3 has stopped: its program has ended");
    processes->Barrier();  // throws the same, at once
  });
  EXPECT_EQ(errors[0], "Error: process 1 of 3 has stopped: its program has ended");
  EXPECT_EQ(errors[1], "DataError: \"x.csv\" cannot be read");
  const std::vector<std::string> said = RunProcesses(2, [](const ProcessesPtr& processes) {
    if (processes->rank() == 0) processes->Leave(std::string(5000, 'x'));
    processes->Barrier();
  });
  EXPECT_EQ(said[0], "Error: this process has left the others: " + std::string(5000, 'x'));
  EXPECT_EQ(said[1], "Error: process 0 of 2 has stopped: " + std::string(1023, 'x'));
}

// Keys are pushed while their values are not there yet, on some processes later than on others.
TEST(ProcessStore, SumsOverDevicesAndThenOverProcesses) {
  ExpectProcesses(3, [](const ProcessesPtr& processes) {
    const auto engine = MakeThreadedEngine();
    const auto store = KVStore::Create(KVStoreType::kDevice, engine, processes);
    EXPECT_EQ(store->rank(), processes->rank());
    EXPECT_EQ(store->size(), 3);
    HostTensor first(DType::kFloat32, {2});
    first.Set(0, 10.0 * (processes->rank() + 1));
    store->Init("w", first);
    store->Init("v", first);
    const Tensor a(engine, Cpu(0), DType::kFloat32, {2}), b(engine, Cpu(1), DType::kFloat32, {2});
    const Tensor out(engine, Cpu(1), DType::kFloat32, {2});
    store->Pull("w", std::vector{out});
    EXPECT_EQ(out.ToHost().At(0), 10);  // the first process's
    for (int step = 0; step < 20; ++step) {
      a.Fill(processes->rank() + 1);
      b.Fill(10 * step);
      store->Push("w", std::vector{a, b}, step % 3);
      store->PushPull("v", std::vector{b}, std::vector{out}, -step);
      EXPECT_EQ(out.ToHost().At(1), 30 * step);
      store->Pull("w", std::vector{out});
      EXPECT_EQ(out.ToHost().At(1), 6 + 30 * step);
    }
    store->SetUpdater([](const Key&, DType, const void* sum, void* stored, int64_t elements) {
      for (int64_t i = 0; i < elements; ++i) {
        static_cast<float*>(stored)[i] -= 0.5f * static_cast<const float*>(sum)[i];
      }
    });
    store->Push("v", std::vector{a});
    store->Pull("v", std::vector{out});
    EXPECT_EQ(out.ToHost().At(1), 30 * 19 - 3);
    store->Barrier();
    EXPECT_EQ(MessageOf<Error>([&] { store->Push("x", std::vector{a}); }), "Error: key \"x\" is not initialised");
  });
}

// A value that fails on one process fails on all, and the next one is whole again.
TEST(ProcessStore, AFailedValueFailsEverywhere) {
  ExpectProcesses(2, [](const ProcessesPtr& processes) {
    const auto engine = MakeThreadedEngine();
    const auto store = KVStore::Create(KVStoreType::kDevice, engine, processes);
    store->Init(3, HostTensor(DType::kFloat32, {2}));
    const Tensor value(engine, Cpu(0), DType::kFloat32, {2}), out(engine, Cpu(0), DType::kFloat32, {2});
    if (processes->rank() == 1) {
      engine->Push({.name = "bad", .device = Cpu(0), .writes = {value.var()}, .run = [](const OpContext&) {
                      Throw<NumericError>("it is not finite");
                    }});
    }
    store->PushPull(3, std::vector{value}, std::vector{out});
    const std::string message = MessageOf<Error>([&] { out.Wait(); });
    EXPECT_NE(message.find("process 1 of 2 failed at this step"), std::string::npos) << message;
    value.Fill(2);
    store->PushPull(3, std::vector{value}, std::vector{out});
    EXPECT_EQ(out.ToHost().At(0), 4);
  });
}

// What keeps all from exchanging anything leaves no note behind by which a later value would count as there.
TEST(ProcessExchange, WhatWasNotExchangedIsNotThereTheNextTime) {
  ExpectProcesses(2, [](const ProcessesPtr& processes) {
    const auto engine = MakeThreadedEngine();
    const Tensor value(engine, Cpu(0), DType::kFloat32, {2});
    const VarPtr together = engine->NewVar();
    const auto set = [&](const VarPtr& var, bool fails) {
      engine->Push({.name = "set", .device = Cpu(0), .writes = {var}, .run = [fails](const OpContext&) {
                      if (fails) Throw<NumericError>("overflow");
                    }});
    };
    StepParts parts;
    const VarPtr own =
        ProcessExchange(engine, processes)
            .Append({.name = "sum", .device = Cpu(0), .values = {value}, .together = {together}}, &parts);
    const StepRange exchange(engine, std::move(parts));
    set(together, true);
    value.Fill(1);
    exchange.Push();  // of none
    EXPECT_NE(MessageOf<NumericError>([&] { value.Wait(); }), "nothing was thrown");
    set(together, false);
    set(value.var(), processes->rank() == 1);
    exchange.Push();
    EXPECT_NE(MessageOf<Error>([&] { value.Wait(); }).find("process 1 of 2 failed at this step"), std::string::npos);
    EXPECT_EQ(MessageOf<NumericError>([&] { engine->Wait(own); }),
              processes->rank() == 1 ? "NumericError: operation \"set\" failed: overflow" : "nothing was thrown");
    value.Fill(2);
    exchange.Push();
    EXPECT_EQ(value.ToHost().At(1), 4);
  });
}

}  // namespace
}  // namespace bindery
