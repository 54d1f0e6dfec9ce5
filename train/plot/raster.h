// Private to train/plot.
#pragma once

#include <memory>

#include "train/plot/painter.h"

namespace bindery {

// `scale` pixels for each unit, as PNG.
std::unique_ptr<Painter> MakeRasterPainter(int width, int height, int scale);

}  // namespace bindery
