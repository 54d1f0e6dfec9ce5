// Bindery for C and for whatever calls C: tensors, models, prediction from many threads, and one network bound to one
// device, forward and backward. libbindery_predict.so has it, so libbindery.so has it, too.
//
// Handles are opaque; who gets one frees it (NULL is allowed). A call that fails returns a status above 0, leaves what it
// was to return as it was, and says why in bindery_last_error. No exception leaves the library.
//
// Arrays come and go by DLPack (bindery/dlpack.h), without copies. They lie in host memory, in C order without gaps.
//
// Threads: a handle is used by one thread at a time, but for predictors, which any number may ask at once, and models,
// which nobody changes.
//
// Processes: one that was forked has none of the threads that the one before it had. So where this has made a predictor
// or an executor, every call fails in what is forked from then on; freeing does nothing there. Fork before, or spawn.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "bindery/dlpack.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bindery_tensor bindery_tensor;
typedef struct bindery_model bindery_model;
typedef struct bindery_predictor bindery_predictor;
typedef struct bindery_executor bindery_executor;

typedef enum {
  BINDERY_OK = 0,
  BINDERY_ERROR = 1, /* wrong use, and what is none of the following */
  BINDERY_SHAPE_ERROR = 2,
  BINDERY_MODEL_ERROR = 3,
  BINDERY_DATA_ERROR = 4, /* of files and of what a call was given */
  BINDERY_CHECKPOINT_ERROR = 5,
  BINDERY_DEVICE_ERROR = 6,
  BINDERY_NUMERIC_ERROR = 7,
  BINDERY_OUT_OF_MEMORY = 8 /* of the host; where an array does not fit, that is a device's: 6, also for cpu:0 */
} bindery_status;

const char* bindery_version(void); /* "0.1.0" */
/* What the calling thread's last failing call had to say; "" if none failed. Stays until the next one fails. */
const char* bindery_last_error(void);

/* --- tensors --- */

/* Zeros. */
bindery_status bindery_tensor_create(DLDataType dtype, int32_t rank, const int64_t* shape, bindery_tensor** tensor);
/* Memory of the caller, who leaves it where it is until the tensor, and whatever was made of it, is freed. */
bindery_status bindery_tensor_borrow(const DLTensor* memory, bindery_tensor** tensor);
/* Takes what another library hands over, and gives it back by its deleter when nobody needs it any more: maybe by
   another thread, after the handle was freed. If this fails, it still is the caller's. What is read-only is so here,
   and where it goes on to: by convention, as nothing checks who writes. */
bindery_status bindery_tensor_from_dlpack(struct DLManagedTensor* managed, bindery_tensor** tensor);
bindery_status bindery_tensor_from_dlpack_versioned(struct DLManagedTensorVersioned* managed, bindery_tensor** tensor);
/* The same memory for another library, which calls the deleter when it is done; it may outlive the handle. What is
   read-only goes as a versioned one, flagged; the other form, which has no flag for it, is an error then. */
bindery_status bindery_tensor_to_dlpack(const bindery_tensor* tensor, struct DLManagedTensor** managed);
bindery_status bindery_tensor_to_dlpack_versioned(const bindery_tensor* tensor,
                                                  struct DLManagedTensorVersioned** managed);
/* Where the elements are, as long as the handle lives. All of these wait for what is being written there; after later
   runs of an executor, ask again before you touch its arrays. */
bindery_status bindery_tensor_view(const bindery_tensor* tensor, DLTensor* view);
void bindery_tensor_free(bindery_tensor* tensor);

/* --- models --- */

/* By the name's ending: .pb, .prototxt or .onnx; of MXNet .json, with the .params beside it. */
bindery_status bindery_model_load(const char* path, bindery_model** model);
/* The bytes of a .pb file that stands alone; or the text of a .prototxt one. */
bindery_status bindery_model_parse(const void* bytes, size_t size, int is_text, bindery_model** model);
bindery_status bindery_model_save(const bindery_model* model, const char* path);

typedef enum {
  BINDERY_ARGUMENTS = 0, /* inputs, labels and parameters, in the network's order */
  BINDERY_PARAMETERS = 1,
  BINDERY_AUXILIARY_STATES = 2,
  BINDERY_OUTPUTS = 3
} bindery_names;
/* One of them, by its number. The names live as long as the model. */
bindery_status bindery_model_list(const bindery_model* model, int32_t which, const char* const** names, size_t* count);
/* The value of a parameter or an auxiliary state, in place: not to be written. */
bindery_status bindery_model_value(const bindery_model* model, const char* name, bindery_tensor** tensor);
/* What is kept with the model by this name, a text that lives as long as the model; NULL if it is not there. "classes"
   are their names, a line each. "bindery.preprocessing" says how the data were made that it was trained on, as columns
   of a table by "mean=5.8,3.1&scale=standard&std=0.8,0.4": nothing here does that to inputs. */
bindery_status bindery_model_metadata(const bindery_model* model, const char* name, const char** value);
void bindery_model_free(bindery_model* model);

/* --- binding --- */

/* An argument that comes with the calls. */
typedef struct {
  const char* name;
  int32_t rank;
  const int64_t* shape; /* the largest that may come, for a predictor; axis 0 is the batch */
  DLDataType dtype;     /* all zeros: float32 */
} bindery_input;

/* --- prediction, from any number of threads --- */

typedef struct {
  const char* device; /* "cpu:0"; NULL: that */
  int32_t calls;      /* that run at once; more wait. 0: one for each core */
  int32_t threads;    /* for each call; 0: the cores shared out */
} bindery_predictor_options;

/* Everything that has no value in the model is to be described as an input, but for labels. `options` may be NULL. */
bindery_status bindery_predictor_create(const bindery_model* model, const bindery_input* inputs, size_t num_inputs,
                                        const bindery_predictor_options* options, bindery_predictor** predictor);
/* As many tensors as the model has outputs, in their order, into `outputs`. */
bindery_status bindery_predictor_run(const bindery_predictor* predictor, const char* const* names,
                                     const bindery_tensor* const* inputs, size_t num_inputs, bindery_tensor** outputs,
                                     size_t num_outputs);
void bindery_predictor_free(bindery_predictor* predictor);

/* --- one network on one device --- */

typedef struct {
  const char* device; /* "cpu:0"; NULL: that. Arrays are reached on CPUs only */
  int32_t threads;    /* 0: all cores */
  int32_t training;   /* 0: forward only */
  uint64_t seed;      /* of random operators */
} bindery_executor_options;

/* With the model's values. `options` may be NULL. */
bindery_status bindery_executor_create(const bindery_model* model, const bindery_input* inputs, size_t num_inputs,
                                       const bindery_executor_options* options, bindery_executor** executor);
/* Its arrays, in place: arguments and their gradients, auxiliary states. What is written there counts from the next run
   on. An output is a copy. */
bindery_status bindery_executor_argument(const bindery_executor* executor, const char* name, bindery_tensor** tensor);
bindery_status bindery_executor_gradient(const bindery_executor* executor, const char* name, bindery_tensor** tensor);
bindery_status bindery_executor_auxiliary(const bindery_executor* executor, const char* name, bindery_tensor** tensor);
bindery_status bindery_executor_output(const bindery_executor* executor, size_t index, bindery_tensor** tensor);
/* Copies to an argument, and casts. */
bindery_status bindery_executor_set(const bindery_executor* executor, const char* name, const bindery_tensor* value);
/* In training mode if it was bound for it. These do not wait for the result: whoever reads it does. */
bindery_status bindery_executor_forward(bindery_executor* executor);
/* After a forward, once. Gradients of the outputs that are no losses, in order (NULL for losses); this waits until they
   were read, which is behind the forward. */
bindery_status bindery_executor_backward(bindery_executor* executor, const bindery_tensor* const* head_gradients,
                                         size_t count);
void bindery_executor_free(bindery_executor* executor);

#ifdef __cplusplus
}
#endif
