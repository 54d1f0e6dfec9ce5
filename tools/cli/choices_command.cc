// bindery choices: what options of a training choose by name: docs/choices.md.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/names.h"
#include "engine/kernels/update.h"
#include "tools/cli/arguments.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/exit_codes.h"
#include "train/metrics/metric_kinds.h"

namespace bindery::cli {
namespace {

constexpr char kAboutChoices[] = R"md(# Optimizers, schedules, metrics, initializers

What options of a training choose by name, as text: `--optimizer "adam(lr=0.001)"` on the command
line, `TrainerOptions::optimizer` in a program. `bindery choices` prints it. Settings go by
position, in the order in which they stand here, or by name. Behind a `=` stands the default, in
[brackets] what may be left out; the others have to be given.
)md";

struct Choice {
  std::string call;  // "poly(max, power=2, final=0)"
  std::string doc;
};
struct Choices {
  const char* name;
  const char* about;
  std::vector<Choice> choices;
};

std::vector<Choice> Metrics() {
  std::vector<Choice> choices;
  for (const MetricKind& kind : MetricKinds()) {
    choices.push_back({fmt::format("{}({})", kind.name, kind.settings), std::string(kind.doc)});
  }
  return choices;
}

// Names and settings are those of the rules themselves (engine/kernels/update_rules.cc).
std::vector<Choice> Optimizers() {
  static const std::map<std::string, const char*> kFormulas = {
      {"sgd", "w = w - lr G; with momentum m = momentum m - lr G, w = w + m"},
      {"nag", "Nesterov's momentum: m = momentum m - lr G, w = w + momentum m - lr G"},
      {"adam",
       "m = beta1 m + (1 - beta1) G, v = beta2 v + (1 - beta2) G^2, w = w - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - "
       "beta2^t)) + epsilon)"},
      {"adamw", "as adam by g, after w = (1 - lr wd) w: the decay does not go through the averages"},
      {"nadam", "Dozat's: adam that looks ahead, by a momentum that grows with schedule_decay"},
      {"adamax", "as adam, by the largest gradient: u = max(beta2 u, |G| + epsilon), w = w - lr / (1 - beta1^t) m / u"},
      {"rmsprop", "v = rho v + (1 - rho) G^2, m = momentum m - lr G / (sqrt(v) + epsilon), w = w + m"},
      {"centered_rmsprop", "as rmsprop, by the variance v - a^2 around a running mean a of the gradients"},
      {"adagrad", "h = h + G^2, w = w - lr / (1 + (t - 1) lr_decay) G / (sqrt(h) + epsilon)"},
      {"adadelta",
       "v = rho v + (1 - rho) G^2, d = sqrt(u + epsilon) / sqrt(v + epsilon) G, u = rho u + (1 - rho) d^2, w = w - lr "
       "d"},
      {"ftrl",
       "follows the regularised leader (McMahan and others): weights whose gradients stay within lambda1 are 0; wd is "
       "its lambda2"},
      {"signum", "m = momentum m + (1 - momentum) G, w = (1 - lr wd_lh) w - lr sign(m)"},
      {"lars",
       "sgd whose rate is multiplied for each parameter by eta |w| / (|g| + wd |w| + epsilon); for large batches"},
      {"lamb",
       "adamw whose step u is scaled for each parameter to lr |w|, |w| being kept between lower and upper (0: none); "
       "for large batches"},
      {"lion", "w = w - lr (sign(beta1 m + (1 - beta1) g) + wd w), m = beta2 m + (1 - beta2) g"},
  };
  std::vector<Choice> choices;
  for (const UpdateRule& rule : UpdateRules()) {
    std::string call = fmt::format("{}(lr={}", rule.name, rule.rate);
    for (const UpdateSetting& setting : rule.settings) call += fmt::format(", {}={}", setting.name, setting.value);
    const auto formula = kFormulas.find(rule.name);
    choices.push_back({call + ")", formula == kFormulas.end() ? "" : formula->second});
  }
  return choices;
}

// What the code that reads them makes of each of these, tests/tools/choices_test.cc compares with what they say.
const std::vector<Choices>& AllChoices() {
  static const auto& all = *new std::vector<Choices>{
      {"optimizers",
       "`--optimizer`, `TrainerOptions::optimizer`. g is the sum of a step's gradients times `rescale` (default: 1 / "
       "its samples), cut to the norm clip_norm of all parameters and then to [-clip_gradient, clip_gradient] (0: "
       "neither), G = g + wd w, t the number of the update. Behind their own, all have the settings wd=0, "
       "clip_gradient=0, rescale and clip_norm=0.",
       Optimizers()},
      {"schedules",
       "`--schedule`, `TrainerOptions::schedule`: the learning rate of each step t, from 1 on, from the optimizer's "
       "lr, "
       "the base. Behind their own, all but one_cycle have base, warmup=0, warmup_begin=0, warmup_mode=linear (or "
       "constant) and unit=step: until step warmup the rate goes from warmup_begin to the base. With unit=epoch, all "
       "numbers of steps are numbers of epochs.",
       {{"constant()", "the base"},
        {"factor(step, factor, floor=1e-8)", "times `factor` after every `step` steps, but no less than `floor`"},
        {"steps(at, factor=0.1)", "times `factor` behind each of the steps at = \"15;25\""},
        {"poly(max, power=2, final=0)",
         "falls to `final` at step `max`, by epochs behind epoch `max`, as (1 - part that is done)^power"},
        {"cosine(max, final=0)", "falls to `final` at step `max`, by epochs behind epoch `max`, as half a wave"},
        {"one_cycle(max, rise=0.3, start=25, end=10000, curve=cosine)",
         "in the part `rise` of `max` steps up from base / start to the base, then down to base / start / end, by "
         "curve=cosine or linear; PyTorch's OneCycleLR"},
        {"plateau(factor=0.1, patience=10, threshold=0.0001, cooldown=0, floor=0, mode=rel)",
         "times `factor` when what epochs are judged by (`--watch`) was no better for more than `patience` of them; "
         "PyTorch's ReduceLROnPlateau"}}},
      {"metrics",
       "`--metrics`, `TrainerOptions::metrics`, several with commas between. Those of classes have, behind their own, "
       "axis (of the classes; none: each number is a class itself, as of several truths), ignore (a label that "
       "does not count), output and label (names; default: all, in order; in quotes, doubled in them, where "
       "there is a , or a bracket). All take a name, by which reports, `--watch` and checkpoints call them: "
       "`loss(output=kl_output, name=kl)`. Where none are given, they are those of the model's heads: accuracy "
       "and cross-entropy of probabilities of classes, accuracy of an SVMOutput, accuracy and rmse of a "
       "LogisticRegressionOutput, rmse and mae of numbers, loss of a loss of one's own. In a program there are "
       "also metrics of one's own ([how](own_loss_and_metric.md)).",
       Metrics()},
      {"initializers",
       "`--initializer`, `TrainerOptions::initializer`, for parameters whose names end in weight, or by patterns of "
       "names, the first that fits: \"embed_*: normal(0.02), xavier\". Biases, beta and running means begin as 0, "
       "gamma "
       "and running variances as 1; a variable's own is `VariableOptions::init`. Fans of a weight (out, in, kernel) "
       "are its in and out times the kernel's area.",
       {{"zero()", "0"},
        {"one()", "1"},
        {"constant(value)", "a number"},
        {"uniform(low=0.07, [high])", "from low to high; of one number from -low to low"},
        {"normal(sigma=0.01)", "Gauss, around 0"},
        {"xavier(distribution=uniform, fan=avg, magnitude=3)",
         "Glorot's: the range, or by distribution=gaussian the deviation, is sqrt(magnitude / fan), of fan=avg, in or "
         "out; the default of weights"},
        {"msra(fan=avg, slope=0.25)", "He's: the deviation is sqrt(2 / (1 + slope^2) / fan)"},
        {"he()", "the deviation is sqrt(2 / fan in)"},
        {"orthogonal(scale=1.414)", "rows, or columns if they are fewer, at right angles and of length `scale`"},
        {"bilinear()", "what a Deconvolution interpolates by"},
        {"lstm_bias(forget=1)", "a bias of i, f, g, o: that of f is `forget`, the others 0"}}},
      {"averages",
       "`--average`, `TrainerOptions::average`: of weights, kept beside them; `--use-average` predicts and saves them.",
       {{"ema(decay=0.999)", "average = decay average + (1 - decay) w"},
        {"swa(start, every=1)", "the mean of the weights after updates start, start + every, ..."}}},
      {"loss scales",
       "`--loss-scale`, `TrainerOptions::loss_scale`, for training in float16 ([precision](precision.md)).",
       {{"static(scale)", "one number"},
        {"dynamic(start=65536, growth=2, backoff=0.5, interval=2000, min=1, max=16777216, on_overflow=skip, limit=100)",
         "times `growth` after `interval` good steps, times `backoff` after one that is not finite, which is left out, "
         "or by on_overflow=retry taken again; an error after `limit` of them in a row"}}},
  };
  return all;
}

std::string DescribeChoices(const Choices& kind) {
  std::string heading = kind.name;
  heading[0] = static_cast<char>(heading[0] - 'a' + 'A');
  std::string text = fmt::format("\n## {}\n\n{}\n", heading, Wrapped(kind.about));
  for (const auto& [call, doc] : kind.choices) {
    const std::string plain = call.ends_with("()") ? call.substr(0, call.size() - 2) : call;
    text += Wrapped(fmt::format("* `{}`: {}", plain, doc), "  ");
  }
  return text;
}

int PrintChoices(const std::string& only) {
  std::vector<std::string> names;
  for (const Choices& kind : AllChoices()) names.emplace_back(kind.name);
  if (!only.empty() && std::ranges::find(names, only) == names.end()) {
    throw UsageError(fmt::format("--only: there are no \"{}\"{}", only, NameHint(only, names)));
  }
  if (only.empty()) fmt::print("{}", kAboutChoices);
  for (const Choices& kind : AllChoices()) {
    if (only.empty() || only == kind.name) fmt::print("{}", DescribeChoices(kind));
  }
  return kOk;
}

}  // namespace

void AddChoices(CLI::App* app, RunFn* run) {
  const auto only = std::make_shared<std::string>();
  CLI::App* sub = app->add_subcommand("choices", "describe optimizers, schedules, metrics, initializers: settings");
  sub->add_option("--only", *only, "optimizers, schedules, metrics, initializers, averages or \"loss scales\"");
  sub->callback([only, run] { *run = [only] { return PrintChoices(*only); }; });
}

}  // namespace bindery::cli
