// Pages: whole by themselves, right in what they say, whatever the names are.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <regex>

#include "base/error.h"
#include "executor/data_parallel_executor_group.h"
#include "symbol/ops.h"
#include "tests/message_of.h"
#include "tools/pages/class_scores.h"
#include "tools/pages/confusion.h"
#include "tools/pages/html.h"
#include "tools/pages/model_page.h"
#include "train/data/array_iter.h"
#include "train/trainer.h"
#include "train/zoo.h"

namespace bindery {
namespace {

constexpr const char* kOdd = "a<b> & \"c\" \xff";
constexpr const char* kOddEscaped = "a&lt;b&gt; &amp; &quot;c&quot; \xef\xbf\xbd";

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Every element that is opened is closed, quotes come in pairs, and nothing is fetched from elsewhere.
void ExpectPage(const std::string& html) {
  EXPECT_TRUE(html.starts_with("<!DOCTYPE html>"));
  for (const char* outside : {"<script", "src=\"http", "href=", "url(", "@import"}) EXPECT_FALSE(Has(html, outside));
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const size_t end = html.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = html.substr(at + 1, end - at - 1);
    EXPECT_EQ(tag.find('<'), std::string::npos) << tag;
    EXPECT_EQ(std::ranges::count(tag, '"') % 2, 0) << tag;
    const std::string name = tag.substr(tag[0] == '/', tag.find_first_of(" \n/", 1) - (tag[0] == '/'));
    if (tag[0] == '!' || tag.back() == '/' || name == "meta" || name == "img" || name == "p" || name == "/p") continue;
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty()) << tag;
      EXPECT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else {
      open.push_back(name);
    }
  }
  EXPECT_TRUE(open.empty()) << open.back();
}

TEST(Html, Base64IsTheRfcs) {
  const std::pair<const char*, const char*> cases[] = {{"", ""},        {"f", "Zg=="},        {"fo", "Zm8="},
                                                       {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : cases) EXPECT_EQ(Base64(bytes), text);
  EXPECT_EQ(Base64("\xff\xff\xfe"), "///+");
  EXPECT_EQ(Thousands(1256080), "1,256,080");
  EXPECT_EQ(Thousands(-100), "-100");
  EXPECT_EQ(Thousands(-1000), "-1,000");
}

TEST(ModelPage, HasLayersPlanAndMemory) {
  Symbol x = Relu(FullyConnected(Variable("data"), {.num_hidden = 7}, kOdd));
  x = SoftmaxOutput(FullyConnected(x, {.num_hidden = 3}, "out"), {}, "softmax");
  const auto plans = DataParallelExecutorGroup::MakePlans(
      x,
      {.devices = {Cpu(0)}, .data = {{"data", {4, 5}}}, .labels = {{"softmax_label", {4}}}, .threads_per_device = 1});
  const Plan& plan = plans[0].plan;
  const std::string html =
      ModelPage(x, {{"data", {4, 5}}},
                {.name = kOdd, .purpose = "training", .devices = {{.device = "cpu:0", .samples = 4, .plan = &plan}}});
  ExpectPage(html);
  EXPECT_TRUE(Has(html, std::string("<title>") + kOddEscaped));
  EXPECT_TRUE(Has(html, "66 parameters"));  // 7 x 5 + 7 + 3 x 7 + 3
  EXPECT_TRUE(Has(html, "out_weight (3, 7), out_bias (3)"));
  EXPECT_FALSE(Has(html, "softmax_label (4), "));
  EXPECT_TRUE(Has(html, "num_hidden=7"));
  for (const PlanCall& call : plan.calls) EXPECT_TRUE(Has(html, "<td>" + call.op + "</td>")) << call.op;

  const std::string svg = MemorySvg(plan);
  const std::regex box("<title>[^<]*: [0-9,]+ bytes at [0-9,]+, calls ([0-9]+) to ([0-9]+)</title>");
  const auto boxes = std::distance(std::sregex_iterator(svg.begin(), svg.end(), box), std::sregex_iterator());
  EXPECT_EQ(boxes, static_cast<long>(plan.storages.size()));
  EXPECT_TRUE(Has(svg, "backward begins"));
  EXPECT_TRUE(Has(svg, "data") || Has(svg, "_output"));
}

TEST(ModelPage, OfEveryModelByNameThatIsSmall) {
  for (const char* name : {"lenet", "resnet20", "gpt(layers=1)", "lstm"}) {
    const Symbol symbol = ModelByName(name);
    const Shape input = ModelInputShape(name).Insert(0, 2);
    const auto plans = DataParallelExecutorGroup::MakePlans(
        symbol, {.devices = {Cpu(0)}, .data = {{"data", input}}, .for_training = false, .threads_per_device = 1});
    ExpectPage(ModelPage(symbol, {{"data", input}},
                         {.name = name, .purpose = "prediction", .devices = {{"cpu:0", 2, &plans[0].plan}}}));
  }
  ExpectPage(HtmlPage("empty", MemorySvg(Plan())));
}

// A model that takes sample i for class answers[i], with the probability that the data say.
Symbol Scores() { return SoftmaxOutput(Flatten(Variable("data")), {}, "softmax"); }

HostTensor Labels(const std::vector<double>& labels) {
  HostTensor tensor(DType::kFloat32, {static_cast<int64_t>(labels.size())});
  for (size_t i = 0; i < labels.size(); ++i) tensor.Set(static_cast<int64_t>(i), labels[i]);
  return tensor;
}

TEST(Judge, OneTruthIsOfTwoClasses) {
  const Symbol truth = LogisticRegressionOutput(Variable("data"), Variable("softmax_label"), {}, "truth");
  const HostTensor both = ClassProbabilities(truth, HostTensor::From({3, 1}, {0.25, 0.5, 1}));
  EXPECT_EQ(both, HostTensor::From({3, 2}, {0.75, 0.25, 0.5, 0.5, 0, 1}));
  EXPECT_EQ(ClassProbabilities(truth, both), both);  // columns of their own
  const char* none = "is not one class of several for each sample";
  EXPECT_TRUE(Has(MessageOf([&] { ClassProbabilities(Scores(), HostTensor(DType::kFloat32, {3, 1})); }), none));
  EXPECT_TRUE(Has(MessageOf([&] { ClassProbabilities(truth, HostTensor(DType::kFloat32, {3, 2, 2})); }), none));

  ArrayIter iter(HostTensor::From({4, 1}, {-2, 3, -1, 0}), Labels({0, 1, 1, 2}), {.batch_size = 2});
  Trainer trainer(truth, {.threads_per_device = 1});
  const Judgement judged = Judge(&trainer, &iter, 1);
  EXPECT_EQ(judged.unjudged, 1);
  EXPECT_EQ(judged.confusion.classes(), 2);
  EXPECT_EQ(judged.confusion.samples(), 3);
  EXPECT_EQ(judged.confusion.right(), 2);
  ASSERT_EQ(judged.worst.size(), 1u);
  EXPECT_EQ(judged.worst[0].sample, 2);
  EXPECT_NEAR(judged.worst[0].of_answer, 1 / (1 + std::exp(-1.0)), 1e-6);
}

TEST(Judge, CountsAndKeepsTheWorst) {
  // Scores of 3 classes, (N, 1, 1, 3): an image of 3 pixels.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const HostTensor data = HostTensor::From({8, 1, 1, 3}, {5,   0, 0,  //
                                                          0,   5, 0,  //
                                                          4,   0, 0,  // wrong, badly
                                                          1,   0, 0,  // wrong, a little
                                                          0,   0, 9,  // wrong, the worst
                                                          0,   0, 2,  //
                                                          1,   1, 0,  // the first of two equal ones
                                                          nan, 0, 1});
  ArrayIter iter(data, Labels({0, 1, 2, 1, 0, nan, 0, 0}), {.batch_size = 2});
  Trainer trainer(Scores(), {.threads_per_device = 1});
  const Judgement judged = Judge(&trainer, &iter, 2);
  EXPECT_EQ(judged.unjudged, 2);
  const Confusion& confusion = judged.confusion;
  EXPECT_EQ(confusion.classes(), 3);
  EXPECT_EQ(confusion.samples(), 6);
  EXPECT_EQ(confusion.right(), 3);
  EXPECT_EQ(confusion.count(0, 0), 2);
  EXPECT_EQ(confusion.count(0, 2), 1);
  EXPECT_EQ(confusion.count(1, 0), 1);
  EXPECT_EQ(confusion.count(2, 0), 1);
  EXPECT_EQ(confusion.OfLabel(0), 3);
  EXPECT_EQ(confusion.OfAnswer(0), 4);
  ASSERT_EQ(judged.worst.size(), 2u);
  EXPECT_EQ(judged.worst[0].sample, 4);
  EXPECT_EQ(judged.worst[0].answer, 2);
  EXPECT_EQ(judged.worst[1].sample, 2);
  EXPECT_NEAR(judged.worst[1].of_label, 1 / (std::exp(4.0) + 2), 1e-6);
  EXPECT_EQ(judged.worst[0].data, HostTensor::From({1, 1, 3}, {0, 0, 9}));

  const std::string text = ToText(confusion, {"zero", kOdd});
  EXPECT_TRUE(Has(text, "3 of 6 right (50.0%)")) << text;
  EXPECT_TRUE(Has(text, "\nzero ")) << text;
  EXPECT_TRUE(Has(text, "66.7%\n")) << text;
  const std::string html = JudgementPage(
      judged, {.title = kOdd, .names = {"zero", kOdd}, .values = {{"accuracy", 0.5}, {"nan", 0.0 / 0.0}}});
  ExpectPage(html);
  size_t images = 0;
  const std::string image = "<img src=\"data:image/png;base64,";
  for (size_t at = html.find(image); at != std::string::npos; at = html.find(image, at + 1)) ++images;
  EXPECT_EQ(images, 2u);
  EXPECT_TRUE(Has(html, std::string("taken for <b>2</b>")));
  EXPECT_TRUE(Has(html, kOddEscaped));
}

TEST(Judge, ManyClassesAndNoMistakes) {
  Confusion many(100), none(2);
  for (int64_t c = 0; c < 100; ++c) many.Add(c, (c * 7) % 100);
  many.Add(3, 4), many.Add(3, 4);
  const std::string text = ToText(many, {});
  EXPECT_TRUE(Has(text, "the most frequent mistakes:\n       2 of      3  3 taken for 4\n")) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 2 + 20);
  none.Add(0, 0);
  EXPECT_TRUE(
      Has(ToText(none, {}), "label     0     1   right\n0         1     0  100.0%\n1         0     0       -\n"))
      << ToText(none, {});
  EXPECT_TRUE(none.Mistakes().empty());
  ExpectPage(JudgementPage({.confusion = many, .worst = {}}, {.title = "many"}));
  EXPECT_THROW(Confusion(0), ModelError);
}

TEST(ClassScores, OfEachAndOnAverage) {
  Confusion confusion(4);  // class 2 is never answered, class 3 is not there
  for (const auto& [label, answer] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {0, 0}, {0, 1}, {1, 1}, {2, 0}, {2, 1}}) {
    confusion.Add(label, answer);
  }
  const ClassScores first = ScoresOfClass(confusion, 0), second = ScoresOfClass(confusion, 1),
                    third = ScoresOfClass(confusion, 2), fourth = ScoresOfClass(confusion, 3);
  EXPECT_DOUBLE_EQ(*first.precision, 2.0 / 3);
  EXPECT_DOUBLE_EQ(*first.recall, 2.0 / 3);
  EXPECT_DOUBLE_EQ(*first.f1, 2.0 / 3);
  EXPECT_DOUBLE_EQ(*second.precision, 1.0 / 3);
  EXPECT_DOUBLE_EQ(*second.recall, 1);
  EXPECT_DOUBLE_EQ(*second.f1, 0.5);
  EXPECT_FALSE(third.precision);
  EXPECT_EQ(third.recall, 0);
  EXPECT_EQ(third.f1, 0);
  EXPECT_FALSE(fourth.precision || fourth.recall || fourth.f1);
  const ClassScores average = MacroAverage(confusion);
  EXPECT_DOUBLE_EQ(*average.precision, 0.5);
  EXPECT_DOUBLE_EQ(*average.recall, 5.0 / 9);
  EXPECT_DOUBLE_EQ(*average.f1, 7.0 / 18);
  EXPECT_EQ(ScoresToText(confusion, {"zero"}),
            "class          precision  recall      F1  samples\n"
            "zero              0.6667  0.6667  0.6667        3\n"
            "1                 0.3333  1.0000  0.5000        1\n"
            "2                      -  0.0000  0.0000        2\n"
            "3                      -       -       -        0\n"
            "macro average     0.5000  0.5556  0.3889        6\n");
  const std::string html = ScoresToHtml(confusion, {kOdd});
  EXPECT_TRUE(Has(html, kOddEscaped)) << html;
  EXPECT_TRUE(Has(html, "macro average")) << html;
  EXPECT_FALSE(MacroAverage(Confusion(2)).f1);

  Confusion many(100);  // the worst are shown: 50 is taken for 51, and there is no 99
  for (int64_t c = 0; c < 99; ++c) many.Add(c, c == 50 ? 51 : c);
  const std::string text = ScoresToText(many, {});
  EXPECT_TRUE(text.starts_with("the classes with the lowest F1:\nclass ")) << text;
  EXPECT_TRUE(Has(text, "\n50                     -  0.0000  0.0000        1\n51                0.5000")) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 2 + 20 + 1);
}

TEST(Judge, DataAndModelsThatDoNotFit) {
  Trainer pixels(SoftmaxOutput(Variable("data"), {.multi_output = true}, "softmax"), {.threads_per_device = 1});
  ArrayIter images(HostTensor(DType::kFloat32, {2, 3, 4, 4}), HostTensor(DType::kFloat32, {2, 4, 4}),
                   {.batch_size = 2});
  EXPECT_TRUE(Has(MessageOf<ModelError>([&] { Judge(&pixels, &images, 3); }), "softmax_output"));
}

}  // namespace
}  // namespace bindery
