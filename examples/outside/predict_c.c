/* The same in C: asks a model for the scores of one batch that lies in the program's own memory.
 *
 *   predict_c mlp.pb 1,28,28
 */
#include <bindery/c_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void check(bindery_status status) {
  if (status == BINDERY_OK) return;
  fprintf(stderr, "%s\n", bindery_last_error());
  exit(1);
}

int main(int argc, char** argv) {
  int64_t shape[8] = {2}, elements = 2;
  int32_t rank = 1;
  const DLDataType float32 = {kDLFloat, 32, 1};
  char *text, *end;
  if (argc != 3) {
    fprintf(stderr, "usage: predict_c MODEL SHAPE\n");
    return 2;
  }
  for (text = argv[2]; *text && rank < 8; text = end + (*end == ',')) {
    shape[rank] = strtoll(text, &end, 10);
    elements *= shape[rank++];
    if (end == text) {
      fprintf(stderr, "SHAPE: expected numbers as 1,28,28\n");
      return 2;
    }
  }

  bindery_model* model = NULL;
  check(bindery_model_load(argv[1], &model));
  const bindery_input described = {.name = "data", .rank = rank, .shape = shape};
  bindery_predictor* predictor = NULL;
  check(bindery_predictor_create(model, &described, 1, NULL, &predictor));

  float* samples = calloc((size_t)elements, sizeof *samples);
  const DLTensor memory = {.data = samples, .device = {kDLCPU, 0}, .ndim = rank, .dtype = float32, .shape = shape};
  bindery_tensor *input = NULL, *output = NULL;
  check(bindery_tensor_borrow(&memory, &input));

  const char* const name = "data";
  const bindery_tensor* const inputs[] = {input};
  check(bindery_predictor_run(predictor, &name, inputs, 1, &output, 1));

  DLTensor scores;
  check(bindery_tensor_view(output, &scores));
  for (int64_t row = 0; row < scores.shape[0]; ++row) {
    double sum = 0;
    for (int64_t i = 0; i < scores.shape[1]; ++i) sum += ((float*)scores.data)[row * scores.shape[1] + i];
    printf("sample %d: %d scores, sum %.4f\n", (int)row, (int)scores.shape[1], sum);
    if (fabs(sum - 1) > 1e-3) return 1;
  }

  bindery_tensor_free(output);
  bindery_tensor_free(input);
  free(samples);
  bindery_predictor_free(predictor);
  bindery_model_free(model);
  return 0;
}
