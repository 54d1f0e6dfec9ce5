// An LSTM that forecasts: from two days of hourly values, the next hour's.
//
//   lstm load.csv                    # one value a line, oldest first; a first line without a number is passed over
//   tools/bazel run //examples:lstm  # makes a series of its own: days, weekends, weather that comes and goes, noise
//
// Prints the error of each epoch on the last fifth of the series, which is not trained on, and beside it those of the
// two forecasts that cost nothing: the last hour again, and the same hour of the day before.
//
// Expected: of its own series, in a few seconds, an error of less than half of either.
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "bindery/bindery.h"

using namespace bindery;

namespace {

constexpr int64_t kHours = 48;  // that a forecast looks back

std::vector<float> MakeSeries(int64_t hours) {
  PhiloxStream random(/*seed=*/1, "series");
  std::vector<float> series;
  float weather = 0;
  for (int64_t hour = 0; hour < hours; ++hour) {
    weather = 0.98f * weather + random.Uniform(-0.5f, 0.5f);
    const float angle = static_cast<float>(hour % 24) * 2 * 3.14159265f / 24;
    const float day = -std::cos(angle) - 0.6f * std::cos(2 * angle + 1);
    const bool weekend = hour / 24 % 7 >= 5;
    series.push_back(50 + (weekend ? 6 : 12) * day + 2 * weather + random.Uniform(-0.7f, 0.7f));
  }
  return series;
}

std::vector<float> ReadSeries(const std::string& path) {
  const CsvTable table = ReadCsv(path, {.label = "none"});
  if (table.data.shape()[1] != 1) throw DataError(path + ": more than one value a line");
  const auto values = table.data.data<float>();
  return {values.begin(), values.end()};
}

// Windows that begin at hours first .. last - 1: kHours values and, as label, the one behind them.
ArrayIter Windows(const std::vector<float>& series, int64_t first, int64_t last, bool shuffle) {
  HostTensor data(DType::kFloat32, {last - first, kHours, 1}), label(DType::kFloat32, {last - first, 1});
  for (int64_t i = 0; i < last - first; ++i) {
    const float* begin = series.data() + first + i;
    std::copy(begin, begin + kHours, data.data<float>().data() + i * kHours);
    label.data<float>()[static_cast<size_t>(i)] = begin[kHours];
  }
  return {std::move(data), std::move(label), {.batch_size = 64, .shuffle = shuffle}};
}

// Root of the mean square, over the hours from `first` on, of what repeating the value of `back` hours ago misses.
double ErrorOfRepeating(const std::vector<float>& series, int64_t first, int64_t back) {
  double squares = 0;
  const auto hours = static_cast<int64_t>(series.size());
  for (int64_t i = first; i < hours; ++i) {
    const double miss = series[static_cast<size_t>(i)] - series[static_cast<size_t>(i - back)];
    squares += miss * miss / static_cast<double>(hours - first);
  }
  return std::sqrt(squares);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<float> series = argc > 1 ? ReadSeries(argv[1]) : MakeSeries(24 * 7 * 16);
    const auto windows = static_cast<int64_t>(series.size()) - kHours;
    if (windows < 100) throw DataError("the series is too short: two days and a hundred hours are wanted");
    const int64_t trained = windows * 4 / 5;

    // Networks like values around 0: mean and deviation are those of the part that is trained on.
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < trained; ++i) mean += series[static_cast<size_t>(i)] / static_cast<double>(trained);
    for (int64_t i = 0; i < trained; ++i) squares += std::pow(series[static_cast<size_t>(i)] - mean, 2);
    const double deviation = std::sqrt(squares / static_cast<double>(trained)) + 1e-9;
    for (float& value : series) value = static_cast<float>((value - mean) / deviation);

    ArrayIter train = Windows(series, 0, trained, /*shuffle=*/true);
    ArrayIter test = Windows(series, trained, windows, /*shuffle=*/false);

    // (N, hours, 1) -> the state after the last hour (N, 32) -> a number (N, 1)
    const RnnAttrs lstm{.cell = RecurrentCell::kLstm, .hidden = 32, .layout = SequenceLayout::kNtc};
    const Symbol last = Rnn(Variable("data"), lstm, "lstm").states.back();
    const Symbol net = LinearRegressionOutput(FullyConnected(last, {.num_hidden = 1}, "forecast"),
                                              Variable("softmax_label"), {}, "output");

    Trainer trainer(net, {.optimizer = "adam(lr=0.01)", .schedule = "cosine(15, unit=epoch)", .metrics = "rmse"});
    trainer.Fit(train, {.epochs = 15, .validation = &test, .on_epoch = [&](const EpochReport& report) {
                          std::printf("epoch %d: error %.3f\n", static_cast<int>(report.epoch + 1),
                                      report.validation[0].second * deviation);
                          std::fflush(stdout);
                        }});
    const int64_t first = trained + kHours;
    std::printf("the last hour again: error %.3f\n", ErrorOfRepeating(series, first, 1) * deviation);
    std::printf("the day before: error %.3f\n", ErrorOfRepeating(series, first, 24) * deviation);

    // The hour after the end of the series.
    HostTensor now(DType::kFloat32, {1, kHours, 1});
    std::copy(series.end() - kHours, series.end(), now.data<float>().data());
    std::printf("the next hour: %.2f\n", trainer.Predict({now})[0].At(0) * deviation + mean);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "lstm: %s\n", e.what());
    return 1;
  }
}
