// Einsum against its definition: a sum over all values of all letters.
#include <gtest/gtest.h>

#include <map>

#include "symbol/gradient.h"
#include "symbol/ops.h"
#include "tests/executor/graph_runner.h"
#include "tests/executor/values.h"
#include "tests/message_of.h"

namespace bindery {
namespace {

// Extents of letters: a 2, b 3, c 4, d 2, e 3; of an upper-case letter, which stands for an axis of "...", 2.
int64_t ExtentOf(char letter) {
  switch (letter) {
    case 'b':
    case 'e': return 3;
    case 'c': return 4;
    default: return 2;
  }
}
Shape ShapeOf(const std::string& letters) {
  std::vector<int64_t> dims;
  for (const char letter : letters) dims.push_back(ExtentOf(letter));
  return Shape(std::span<const int64_t>(dims));
}

HostTensor Summed(const std::vector<std::string>& parts, const std::string& output,
                  const std::vector<HostTensor>& values) {
  std::string letters;
  for (const std::string& part : parts) {
    for (const char c : part) {
      if (letters.find(c) == std::string::npos) letters += c;
    }
  }
  HostTensor result(DType::kFloat64, ShapeOf(output));
  std::map<char, int64_t> index;
  const auto at = [&](const std::string& part) {
    int64_t offset = 0;
    for (const char c : part) offset = offset * ExtentOf(c) + index[c];
    return offset;
  };
  for (int64_t n = 0; n < ShapeOf(letters).Elements(); ++n) {
    int64_t left = n;
    for (const char c : letters) {
      index[c] = left % ExtentOf(c);
      left /= ExtentOf(c);
    }
    double product = 1;
    for (size_t i = 0; i < parts.size(); ++i) product *= values[i].At(at(parts[i]));
    result.Set(at(output), result.At(at(output)) + product);
  }
  return result;
}

TEST(Einsum, IsTheSumOverAllLetters) {
  const struct {
    std::string equation;
    std::vector<std::string> parts;
    std::string output;
  } cases[] = {
      {"ab->ba", {"ab"}, "ba"},
      {"ab->", {"ab"}, ""},
      {"ba", {"ba"}, "ab"},
      {"abc->b", {"abc"}, "b"},
      {"a,a->", {"a", "a"}, ""},
      {"a,b->ab", {"a", "b"}, "ab"},
      {"ab,bc->ac", {"ab", "bc"}, "ac"},
      {"ab , bc", {"ab", "bc"}, "ac"},
      {"ba,bc->ca", {"ba", "bc"}, "ca"},
      {"abc,acd->abd", {"abc", "acd"}, "abd"},
      {"abcd,cd->ab", {"abcd", "cd"}, "ab"},
      {"abc,dce->bade", {"abc", "dce"}, "bade"},
      {"abc,cd,de->abe", {"abc", "cd", "de"}, "abe"},
      {"ab,ab->ab", {"ab", "ab"}, "ab"},
      {"abc,db->d", {"abc", "db"}, "d"},
      {"...bc,...cd->...bd", {"Abc", "Acd"}, "Abd"},
      {"...bc,cd->...bd", {"ABbc", "cd"}, "ABbd"},
      {"...b,...b", {"Ab", "Ab"}, "A"},
      {"b...->...", {"bA"}, "A"},
      {"aa->a", {"aa"}, "a"},
      {"bb", {"bb"}, ""},
      {"bab->ab", {"bab"}, "ab"},
      {"abab->ba", {"abab"}, "ba"},
      {"bbb->b", {"bbb"}, "b"},
      {"dbb,ab->da", {"dbb", "ab"}, "da"},
      {"...bb->...b", {"Abb"}, "Ab"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.equation);
    HostTensorMap inputs;
    std::vector<Symbol> operands;
    std::vector<HostTensor> values;
    std::vector<int> ranks;
    for (size_t i = 0; i < c.parts.size(); ++i) {
      const std::string name(1, static_cast<char>('p' + i));
      values.push_back(Uniform(ShapeOf(c.parts[i])));
      inputs[name] = values.back();
      operands.push_back(Variable(name));
      ranks.push_back(static_cast<int>(c.parts[i].size()));
    }
    const Symbol y = Einsum(c.equation, operands, ranks, "y");
    ExpectNear(RunGraph(y, inputs, {}).outputs[0], Summed(c.parts, c.output, values), 1e-12, c.equation);
  }
}

TEST(Einsum, RefusesWhatIsNoEquation) {
  const Symbol a = Variable("a"), b = Variable("b");
  const auto message = [](const std::string& equation, const std::vector<Symbol>& operands) {
    return MessageOf<ModelError>([&] { Einsum(equation, operands); });
  };
  EXPECT_EQ(message("ab,bc", {a}), "ModelError: Einsum \"ab,bc\": expected 2 operands, got 1 and 0 ranks");
  EXPECT_EQ(message("a->aa", {a}), "ModelError: Einsum \"a->aa\": the output has an axis twice");
  EXPECT_EQ(message("a->b", {a}), "ModelError: Einsum \"a->b\": no operand has the output's axis \"b\"");
  EXPECT_EQ(message("...a->a", {a}), "ModelError: Einsum \"...a->a\": \"...\" needs the numbers of operands' axes");
  EXPECT_EQ(message("a.b->a", {a}), "ModelError: Einsum \"a.b->a\": expected letters and \"...\", got \"a.b\"");
  EXPECT_EQ(message("abcde,fghi->abcdefghi", {a, b}),
            "ModelError: Einsum \"abcde,fghi->abcdefghi\": a product of 9 axes is too large");
}

TEST(Einsum, ADiagonalHasAGradient) {
  const Symbol trace = MakeLoss(Einsum("aa", {Variable("p", {.shape = Shape{3, 3}})}, {2}));
  const std::vector<std::string> wrt{"p"};
  const Symbol gradient = Gradient(trace, wrt).gradients[0];
  HostTensor eye(DType::kFloat32, {3, 3});
  for (int64_t i = 0; i < 3; ++i) eye.Set(4 * i, 1);
  EXPECT_EQ(RunGraph(gradient, {{"p", HostTensor::Full(DType::kFloat32, {3, 3}, 7)}}, {}).outputs[0], eye);
}

TEST(Einsum, OfADiagonalNoAxisIsStretched) {
  for (const Shape& shape : {Shape{1, 3}, {3, 1}, {2, 3}}) {
    EXPECT_THROW(RunGraph(Einsum("aa->a", {Variable("x")}), {{"x", Uniform(shape)}}, {}), ShapeError)
        << ToString(shape);
  }
}

}  // namespace
}  // namespace bindery
