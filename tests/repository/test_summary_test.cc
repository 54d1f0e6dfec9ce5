// tools/test_summary on events and reports as Bazel and gtest write them.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

namespace bindery {
namespace {

struct Summary {
  std::string text;
  std::string last_line;
  int exit_status;
};

class TestSummaryTest : public testing::Test {
 protected:
  // A test that was built and ran with `status`; `xml` is its report, none if empty.
  void Ran(const std::string& label, const std::string& status, const std::string& xml,
           const std::string& kind = "cc_test") {
    const std::string path = Folder() + "/" + std::to_string(count_++) + ".xml";
    Configured(label, kind);
    events_ += R"({"id":{"targetCompleted":{"label":")" + label +
               R"("}},"children":[],"completed":{"success":true,"outputGroup":[]}})" + "\n";
    std::string outputs = R"({"name":"test.log","uri":"file:///x/testlogs/log"})";
    if (!xml.empty()) {
      std::ofstream(path) << xml;
      outputs += R"(,{"name":"test.xml","uri":"file://)" + path + "\"}";
    }
    events_ += R"({"id":{"testResult":{"label":")" + label + R"(","run":1}},"testResult":{"testActionOutput":[)" +
               outputs + R"(],"status":")" + status + "\"}}\n";
    events_ += R"({"id":{"testSummary":{"label":")" + label + R"("}},"testSummary":{"overallStatus":")" + status +
               "\",\"totalRunCount\":1}}\n";
  }

  void DidNotBuild(const std::string& label) {
    Configured(label, "cc_test");
    events_ += R"({"id":{"targetCompleted":{"label":")" + label + R"("}},"completed":{"failureDetail":{}}})" + "\n";
  }

  void IsNotForThisMachine(const std::string& label) {
    Configured(label, "cc_test");
    events_ += R"({"id":{"targetCompleted":{"label":")" + label + R"("}},"aborted":{"reason":"SKIPPED"}})" + "\n";
  }

  Summary Run(int bazel_status) {
    const std::string events = Folder() + "/events.json";
    std::ofstream(events) << events_;
    const char* sources = std::getenv("TEST_SRCDIR");
    const char* workspace = std::getenv("TEST_WORKSPACE");
    if (sources == nullptr || workspace == nullptr) throw std::runtime_error("run this test with bazel");
    const std::string command = std::string(sources) + "/" + workspace + "/tools/test_summary '" + events + "' " +
                                std::to_string(bazel_status) + " 2>&1";
    FILE* pipe = ::popen(command.c_str(), "r");
    Summary summary;
    char buffer[4096];
    while (const size_t got = std::fread(buffer, 1, sizeof(buffer), pipe)) summary.text.append(buffer, got);
    summary.exit_status = WEXITSTATUS(::pclose(pipe));
    const std::string lines = summary.text.substr(0, summary.text.rfind('\n'));
    summary.last_line = lines.substr(lines.rfind('\n') + 1);
    return summary;
  }

  // A report of gtest with so many cases of each kind.
  static std::string Gtest(int passed, int failed, int skipped = 0, int disabled = 0) {
    const int tests = passed + failed + skipped + disabled;
    const std::string counts = "tests=\"" + std::to_string(tests) + "\" failures=\"" + std::to_string(failed) +
                               "\" disabled=\"" + std::to_string(disabled) + "\"";
    std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites " + counts +
                      " errors=\"0\" name=\"AllTests\">\n  <testsuite name=\"S\" " + counts + " skipped=\"" +
                      std::to_string(skipped) + "\" errors=\"0\">\n";
    for (int i = 0; i < failed; ++i) {
      xml += "    <testcase name=\"F" + std::to_string(i) +
             "\" status=\"run\" classname=\"S\">\n      <failure message=\"x\"><![CDATA[one\n"
             "<testsuite tests=\"99\" failures=\"0\">\n<testcase name=\"no\">\n<failure\n]]></failure>\n"
             "      <failure message=\"y\"><![CDATA[two]]></failure>\n    </testcase>\n";
    }
    return xml + "  </testsuite>\n</testsuites>\n";
  }

  // The report that Bazel writes for a program that wrote none.
  static std::string Bazel(int errors) {
    return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"x\" tests=\"1\" "
           "failures=\"0\" "
           "errors=\"" +
           std::to_string(errors) +
           "\">\n    <testcase name=\"x\" status=\"run\"></testcase>\n  </testsuite>\n</testsuites>\n";
  }

 private:
  static std::string Folder() {
    const char* folder = std::getenv("TEST_TMPDIR");
    return folder == nullptr ? "/tmp" : folder;
  }
  void Configured(const std::string& label, const std::string& kind) {
    events_ += R"({"id":{"targetConfigured":{"label":")" + label + R"("}},"children":[],"configured":{"targetKind":")" +
               kind + R"( rule","testSize":"SMALL"}})" + "\n";
  }

  std::string events_ = "{\"id\":{\"started\":{}},\"started\":{\"command\":\"test\"}}\n";
  int count_ = 0;
};

TEST_F(TestSummaryTest, AddsUpCases) {
  Ran("//tests/a:a", "PASSED", Gtest(3, 0));
  Ran("//tests/a:b", "PASSED", Gtest(40, 0));
  Ran("//tests/a:shell", "PASSED", Bazel(0), "sh_test");
  const Summary summary = Run(0);
  EXPECT_EQ(summary.text, "44 passed, 0 failed\n");
  EXPECT_EQ(summary.exit_status, 0);
}

TEST_F(TestSummaryTest, SkippedCasesCountApartAndDisabledOnesNot) {
  Ran("//tests/a:a", "PASSED", Gtest(3, 0, 2, 5));
  const Summary summary = Run(0);
  EXPECT_EQ(summary.last_line, "3 passed, 0 failed, 2 skipped");
  EXPECT_EQ(summary.exit_status, 0);
}

TEST_F(TestSummaryTest, TestsThatAreNotForThisMachineAreNamed) {
  Ran("//tests/a:a", "PASSED", Gtest(3, 0));
  IsNotForThisMachine("//tests/a:cuda");
  const Summary summary = Run(0);
  EXPECT_EQ(summary.text, "skipped, not for this machine: //tests/a:cuda\n3 passed, 0 failed, 1 skipped\n");
  EXPECT_EQ(summary.exit_status, 0);
}

TEST_F(TestSummaryTest, NamesWhatFailedWhateverItPrinted) {
  Ran("//tests/a:a", "FAILED", Gtest(3, 2));
  const Summary summary = Run(3);
  EXPECT_EQ(summary.last_line, "3 passed, 2 failed");
  EXPECT_NE(summary.text.find("//tests/a:a  FAILED\n    S.F0\n    S.F1\n    bazel-testlogs/log\n"), std::string::npos)
      << summary.text;
  EXPECT_NE(summary.exit_status, 0);
}

TEST_F(TestSummaryTest, CrashesAndTimeoutsCountOnce) {
  Ran("//tests/a:a", "PASSED", Gtest(3, 0));
  Ran("//tests/a:crash", "FAILED", Bazel(1));
  Ran("//tests/a:nothing", "FAILED", "");
  Ran("//tests/a:timeout", "TIMEOUT", Bazel(1));
  Ran("//tests/a:leak_after_the_last_test", "FAILED", Gtest(2, 0));
  const Summary summary = Run(3);
  EXPECT_EQ(summary.last_line, "5 passed, 4 failed");
  EXPECT_NE(summary.text.find("//tests/a:timeout  TIMEOUT"), std::string::npos);
  EXPECT_NE(summary.exit_status, 0);
}

TEST_F(TestSummaryTest, ATestThatDoesNotBuildFails) {
  Ran("//tests/a:a", "PASSED", Gtest(3, 0));
  DidNotBuild("//tests/a:broken");
  const Summary summary = Run(1);
  EXPECT_EQ(summary.last_line, "3 passed, 1 failed");
  EXPECT_NE(summary.text.find("//tests/a:broken  DID NOT BUILD"), std::string::npos);
  EXPECT_NE(summary.exit_status, 0);
}

TEST_F(TestSummaryTest, AProgramThatEndsEarlyFails) {
  Ran("//tests/a:exits", "PASSED", Bazel(0));
  Ran("//tests/a:exits_without_report", "PASSED", "");
  const Summary summary = Run(0);
  EXPECT_EQ(summary.last_line, "0 passed, 2 failed");
  EXPECT_NE(summary.exit_status, 0);
}

TEST_F(TestSummaryTest, OtherErrorsOfBazelFail) {
  Ran("//tests/a:a", "PASSED", Gtest(3, 0));
  const Summary summary = Run(1);
  EXPECT_EQ(summary.last_line, "3 passed, 1 failed");
  EXPECT_NE(summary.exit_status, 0);
}

TEST_F(TestSummaryTest, NothingRunIsAFailure) {
  Ran("//tests/a:empty", "PASSED", Gtest(0, 0));
  const Summary summary = Run(0);
  EXPECT_EQ(summary.last_line, "0 passed, 0 failed");
  EXPECT_NE(summary.exit_status, 0);
}

}  // namespace
}  // namespace bindery
