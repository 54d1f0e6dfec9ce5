// The operators' kernels for GPUs by their bodies for CPUs, for tests on the fake of the driver. Linked into a test, its
// fake has them.
#include "tests/engine/cuda/fake/kernels.h"

#include "executor/kernels/cuda/arrange_body.h"
#include "executor/kernels/cuda/attention_body.h"
#include "executor/kernels/cuda/ctc_body.h"
#include "executor/kernels/cuda/elementwise_body.h"
#include "executor/kernels/cuda/layout_body.h"
#include "executor/kernels/cuda/norm_body.h"
#include "executor/kernels/cuda/order_body.h"
#include "executor/kernels/cuda/product_body.h"
#include "executor/kernels/cuda/random_body.h"
#include "executor/kernels/cuda/recurrent_body.h"
#include "executor/kernels/cuda/reduce_body.h"
#include "executor/kernels/cuda/softmax_body.h"

namespace bindery::cuda::fake {
namespace {

[[maybe_unused]] const bool kOperators = [] {
  AddImage<ArrangeImage>(bindery_cuda_arrange);
  AddImage<AttentionImage>(bindery_cuda_attention);
  AddImage<CTCImage>(bindery_cuda_ctc);
  AddImage<ElementwiseImage>(bindery_cuda_elementwise);
  AddImage<LayoutImage>(bindery_cuda_layout);
  AddImage<NormImage>(bindery_cuda_norm);
  AddImage<OrderImage>(bindery_cuda_order);
  AddImage<ProductImage>(bindery_cuda_product);
  AddImage<RandomImage>(bindery_cuda_random);
  AddImage<RecurrentImage>(bindery_cuda_recurrent);
  AddImage<ReduceImage>(bindery_cuda_reduce);
  AddImage<SoftmaxImage>(bindery_cuda_softmax);
  return true;
}();

}  // namespace
}  // namespace bindery::cuda::fake
