// Loss scaling: gradients of losses times a large number, and the update's divided by it, so that what is small on its
// way through narrow types is not lost. As text:
//
//   static(scale)
//   dynamic(start=65536, growth=2, backoff=0.5, interval=2000, min=1, max=16777216, on_overflow=skip, limit=100)
//
// A dynamic scale begins with `start`. After `interval` steps in a row that were committed at one scale it is times
// `growth`, at most `max`; a step in which a sum of gradients is not finite is not committed, and the scale is times
// `backoff`, at least `min`. Then training goes on with the next batch (skip) or with the same one again (retry); after
// more than `limit` such steps in a row it ends with an error. Growth comes with the very next step; a step that was
// not committed does not count, not in the number of updates either.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bindery {

enum class OnOverflow { kSkip, kRetry };

struct LossScaling {
  bool dynamic = true;
  double start = 65536;  // > 0, at most 2^53; of a static one, the scale
  double growth = 2;     // >= 1
  double backoff = 0.5;  // in (0, 1)
  int64_t interval = 2000;
  double min = 1, max = 16777216;  // 0 < min <= start <= max <= 2^53
  OnOverflow on_overflow = OnOverflow::kSkip;
  int64_t limit = 100;  // steps in a row that may overflow

  // ParseLossScaling(Text()) is the same.
  std::string Text() const;
};
std::optional<LossScaling> ParseLossScaling(std::string_view text);  // "": none. Throws Error

struct LossScaleState {
  double scale = 1;
  int64_t good = 0;       // steps since the scale has changed
  int64_t overflows = 0;  // steps in a row
  bool operator==(const LossScaleState&) const = default;
};
LossScaleState FirstState(const LossScaling& scaling);
LossScaleState AfterCommit(const LossScaling& scaling, LossScaleState state);
// Throws NumericError beyond the limit.
LossScaleState AfterOverflow(const LossScaling& scaling, LossScaleState state);

}  // namespace bindery
