// Private to train/plot.
#pragma once

#include <memory>

#include "train/plot/painter.h"

namespace bindery {

std::unique_ptr<Painter> MakeSvgPainter(int width, int height);

}  // namespace bindery
