// Finds odd rows in a CSV file, without being told what odd is: an autoencoder squeezes each row through a few numbers
// and back. It learns what most rows have in common; rows that come out wrong do not have it.
//
//   anomalies readings.csv               # columns of numbers, with or without names in the first row
//   anomalies readings.csv fault         # column "fault" is 1 for rows known to be odd: not learnt from, but compared
//   anomalies readings.csv fault time    # with; and columns that are no readings, such as times, are left out
//   tools/bazel run //examples:anomalies # writes readings of a pump to a file first, with faults in 40 of 2000 rows
//
// Prints how the loss falls, and then the oddest rows: which of the file (from 1, without the names), how far off, and
// the column that is furthest off. Each reading of the pump's faults is an ordinary one by itself; only together they
// make no sense.
//
// Expected: in a few seconds, at least 36 of the 40 oddest rows are faults.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "bindery/bindery.h"

using namespace bindery;

namespace {

constexpr int64_t kRows = 2000, kFaults = 40;

// What a pump's speed and the valve behind it make of flow, pressure, power and temperature; faults take one reading
// from another moment.
void WriteReadings(const std::string& path) {
  PhiloxStream random(/*seed=*/1, "readings");
  const auto readings = [&] {
    const float speed = random.Uniform(0.3f, 1), valve = random.Uniform(0.3f, 1);
    const float flow = speed * valve, pressure = speed * speed * (1.2f - valve), power = flow * (0.4f + pressure);
    std::vector<float> row = {3000 * speed, 80 * flow, 10 * pressure, 40 * power, 30 + 50 * power + 10 * (1 - flow)};
    for (float& value : row) value *= random.Uniform(0.995f, 1.005f);
    return row;
  };
  std::ofstream file(path);
  file << "time,speed,flow,pressure,power,temperature,fault\n";
  for (int64_t i = 0; i < kRows; ++i) {
    std::vector<float> row = readings();
    const bool fault = i % (kRows / kFaults) == 17;
    for (const std::vector<float> before = row; fault;) {
      const auto column = static_cast<size_t>(random.Uniform(0, 5));
      row = before;
      row[column] = readings()[column];
      if (std::abs(row[column] / before[column] - 1) > 0.4f) break;  // else it is hardly a fault
    }
    file << "day " << i / 24 + 1 << " " << i % 24 << ":00,";
    for (const float value : row) file << value << ",";
    file << fault << "\n";
  }
}

// (N, columns) -> the loss of each row (N), and what is wrong in each column (N, columns).
Symbol Autoencoder(int64_t columns) {
  const Symbol row = Variable("data");
  Symbol x = Tanh(FullyConnected(row, {.num_hidden = 32}, "encode1"));
  x = FullyConnected(x, {.num_hidden = std::max<int64_t>(1, columns / 2)}, "code");
  x = Tanh(FullyConnected(x, {.num_hidden = 32}, "decode1"));
  const Symbol error = Square(FullyConnected(x, {.num_hidden = columns}, "decode2") - row);
  return Group({MakeLoss(Mean(error, {.axes = {1}}), {}, "odd"), BlockGrad(error, {}, "errors")});
}

void FindOddRows(const std::string& path, const std::string& known, const std::string& left_out) {
  const CsvTable table = ReadCsv(path, {.label = known.empty() ? "none" : known,
                                        .leave_out = left_out.empty() ? "none" : left_out,
                                        .scaling = {ColumnScale::kStandard}});
  const int64_t rows = table.data.shape()[0], columns = table.data.shape()[1];

  ArrayIter batches({{"data", std::make_shared<const HostTensor>(table.data)}}, {},
                    {.batch_size = 32, .shuffle = true});
  Trainer trainer(Autoencoder(columns), {.optimizer = "adam(lr=0.005)",
                                         .schedule = "cosine(40, unit=epoch)",
                                         .metrics = "loss(output=odd_output)",
                                         .seed = 1});
  trainer.Fit(batches, {.epochs = 40, .on_epoch = [](const EpochReport& report) {
                          if ((report.epoch + 1) % 10 != 0) return;
                          std::printf("epoch %d: loss %.4f\n", static_cast<int>(report.epoch + 1),
                                      report.train[0].second);
                        }});

  // In the order of the file.
  ArrayIter in_order({{"data", std::make_shared<const HostTensor>(table.data)}}, {}, {.batch_size = 256});
  const std::vector<HostTensor> outputs = trainer.Predict(in_order);
  const auto odd = outputs[0].data<float>(), errors = outputs[1].data<float>();
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](int64_t a, int64_t b) { return odd[size_t(a)] > odd[size_t(b)]; });

  const auto is_known = [&](int64_t row) { return !known.empty() && table.labels.At(row) == 1; };
  for (int64_t i = 0; i < std::min<int64_t>(10, rows); ++i) {
    const int64_t row = order[static_cast<size_t>(i)];
    const float* first = errors.data() + row * columns;
    const int64_t worst = std::max_element(first, first + columns) - first;
    std::printf("row %d: off by %.2f, most in %s%s\n", static_cast<int>(row + 1), odd[static_cast<size_t>(row)],
                table.columns[static_cast<size_t>(worst)].c_str(), is_known(row) ? " (known)" : "");
  }
  if (known.empty()) return;
  int64_t all = 0, found = 0;
  for (int64_t row = 0; row < rows; ++row) all += is_known(row);
  for (int64_t i = 0; i < all; ++i) found += is_known(order[static_cast<size_t>(i)]);
  std::printf("%d of the %d oddest rows are known to be odd\n", static_cast<int>(found), static_cast<int>(all));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 1) {
      FindOddRows(argv[1], argc > 2 ? argv[2] : "", argc > 3 ? argv[3] : "");
    } else {
      // `bazel run` starts programs in a folder of its own and says where it was called.
      const char* called_in = std::getenv("BUILD_WORKING_DIRECTORY");
      const std::string path = std::string(called_in ? called_in : ".") + "/readings.csv";
      WriteReadings(path);
      FindOddRows(path, "fault", "time");
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "anomalies: %s\n", e.what());
    return 1;
  }
}
