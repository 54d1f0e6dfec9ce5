// bindery operators: what the operators' definitions say of them, as docs/operators.md has it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "symbol/op_def.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/exit_codes.h"
#include "tools/cli/operator_index.h"

namespace bindery::cli {
namespace {

constexpr char kIntroduction[] = R"(# Operators

What the definitions of all operators say of them; `bindery operators` prints it. An operator's name
and attributes are those of model files and of its C++ function, whose header in `symbol/ops/` tells
shapes and errors. In [brackets] stand inputs and outputs that are there if the attributes say so; a
*state* is an auxiliary input; behind a bar stand outputs for gradients, which users do not see.
The struct of an operator's attributes is mostly called after it: `PoolingAttrs`. With its name,
`Pooling(x, PoolingAttrs{.kernel = {2, 2}})`, a compiler's complaint about a field is one line.

Functions that are made of several operators are told in headers alone: Deconvolution
(`convolution.h`), MultiHeadAttention (`attention.h`), Rnn (`recurrent.h`), Einsum (`einsum.h`),
Gemm (`matmul.h`), SoftmaxCrossEntropy and NegativeLogLikelihood (`cross_entropy.h`), LayerNorm,
RMSNorm, GroupNorm, InstanceNorm, L2Normalization and MeanVarianceNormalization (`normalize.h`),
Sort and ArgSort (`order.h`), Stack, Flip, Full and Eye (`arrange.h`), LogSum (`reduce.h`), Clip,
Log2, Log10, Rsqrt, Fold and MeanOf (`elementwise.h`); and so are the functions of Activation
(`activation.h`) and of Curve (`curve.h`), and what is drawn like data (`random.h`).

A call says inputs, attributes and name, of which the latter two may be left out:

```
Convolution(x, {.num_filter = 8, .kernel = {3, 3}}, "conv1")
FullyConnected(x, w, {}, {.num_hidden = 8}, "again")            // the weights w, a bias of its own
LayerNorm(x, {.eps = 1e-6}, "norm1")
Concat({a, b}, {.axis = 1}, "both")                             // any number of inputs
Exp(x, "e"), Add(a, b, "sum"), Relu(x, "relu1")                 // no attributes
LeakyRelu(x, 0.1, "leaky"), GroupNorm(x, 8, 1e-5, "norm2")      // curves, other norms: numbers
SequenceMask(x, lengths, {{.axis = 1, .batch_axis = 0}, 0.5})   // another's attributes in it
RandomNormal({{.shape = {2, 3}}, 0, 1}, "noise")                // so, too
RandomNormalLike(x, {}, "noise")                                // of x's shape and type
```

One of several words, as `valid`, is an enumerator: `Normalization::kValid`. The header tells the
type.
)";

std::string NameOf(const Slot& slot) {
  std::string name = slot.is_many ? fmt::format("{0}0, {0}1, ...", slot.name) : slot.name;
  if (slot.is_auxiliary) name += " *(state)*";
  return slot.present ? fmt::format("\\[{}\\]", name) : name;
}

constexpr char kAppendix[] = R"(
## Made by the library

Gradients, what fusion makes, operators that take numbers from tensors (ReshapeBy), as files of
other systems have them, and parts of others. They stand in plans, traces and messages, not in
programs.

)";

// "(data, weight, [bias]) → output | mask"
std::string Signature(const OpDef& op) {
  std::vector<std::string> inputs;
  for (const Slot& slot : op.inputs.slots()) inputs.push_back(NameOf(slot));
  std::string outputs;
  bool hidden = false;
  for (const Slot& slot : op.outputs.slots()) {
    const bool begins = !hidden && slot.hidden && slot.hidden(op.attrs_type->FromMap({}));
    hidden = hidden || begins;
    outputs += (outputs.empty() ? "" : begins ? " \\| " : ", ") + NameOf(slot);
  }
  return fmt::format("({}) → {}", fmt::join(inputs, ", "), outputs);
}

std::string Doc(const OpDef& op) {
  std::string text = op.doc;
  if (!text.ends_with('.')) text += '.';
  if (op.is_loss) text += " A loss: its gradient is its own.";
  if (op.compose) text += " Made of others as soon as shapes are known.";
  if (!op.not_differentiable.empty()) text += fmt::format(" No gradient: {}.", op.not_differentiable);
  return text;
}

// `heading`: "##".
std::string Describe(const OpDef& op, const std::string& heading) {
  const std::vector<FieldInfo> fields = op.attrs_type->Fields();
  if (fields.empty()) return Wrapped(fmt::format("* **{}** {}: {}", op.name, Signature(op), Doc(op)), "  ");
  std::string text = fmt::format("\n{} {}\n\n{}\n", heading, op.name, Wrapped(Signature(op)) + "\n" + Wrapped(Doc(op)));
  for (const FieldInfo& field : fields) {
    const std::string value = field.default_value.empty() ? "\"\"" : field.default_value;
    text += Wrapped(fmt::format("* `{}` ({}, default {}): {}", field.name, field.type, value, field.doc), "  ");
  }
  return text;
}

nlohmann::json ToJson(const OpDef& op) {
  nlohmann::json attributes = nlohmann::json::array();
  for (const FieldInfo& field : op.attrs_type->Fields()) {
    attributes.push_back(
        {{"name", field.name}, {"type", field.type}, {"default", field.default_value}, {"doc", field.doc}});
  }
  return {{"operator", op.name}, {"doc", op.doc}, {"signature", Signature(op)}, {"attributes", attributes}};
}

struct OperatorsCommand {
  std::string only;
  bool json = false;
  int Run() const {
    std::vector<const OpDef*> ops = only.empty() ? ListOps() : std::vector{&FindOp(only)};
    if (json) {
      for (const OpDef* op : ops) fmt::print("{}\n", ToJson(*op).dump());
      return kOk;
    }
    if (!only.empty()) {
      fmt::print("{}", Describe(*ops[0], "##"));
      return kOk;
    }
    const auto behind = [](const OpDef* op) { return !op->attrs_type->Fields().empty(); };
    std::ranges::stable_sort(ops, {}, behind);
    const auto appendix = std::ranges::stable_partition(ops, [](const OpDef* op) { return !IsMadeByTheLibrary(*op); });
    const std::vector<const OpDef*> words(ops.begin(), appendix.begin());
    fmt::print("{}\n## By purpose\n\n{}\n## Without attributes\n\n", kIntroduction, OperatorsByPurpose(words));
    for (const OpDef* op : words) fmt::print("{}", Describe(*op, "##"));
    fmt::print("{}", kAppendix);
    for (const OpDef* op : appendix) fmt::print("{}", Describe(*op, "###"));
    return kOk;
  }
};

}  // namespace

void AddOperators(CLI::App* app, RunFn* run) {
  const auto c = std::make_shared<OperatorsCommand>();
  CLI::App* sub = app->add_subcommand("operators", "describe operators: inputs, outputs, attributes");
  sub->add_option("--only", c->only, "one operator, by name; default: all, as docs/operators.md");
  sub->add_flag("--json", c->json, "JSON on standard output, a line for each");
  sub->callback([c, run] { *run = [c] { return c->Run(); }; });
}

}  // namespace bindery::cli
