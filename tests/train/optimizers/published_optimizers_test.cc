// Optimizers against PyTorch's, and where it has none against their published formulas: the same 100 steps on four
// weights in double. The numbers are what tools/compare_pytorch/optimizers.py printed with PyTorch 2.15.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "train/optimizers/optimizer.h"

namespace bindery {
namespace {

struct Published {
  const char* text;
  std::array<double, 4> weights;
};

constexpr Published kPublished[] = {
    {"sgd(lr=0.1, wd=0.01)", {0.34001297343031323, -0.6953521882592042, 0.11989179630295636, 0.97699810521638841}},
    {"sgd(lr=0.1, momentum=0.9, wd=0.01)",
     {0.035491204585197451, 0.012199817610715589, -0.040882750486126801, -0.058710129852701354}},
    {"nag(lr=0.1, momentum=0.9, wd=0.01)",
     {0.057670577125364636, -0.033588936712333359, -0.10263027820106983, -0.078401575491460956}},
    {"adam(lr=0.1, wd=0.01)", {0.13704079382839046, -0.34835307527100168, 0.13871476361511595, 0.60496834073387362}},
    {"adamw(lr=0.1, wd=0.01)", {0.14673591312663986, -0.3698049241525998, 0.14897801211983522, 0.63234671220961547}},
    {"nadam(lr=0.1, wd=0.01)", {0.21547536102670281, -0.47154901836355134, 0.08639703563648371, 0.67961338339994037}},
    {"adamax(lr=0.1, wd=0.01)", {0.26474755234949382, -0.72585884128307876, 0.2464308484991197, 1.246400736110435}},
    {"rmsprop(lr=0.1, rho=0.99, wd=0.01)",
     {0.070005021641320483, -0.21552228844479693, -0.014999285341521687, 0.15718544294014331}},
    {"rmsprop(lr=0.1, momentum=0.5, wd=0.01)",
     {0.083854760650851068, -0.11191728545443071, -0.018904938847619065, 0.083354464912173104}},
    {"centered_rmsprop(lr=0.1, wd=0.01)",
     {0.19052863836624689, -0.46802423612604171, 0.089488747005483205, 0.57527161212763978}},
    {"adagrad(lr=0.1, lr_decay=0.01, wd=0.01)",
     {0.78071308918344107, -1.6859060507425181, 0.50689311756712629, 2.5299408255862663}},
    {"adadelta(lr=1, wd=0.01)", {0.95837976292957006, -1.9115409214761407, 0.4735025545542686, 2.8770558033158569}},
    {"lars(lr=1, eta=0.02, wd=0.01)",
     {-0.31782028988136296, -0.24256811464391773, 0.15109141122898367, 0.41781543031209273}},
    {"lamb(lr=0.02, wd=0.01)", {0.035958530208502995, -0.35828931049713364, 0.13663804562745491, 0.60078024338878033}},
    {"lamb(lr=0.02, upper=0.5, wd=0.01)",
     {0.71136079926045803, -1.4911887750872794, 0.392360703648783, 2.2796620827188838}},
};

TEST(PublishedOptimizers, HundredSteps) {
  for (const auto& [text, expected] : kPublished) {
    const auto optimizer = MakeOptimizer(text);
    std::array<double, 4> weight = {1, -2, 0.5, 3}, gradient;
    std::vector<std::array<double, 4>> states(static_cast<size_t>(optimizer->state_count()));
    std::vector<void*> addresses;
    for (auto& state : states) addresses.push_back(state.data());
    for (int step = 1; step <= 100; ++step) {
      for (size_t i = 0; i < 4; ++i) {
        gradient[i] = std::sin(static_cast<double>(i) + 1.7 * step) + 0.1 * weight[i];
      }
      const void* const gradients[] = {gradient.data()};
      UpdateArgs args{.step = step,
                      .learning_rate = optimizer->options().learning_rate,
                      .weight_decay = optimizer->options().weight_decay};
      if (optimizer->measure()) {
        args.squares = optimizer->Measure(DType::kFloat64, args, gradients, weight.data(), addresses, 4);
      }
      optimizer->Update(DType::kFloat64, args, gradients, weight.data(), addresses, {}, 4);
    }
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(weight[i], expected[i], 1e-9 * (1 + std::fabs(expected[i]))) << text;
  }
}

}  // namespace
}  // namespace bindery
