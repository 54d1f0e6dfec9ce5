// Inference alone: loads a model and computes the outputs for one batch of zeros. Needs libbindery_predict.so only.
//
//   predict mlp.pb 1,28,28
//
// The input's name is "data"; the shape is that of one sample.
#include <bindery/predict.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: predict MODEL SHAPE\n");
    return 2;
  }
  try {
    std::vector<int64_t> extents = {2};  // samples
    for (char *text = argv[2], *end; *text; text = end + (*end == ',')) {
      extents.push_back(std::strtoll(text, &end, 10));
      if (end == text) throw std::invalid_argument("SHAPE: expected numbers as 1,28,28");
    }
    const bindery::Shape shape(extents);
    const bindery::Predictor predictor(argv[1], {.inputs = {{"data", shape}}});
    const auto outputs = predictor.Predict({{"data", bindery::HostTensor(bindery::DType::kFloat32, shape)}});
    for (size_t i = 0; i < outputs.size(); ++i) {
      std::printf("%s %s:", predictor.output_names()[i].c_str(), ToString(outputs[i].shape()).c_str());
      for (int64_t k = 0; k < outputs[i].elements(); ++k) std::printf(" %.4f", outputs[i].At(k));
      std::printf("\n");
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
