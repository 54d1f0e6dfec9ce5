// Bindery's side of compare_pillow/compare.sh: every image of a folder of folders, decoded, scaled to rows x columns and
// made to floats, over and over on one thread. Prints images per second and writes the pixels of one round as float32.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <string>

#include "base/files.h"
#include "train/data/open.h"
#include "train/data/samples/sample_iter.h"

int main(int argc, char** argv) {
  using namespace bindery;
  CLI::App app;
  std::string folder, output;
  double seconds = 3;
  int64_t rows = 224, columns = 224;
  app.add_option("--folder", folder)->required();
  app.add_option("--output", output)->required();
  app.add_option("--seconds", seconds);
  app.add_option("--rows", rows);
  app.add_option("--columns", columns);
  CLI11_PARSE(app, argc, argv);
  try {
    const OpenedData opened = OpenData(fmt::format("images:{}?rows={}&columns={}", folder, rows, columns));
    SampleIter iter(opened.samples, {.batch_size = opened.samples->samples()});
    const HostTensor pixels = iter.Next()->data[0];
    WriteFileAtomically(output, {static_cast<const char*>(pixels.raw()), static_cast<size_t>(pixels.bytes())});
    const auto start = std::chrono::steady_clock::now();
    std::chrono::duration<double> passed{};
    int64_t images = 0;
    for (; passed.count() < seconds; passed = std::chrono::steady_clock::now() - start) {
      iter.Reset();
      images += iter.Next()->samples;
    }
    fmt::print("{:.1f}\n", static_cast<double>(images) / passed.count());
  } catch (const Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
