#include "train/optimizers/averaging.h"

#include "base/error.h"
#include "base/names.h"
#include "engine/kernels/update_kernels.h"
#include "engine/kernels/update_rules.h"
#include "train/call_text.h"

namespace bindery {

std::optional<Averaging> ParseAveraging(std::string_view text) {
  if (text.empty()) return std::nullopt;
  CallText call("average", text);
  if (call.name() == "ema") {
    call.Declare({"decay"});
    const double decay = call.Number("decay").value_or(0.999);
    if (!(decay >= 0 && decay < 1)) call.Fail("decay must be in [0, 1)");
    return Averaging{CallPrinter("ema").Add("decay", decay).Text(), BuiltInKernelOf<update_rules::Ema>(), {decay}};
  }
  if (call.name() == "swa") {
    call.Declare({"start", "every"});
    const std::optional<int64_t> start = call.Integer("start");
    if (!start) call.Fail("\"start\" is missing");
    const int64_t every = call.Integer("every").value_or(1);
    if (*start < 1 || every < 1) call.Fail("start and every must be >= 1");
    const CallPrinter printer =
        CallPrinter("swa").Add("start", fmt::format("{}", *start)).Add("every", fmt::format("{}", every));
    return Averaging{printer.Text(),
                     BuiltInKernelOf<update_rules::Swa>(),
                     {static_cast<double>(*start), static_cast<double>(every)}};
  }
  const std::vector<std::string> known = {"ema", "swa"};
  Throw("unknown average \"{}\"{}", call.name(), NameHint(call.name(), known));
}

}  // namespace bindery
