#include "train/metrics/metric_kinds.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "train/loop/trigger.h"

namespace bindery {
namespace {

// What is told of a kind is what it does.
TEST(MetricKinds, AreWhatTheySay) {
  std::set<std::string_view> names;
  for (const MetricKind& kind : MetricKinds()) {
    EXPECT_TRUE(names.insert(kind.name).second) << kind.name;
    EXPECT_EQ(FindMetricKind(kind.name), &kind);
    const std::string value = MakeMetric(kind.name)->Get().at(0).first;
    EXPECT_TRUE(value.starts_with(kind.values_begin)) << value;
    EXPECT_EQ(LargerIsBetter(value), kind.larger_is_better) << value;
    EXPECT_EQ(LargerIsBetter("validation/" + value + "_2"), kind.larger_is_better) << value;
    // Those of classes can leave labels out, others know no such.
    const std::string ignoring = fmt::format("{}(ignore=-1)", kind.name);
    if (kind.needs == MetricNeeds::kClasses) {
      EXPECT_NO_THROW(MakeMetric(ignoring)) << ignoring;
    } else {
      EXPECT_THROW(MakeMetric(ignoring), Error) << ignoring;
    }
    const std::string with_label = fmt::format("{}(label=x)", kind.name);
    if (kind.needs == MetricNeeds::kNothing) {
      EXPECT_THROW(MakeMetric(with_label), Error) << with_label;
    } else {
      EXPECT_NO_THROW(MakeMetric(with_label)) << with_label;
    }
  }
  EXPECT_EQ(FindMetricKind("acc"), nullptr);
  EXPECT_FALSE(LargerIsBetter("loss_of_mine"));
}

}  // namespace
}  // namespace bindery
