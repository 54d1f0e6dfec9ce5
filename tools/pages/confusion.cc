#include "tools/pages/confusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "symbol/ops/heads.h"
#include "tools/pages/class_scores.h"
#include "tools/pages/html.h"
#include "train/data/images/encode.h"
#include "train/quoted_text.h"

namespace bindery {
namespace {

constexpr int64_t kShownClasses = 20, kShownMistakes = 20;

std::string Share(int64_t part, int64_t whole) {
  return whole == 0 ? "-" : fmt::format("{:.1f}%", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

bool IsWorse(const Answer& a, const Answer& b) {
  return a.of_label != b.of_label ? a.of_label < b.of_label : a.sample < b.sample;
}

// Cells of the matrix, of deeper colour the more of their label they have.
std::string MatrixHtml(const Confusion& confusion, const std::vector<std::string>& names) {
  std::string html = "<div class=\"wide\"><table>\n<thead><tr><th>label</th>";
  const int64_t classes = confusion.classes();
  for (int64_t c = 0; c < classes; ++c) html += fmt::format("<th class=\"n\">{}</th>", MarkupText(NameOf(c, names)));
  html += "<th class=\"n\">right</th></tr></thead>\n<tbody>\n";
  for (int64_t label = 0; label < classes; ++label) {
    const int64_t all = confusion.OfLabel(label);
    html += fmt::format("<tr><th>{}</th>", MarkupText(NameOf(label, names)));
    for (int64_t answer = 0; answer < classes; ++answer) {
      const int64_t count = confusion.count(label, answer);
      const double part = all == 0 ? 0 : static_cast<double>(count) / static_cast<double>(all);
      html += fmt::format("<td class=\"n\" style=\"background: rgba({}, {:.3f})\">{}</td>",
                          label == answer ? "0,158,115" : "213,94,0", part * 0.8, count);
    }
    html += fmt::format("<td class=\"n\">{}</td></tr>\n", Share(confusion.count(label, label), all));
  }
  return html + "</tbody></table></div>\n";
}

std::string WorstHtml(const std::vector<Answer>& worst, const std::vector<std::string>& names) {
  std::string html;
  for (const Answer& one : worst) {
    const std::string label = NameOf(one.label, names), answer = NameOf(one.answer, names);
    html += "<figure>";
    const int rank = one.data.shape().rank();
    if ((rank == 2 || rank == 3) && one.data.elements() > 0) {
      html += HtmlImage(EncodePng(ToImage(one.data)), fmt::format("sample {}: {}", one.sample, label), 112);
    }
    html +=
        fmt::format("<figcaption>sample {}: <b>{}</b> ({:.1f}%) taken for <b>{}</b> ({:.1f}%)</figcaption></figure>\n",
                    one.sample, MarkupText(label), 100 * one.of_label, MarkupText(answer), 100 * one.of_answer);
  }
  return html;
}

}  // namespace

std::string NameOf(int64_t label, const std::vector<std::string>& names) {
  return label < static_cast<int64_t>(names.size()) ? names[static_cast<size_t>(label)] : std::to_string(label);
}

Confusion::Confusion(int64_t classes) : classes_(classes) {
  constexpr int64_t kMost = 10'000;
  if (classes < 1 || classes > kMost)
    Throw<ModelError>("a confusion matrix of {} classes: the most is {}", classes, kMost);
  counts_.assign(static_cast<size_t>(classes * classes), 0);
}

int64_t Confusion::OfLabel(int64_t label) const {
  int64_t sum = 0;
  for (int64_t c = 0; c < classes_; ++c) sum += count(label, c);
  return sum;
}

int64_t Confusion::OfAnswer(int64_t answer) const {
  int64_t sum = 0;
  for (int64_t c = 0; c < classes_; ++c) sum += count(c, answer);
  return sum;
}

int64_t Confusion::samples() const { return std::accumulate(counts_.begin(), counts_.end(), int64_t{0}); }

int64_t Confusion::right() const {
  int64_t sum = 0;
  for (int64_t c = 0; c < classes_; ++c) sum += count(c, c);
  return sum;
}

std::vector<Confusion::Pair> Confusion::Mistakes() const {
  std::vector<Pair> pairs;
  for (int64_t label = 0; label < classes_; ++label) {
    for (int64_t answer = 0; answer < classes_; ++answer) {
      if (label != answer && count(label, answer) > 0) pairs.push_back({label, answer, count(label, answer)});
    }
  }
  std::ranges::stable_sort(pairs, std::greater(), &Pair::count);
  return pairs;
}

HostTensor ClassProbabilities(const Symbol& symbol, const HostTensor& output) {
  const Shape& shape = output.shape();
  const bool is_table = shape.rank() == 2 && shape.Elements() > 0;
  const bool is_truth = is_table && shape[1] == 1 && HeadKindOf(*symbol.entries()[0].node) == HeadKind::kTruths;
  if (!is_table || (shape[1] == 1 && !is_truth)) {
    Throw<ModelError>("output \"{}\" of shape {} is not one class of several for each sample", symbol.ListOutputs()[0],
                      shape);
  }
  const HostTensor given = output.Cast(DType::kFloat32);
  if (!is_truth) return given;
  HostTensor both(DType::kFloat32, {shape[0], 2});
  for (int64_t i = 0; i < shape[0]; ++i) {
    const float yes = given.data<float>()[static_cast<size_t>(i)];
    both.data<float>()[static_cast<size_t>(2 * i)] = 1 - yes;
    both.data<float>()[static_cast<size_t>(2 * i + 1)] = yes;
  }
  return both;
}

Judgement Judge(Trainer* trainer, DataIter* data, int64_t worst) {
  std::optional<Judgement> judgement;
  int64_t sample = 0;
  trainer->PredictEach(*data, [&](const Batch& batch, const std::vector<HostTensor>& outputs) {
    const HostTensor scores = ClassProbabilities(trainer->symbol(), outputs.at(0));
    const int64_t samples = scores.shape()[0], classes = scores.shape()[1];
    if (batch.label.empty() || batch.label[0].elements() < samples) {
      Throw<DataError>("the data have no label for each sample");
    }
    if (!judgement) judgement.emplace(Judgement{.confusion = Confusion(classes)});
    for (int64_t i = 0; i < samples; ++i, ++sample) {
      const float* row = scores.data<float>().data() + i * classes;
      const double label = batch.label[0].At(i);
      const bool is_class = label >= 0 && label < static_cast<double>(classes) && label == std::floor(label);
      if (!is_class || std::any_of(row, row + classes, [](float score) { return std::isnan(score); })) {
        ++judgement->unjudged;
        continue;
      }
      Answer one{
          .sample = sample, .label = static_cast<int64_t>(label), .answer = std::max_element(row, row + classes) - row};
      judgement->confusion.Add(one.label, one.answer);
      if (one.answer == one.label || worst == 0) continue;
      one.of_label = row[one.label];
      one.of_answer = row[one.answer];
      std::vector<Answer>& kept = judgement->worst;
      if (static_cast<int64_t>(kept.size()) == worst && !IsWorse(one, kept.back())) continue;
      const HostTensor& all = batch.data[0];
      const HostTensor of_one = all.Slice(0, i, i + 1);
      one.data = of_one.Reshape(of_one.shape().Erase(0));
      kept.insert(std::ranges::upper_bound(kept, one, IsWorse), std::move(one));
      if (static_cast<int64_t>(kept.size()) > worst) kept.pop_back();
    }
    return true;
  });
  if (!judgement) Throw<DataError>("there is no sample to judge by");
  return *std::move(judgement);
}

std::string ToText(const Confusion& confusion, const std::vector<std::string>& names) {
  const int64_t classes = confusion.classes();
  std::string text = fmt::format("{} of {} right ({})\n", confusion.right(), confusion.samples(),
                                 Share(confusion.right(), confusion.samples()));
  const std::vector<Confusion::Pair> mistakes = confusion.Mistakes();
  if (classes > kShownClasses) {
    text += mistakes.empty() ? "no mistakes\n" : "the most frequent mistakes:\n";
    for (int64_t i = 0; i < std::min<int64_t>(kShownMistakes, static_cast<int64_t>(mistakes.size())); ++i) {
      const auto& [label, answer, count] = mistakes[static_cast<size_t>(i)];
      text += fmt::format("{:>8} of {:>6}  {} taken for {}\n", count, confusion.OfLabel(label),
                          ValidUtf8(NameOf(label, names)), ValidUtf8(NameOf(answer, names)));
    }
    return text;
  }
  constexpr size_t kLongest = 12;  // characters of a name
  std::vector<std::string> heads;
  size_t first = 5, width = 5;
  for (int64_t c = 0; c < classes; ++c) {
    heads.push_back(ValidUtf8(NameOf(c, names).substr(0, kLongest)));
    first = std::max(first, heads.back().size());
    width = std::max(width, heads.back().size());
    for (int64_t a = 0; a < classes; ++a) width = std::max(width, std::to_string(confusion.count(c, a)).size());
  }
  text += fmt::format("{:<{}}", "label", first);
  for (const std::string& head : heads) text += fmt::format(" {:>{}}", head, width);
  text += "   right\n";
  for (int64_t label = 0; label < classes; ++label) {
    text += fmt::format("{:<{}}", heads[static_cast<size_t>(label)], first);
    for (int64_t answer = 0; answer < classes; ++answer)
      text += fmt::format(" {:>{}}", confusion.count(label, answer), width);
    text += fmt::format("  {:>6}\n", Share(confusion.count(label, label), confusion.OfLabel(label)));
  }
  return text;
}

std::string JudgementPage(const Judgement& judgement, const JudgementPageOptions& options) {
  const Confusion& confusion = judgement.confusion;
  std::vector<std::vector<std::string>> rows = {
      {"samples", Thousands(confusion.samples())},
      {"right", fmt::format("{} ({})", Thousands(confusion.right()), Share(confusion.right(), confusion.samples()))}};
  if (judgement.unjudged > 0)
    rows.push_back({"without a class as label, or with NaN as a score", Thousands(judgement.unjudged)});
  for (const auto& [name, value] : options.values) rows.push_back({name, fmt::format("{:.4f}", value)});
  std::string body = HtmlTable({"measured", "value"}, {false, true}, rows);
  constexpr int64_t kMostCells = 100;  // classes of a matrix that somebody can look at
  if (confusion.classes() <= kMostCells) {
    body += "<h2>Which class is taken for which</h2>\n<p>A row for each label, a column for each answer.</p>\n" +
            MatrixHtml(confusion, options.names);
  }
  body += "<h2>Class by class</h2>\n" + ScoresToHtml(confusion, options.names);
  std::vector<std::vector<std::string>> mistakes;
  for (const auto& [label, answer, count] : confusion.Mistakes()) {
    if (static_cast<int64_t>(mistakes.size()) == kShownMistakes) break;
    mistakes.push_back({NameOf(label, options.names), NameOf(answer, options.names), Thousands(count),
                        Share(count, confusion.OfLabel(label))});
  }
  if (!mistakes.empty()) {
    body += "<h2>The most frequent mistakes</h2>\n" +
            HtmlTable({"label", "answer", "samples", "of the label"}, {false, false, true, true}, mistakes);
  }
  if (!judgement.worst.empty()) {
    body += "<h2>The worst answers</h2>\n<p>Wrong ones; those first whose label had the least probability.</p>\n" +
            WorstHtml(judgement.worst, options.names);
  }
  return HtmlPage(options.title, body);
}

}  // namespace bindery
