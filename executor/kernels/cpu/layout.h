// Which formats the fast kernels use for activations (N, C, spatial...), and small questions about formats.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "executor/format.h"

namespace bindery::cpu {

// Floats in one vector register of the instructions that oneDNN and our own loops use here: 16 with AVX-512, else 8.
// Follows BINDERY_MAX_ISA and oneDNN's ONEDNN_MAX_CPU_ISA.
int SimdBlock();

// The formats in which a convolution reads and writes activations:
//   * bfloat16 where processors have AMX, for whose kernels oneDNN wants it so: channels last;
//   * both channel counts multiples of SimdBlock(): blocks of that many channels (nChw8c, nChw16c): fastest backward;
//   * an image's 1 to 3 channels into such a multiple: plain in, blocks out, which spares a reorder of the data;
//   * otherwise channels last: blocks would be padded (20 channels to 32), and oneDNN falls back to its slow loops for
//     odd channel counts in other formats.
// A function of type and channels alone, so forward, backward and every neighbour agree. channels are per group where
// groups matter: a depth-wise convolution counts all of them.
struct ActivationFormats {
  Format input, output;
};
ActivationFormats PreferredActivationFormats(DType dtype, const Shape& data, const Shape& output, int64_t groups);
// These first, then others that a convolution could have.
std::vector<ActivationFormats> FormatsToTry(DType dtype, const Shape& data, const Shape& output, int64_t groups);

// (N, C, spatial...) with the channels in blocks: aBcd8b.
Format ChannelBlocked(int rank, int block);

// A format's one name among those that lay this shape out identically: plain where the bytes are those of the plain
// format (axes of extent 1 may stand anywhere). Kernels report canonical formats, so nobody reorders for nothing.
Format Canonical(const Format& format, const Shape& shape);

bool IsPadded(const Format& format, const Shape& shape);

// (N, C, spatial...) seen as the loops of channel-wise operators see it.
//   kPlanes: outer x channels planes of `rows` consecutive elements (plain);
//   kRows: outer x groups runs of `rows` rows of `lanes` neighbouring channels (channels last: one group; blocked).
struct ChannelView {
  bool planes = true;
  int64_t outer = 1, channels = 1, groups = 1, lanes = 1, rows = 1;
};
// `axis` is the channel's. False if the format is neither plain, channels last nor in whole blocks of channels.
bool ViewChannels(const Format& format, const Shape& shape, int axis, ChannelView* view);

}  // namespace bindery::cpu
