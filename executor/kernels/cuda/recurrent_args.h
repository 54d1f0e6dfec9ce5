// What kernels of recurrent layers are launched with (args.h).
#pragma once

#include <tuple>

#include "executor/kernels/cuda/args.h"

extern "C" const unsigned long long bindery_cuda_recurrent[];

namespace bindery::cuda {

// A recurrent layer in one direction (symbol/ops/recurrent.h).
struct RecurrentShape {
  int64_t steps = 0, samples = 0, hidden = 0, gates = 1, saved = 1;
  int64_t next_step = 0, next_sample = 0;
  int64_t place[4] = {}, peephole_place[3] = {};
  int32_t lstm = 0, gru = 0, tanh = 0;
  int32_t reverse = 0, reset_after = 1, coupled = 0;
  double clip = 0;
};

// One block per sample, step by step; `scratch` is 4 hidden numbers of each.
struct RecurrentArgs {
  static constexpr const char* kName = "bindery_recurrent";
  static constexpr const unsigned long long* kImage = bindery_cuda_recurrent;
  RecurrentShape shape = {};
  Source data = {}, weight = {}, bias = {}, peephole = {}, state = {}, cell = {}, lengths = {};
  Target y = {}, last = {}, last_cell = {}, previous = {}, saved = {}, previous_cell = {};
  void* scratch = nullptr;
  void Addresses(const auto& visit) {
    for (Source* source : {&data, &weight, &bias, &peephole, &state, &cell, &lengths}) visit(source->data);
    for (Target* target : {&y, &last, &last_cell, &previous, &saved, &previous_cell}) visit(target->data);
    visit(scratch);
  }
};

// `scratch` is 4 hidden and gates hidden numbers of each sample.
struct RecurrentGradArgs {
  static constexpr const char* kName = "bindery_recurrent_grad";
  static constexpr const unsigned long long* kImage = bindery_cuda_recurrent;
  RecurrentShape shape = {};
  Source dy = {}, d_last = {}, d_last_cell = {}, weight = {}, peephole = {}, lengths = {};
  Source previous = {}, saved = {}, previous_cell = {};
  Target dx = {}, d_state = {}, d_cell = {}, d_product = {};
  void* scratch = nullptr;
  void Addresses(const auto& visit) {
    for (Source* source : {&dy, &d_last, &d_last_cell, &weight, &peephole, &lengths}) visit(source->data);
    for (Source* source : {&previous, &saved, &previous_cell}) visit(source->data);
    for (Target* target : {&dx, &d_state, &d_cell, &d_product}) visit(target->data);
    visit(scratch);
  }
};

using RecurrentImage = std::tuple<RecurrentArgs, RecurrentGradArgs>;

}  // namespace bindery::cuda
