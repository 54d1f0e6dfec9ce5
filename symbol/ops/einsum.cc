#include "symbol/ops/einsum.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "base/error.h"
#include "symbol/ops/arrange.h"
#include "symbol/ops/elementwise.h"
#include "symbol/ops/matmul.h"
#include "symbol/ops/reduce.h"
#include "symbol/ops/shape_ops.h"

namespace bindery {
namespace {

// Letters by their codes; axes of "..." by their distance from its last, from here on.
using Labels = std::vector<int>;
constexpr int kUnnamed = 1000;
constexpr int kOfOne = -1;  // an axis of extent 1

bool Has(const Labels& labels, int label) { return std::ranges::find(labels, label) != labels.end(); }

Labels ParseLabels(const std::string& part, int unnamed, const std::string& equation) {
  Labels labels;
  for (size_t i = 0; i < part.size(); ++i) {
    if (part.compare(i, 3, "...") == 0) {
      for (int k = unnamed; k-- > 0;) labels.push_back(kUnnamed + k);
      i += 2;
    } else if (std::isalpha(static_cast<unsigned char>(part[i]))) {
      labels.push_back(part[i]);
    } else {
      Throw<ModelError>("Einsum \"{}\": expected letters and \"...\", got \"{}\"", equation, part);
    }
  }
  return labels;
}

std::vector<std::string> SplitAt(const std::string& text, char by) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == by) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

struct Term {
  Symbol symbol;
  Labels labels;
};

// The term's axes in this order, with axes of extent 1 where it says so.
Symbol Arranged(const Term& term, const Labels& order) {
  const auto rank = static_cast<int64_t>(term.labels.size());
  Symbol x = term.symbol;
  const auto ones = static_cast<size_t>(std::ranges::count(order, kOfOne));
  if (ones > 0) {  // behind all others first
    std::vector<int64_t> shape(term.labels.size(), 0);
    shape.insert(shape.end(), ones, 1);
    x = Reshape(x, {.shape = shape});
  }
  std::vector<int64_t> axes;
  int64_t next_one = rank;
  for (const int label : order) {
    axes.push_back(label == kOfOne ? next_one++ : std::ranges::find(term.labels, label) - term.labels.begin());
  }
  return std::ranges::is_sorted(axes) ? x : Transpose(x, {.axes = axes});
}

// Without the axes that are not kept: sums over them.
Term Reduced(const Term& term, const Labels& kept) {
  Term result{term.symbol, {}};
  std::vector<int64_t> axes;
  for (size_t i = 0; i < term.labels.size(); ++i) {
    if (Has(kept, term.labels[i])) {
      result.labels.push_back(term.labels[i]);
    } else {
      axes.push_back(static_cast<int64_t>(i));
    }
  }
  if (!axes.empty()) result.symbol = Sum(term.symbol, {.axes = axes});
  return result;
}

// Of two axes with one label the elements at equal places: others are left out where it is summed over the second. Ones
// at such places are of the extents of both, which the sum over all other axes tells.
Term Diagonal(Term term) {
  for (size_t i = 0; i < term.labels.size(); ++i) {
    for (size_t k = term.labels.size() - 1; k > i; --k) {
      if (term.labels[k] != term.labels[i]) continue;
      std::vector<int64_t> others;
      for (size_t axis = 0; axis < term.labels.size(); ++axis) {
        if (axis != i && axis != k) others.push_back(static_cast<int64_t>(axis));
      }
      const Symbol places = others.empty() ? term.symbol : Sum(term.symbol, {.axes = others});
      // Joined, which stretches nothing: extents that differ do not fit.
      const Symbol twice = Concat({EyeLike(places), Transpose(EyeLike(places))}, {.axis = 0});
      const Symbol halves = Split(twice, {.num_outputs = 2}), ones = And(halves[0], halves[1]);
      const Symbol equal = others.empty() ? ones : ExpandDims(ones, {.axes = others});
      term.symbol = Sum(Where(equal, term.symbol, 0.0), {.axes = {static_cast<int64_t>(k)}});
      term.labels.erase(term.labels.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
  return term;
}

Labels Joined(std::initializer_list<Labels> parts) {
  Labels all;
  for (const Labels& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// The product, with the labels that are kept. All axes of both are common, or kept.
Term Product(const Term& a, const Term& b, const Labels& kept, const std::string& equation) {
  Labels common, of_a, of_b;
  int summed = kOfOne;  // the axis of the product of matrices
  for (const int label : a.labels) {
    if (!Has(b.labels, label)) {
      of_a.push_back(label);
    } else if (!Has(kept, label) && label < kUnnamed && summed == kOfOne) {
      summed = label;
    } else {
      common.push_back(label);
    }
  }
  std::ranges::copy_if(b.labels, std::back_inserter(of_b), [&](int label) { return !Has(a.labels, label); });
  const size_t least = summed == kOfOne ? 0 : 1;  // of a matrix, rows and columns
  const size_t rank = common.size() + std::max(of_a.size(), least) + std::max(of_b.size(), least);
  if (rank > Shape::kMaxRank) Throw<ModelError>("Einsum \"{}\": a product of {} axes is too large", equation, rank);
  if (summed == kOfOne) {
    const Symbol left = Arranged(a, Joined({common, of_a, Labels(of_b.size(), kOfOne)}));
    const Symbol right = Arranged(b, Joined({common, Labels(of_a.size(), kOfOne), of_b}));
    return Reduced({left * right, Joined({common, of_a, of_b})}, kept);
  }
  // Rows are a's last own axis and columns b's; other axes are of the batch, stretched where an operand has none.
  const auto take_last = [](Labels& labels) {
    if (labels.empty()) return kOfOne;
    const int last = labels.back();
    labels.pop_back();
    return last;
  };
  const int row = take_last(of_a), column = take_last(of_b);
  const Symbol left = Arranged(a, Joined({common, of_a, Labels(of_b.size(), kOfOne), {row, summed}}));
  const Symbol right = Arranged(b, Joined({common, Labels(of_a.size(), kOfOne), of_b, {summed, column}}));
  return Reduced({MatMul(left, right), Joined({common, of_a, of_b, {row, column}})}, kept);
}

}  // namespace

Symbol Einsum(const std::string& equation, const std::vector<Symbol>& operands, const std::vector<int>& ranks,
              const std::string& name) {
  std::string text = equation;
  std::erase(text, ' ');
  const size_t arrow = text.find("->");
  const std::vector<std::string> parts = SplitAt(text.substr(0, arrow), ',');
  if (parts.size() != operands.size() || (!ranks.empty() && ranks.size() != operands.size())) {
    Throw<ModelError>("Einsum \"{}\": expected {} operands, got {} and {} ranks", equation, parts.size(),
                      operands.size(), ranks.size());
  }
  std::vector<Term> terms;
  int most_unnamed = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    int unnamed = 0;
    if (const size_t dots = parts[i].find("..."); dots != std::string::npos) {
      if (ranks.empty()) Throw<ModelError>("Einsum \"{}\": \"...\" needs the numbers of operands' axes", equation);
      unnamed = ranks[i] - static_cast<int>(parts[i].size() - 3);
    }
    if (unnamed < 0 || unnamed > Shape::kMaxRank) {
      Throw<ModelError>("Einsum \"{}\": operand {} has {} axes, which do not fit \"{}\"", equation, i, ranks[i],
                        parts[i]);
    }
    most_unnamed = std::max(most_unnamed, unnamed);
    terms.push_back({operands[i], ParseLabels(parts[i], unnamed, equation)});
    if (!ranks.empty() && ranks[i] != std::ssize(terms[i].labels)) {
      Throw<ModelError>("Einsum \"{}\": operand {} has {} axes, which do not fit \"{}\"", equation, i, ranks[i],
                        parts[i]);
    }
    terms[i] = Diagonal(std::move(terms[i]));
  }
  Labels output;
  if (arrow != std::string::npos) {
    output = ParseLabels(text.substr(arrow + 2), most_unnamed, equation);
  } else {
    for (int k = most_unnamed; k-- > 0;) output.push_back(kUnnamed + k);
    for (int letter = 'A'; letter <= 'z'; ++letter) {
      if (std::ranges::count(text, letter) == 1) output.push_back(letter);
    }
  }
  for (const int label : output) {
    if (std::ranges::count(output, label) > 1) {
      Throw<ModelError>("Einsum \"{}\": the output has an axis twice", equation);
    }
    if (std::ranges::none_of(terms, [&](const Term& term) { return Has(term.labels, label); })) {
      Throw<ModelError>("Einsum \"{}\": no operand has the output's axis \"{}\"", equation, static_cast<char>(label));
    }
  }

  // What is needed after operand i: by the output and by those behind it.
  std::map<int, size_t> last;  // operand that has a label
  for (size_t i = 0; i < terms.size(); ++i) {
    for (const int label : terms[i].labels) last[label] = i;
  }
  const auto needed = [&](size_t i) {
    Labels labels = output;
    for (const auto& [label, operand] : last) {
      if (operand >= i) labels.push_back(label);
    }
    return labels;
  };
  Term result = Reduced(terms[0], needed(1));
  for (size_t i = 1; i < terms.size(); ++i) {
    const Term next = Reduced(terms[i], Joined({result.labels, needed(i + 1)}));
    result = Product(result, next, needed(i + 1), equation);
  }
  return Identity(Arranged(result, output), name);
}

}  // namespace bindery
