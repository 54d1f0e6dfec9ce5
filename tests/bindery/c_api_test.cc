// The C API, as a C program meets it: values, statuses and messages, and who owns which memory when.
#include "bindery/c_api.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "symbol/model.h"
#include "symbol/ops.h"

namespace bindery {
namespace {

using testing::TempDir;

constexpr DLDataType kFloat = {kDLFloat, 32, 1};

// Ends what a handle stands for.
struct Free {
  void operator()(bindery_tensor* t) const { bindery_tensor_free(t); }
  void operator()(bindery_model* m) const { bindery_model_free(m); }
  void operator()(bindery_predictor* p) const { bindery_predictor_free(p); }
  void operator()(bindery_executor* e) const { bindery_executor_free(e); }
};
template <class T>
using Handle = std::unique_ptr<T, Free>;

// Of a call that makes a handle.
template <class T, class F>
Handle<T> Made(F&& call) {
  T* handle = nullptr;
  const bindery_status status = call(&handle);
  EXPECT_EQ(status, BINDERY_OK) << bindery_last_error();
  return Handle<T>(handle);
}

// softmax(x W^T + b): W = [[1, 0], [0, 1], [1, 1]], b = [0, 0, -1]
Handle<bindery_model> SmallModel() {
  const Symbol net = SoftmaxOutput(FullyConnected(Variable("data"), {.num_hidden = 3}, "fc"), {}, "softmax");
  const Model model{.symbol = net,
                    .params = {{"fc_weight", HostTensor::From({3, 2}, {1, 0, 0, 1, 1, 1})},
                               {"fc_bias", HostTensor::From({3}, {0, 0, -1})}}};
  const std::string bytes = SerializeModel(model);
  return Made<bindery_model>([&](auto** m) { return bindery_model_parse(bytes.data(), bytes.size(), 0, m); });
}

std::vector<float> Expected(float a, float b) {
  std::vector<float> scores = {a, b, a + b - 1};
  float sum = 0;
  for (float& score : scores) sum += score = std::exp(score);
  for (float& score : scores) score /= sum;
  return scores;
}

DLTensor MemoryOf(std::vector<float>* values, std::vector<int64_t>* shape) {
  return {.data = values->data(),
          .device = {kDLCPU, 0},
          .ndim = static_cast<int32_t>(shape->size()),
          .dtype = kFloat,
          .shape = shape->data(),
          .strides = nullptr,
          .byte_offset = 0};
}

Handle<bindery_predictor> MakePredictor(const bindery_model* model, int64_t samples) {
  const int64_t shape[] = {samples, 2};
  const bindery_input input = {.name = "data", .rank = 2, .shape = shape, .dtype = {}};
  return Made<bindery_predictor>([&](auto** p) { return bindery_predictor_create(model, &input, 1, nullptr, p); });
}

Handle<bindery_executor> MakeExecutor(const bindery_model* model, const std::vector<int64_t>& shape) {
  const bindery_input input = {.name = "data", .rank = 2, .shape = shape.data(), .dtype = {}};
  const bindery_executor_options options = {.device = "cpu:0", .threads = 1, .training = 1, .seed = 0};
  return Made<bindery_executor>([&](auto** e) { return bindery_executor_create(model, &input, 1, &options, e); });
}

float At(const bindery_tensor* tensor, int64_t i) {
  DLTensor view = {};
  EXPECT_EQ(bindery_tensor_view(tensor, &view), BINDERY_OK) << bindery_last_error();
  return static_cast<float*>(view.data)[i];
}

TEST(CApi, PredictsFromManyThreads) {
  const Handle<bindery_model> model = SmallModel();
  const Handle<bindery_predictor> predictor = MakePredictor(model.get(), 4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int run = 0; run < 20; ++run) {
        // A part of a larger array, which no alignment helps.
        std::vector<float> values = {0, static_cast<float>(t), static_cast<float>(run), 1, 2};
        std::vector<int64_t> shape = {2, 2};
        DLTensor memory = MemoryOf(&values, &shape);
        memory.byte_offset = sizeof(float);
        const auto input = Made<bindery_tensor>([&](auto** i) { return bindery_tensor_borrow(&memory, i); });
        const char* const name = "data";
        const bindery_tensor* const inputs[] = {input.get()};
        bindery_tensor* output = nullptr;
        ASSERT_EQ(bindery_predictor_run(predictor.get(), &name, inputs, 1, &output, 1), BINDERY_OK)
            << bindery_last_error();
        const Handle<bindery_tensor> owned(output);
        const std::vector<float> first = Expected(values[1], values[2]), second = Expected(1, 2);
        for (int i = 0; i < 3; ++i) {
          EXPECT_NEAR(At(output, i), first[i], 1e-6);
          EXPECT_NEAR(At(output, 3 + i), second[i], 1e-6);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A network that was bound by this API is trained by nothing but its arrays.
TEST(CApi, ArraysOfAnExecutorAreSeenInPlace) {
  const Handle<bindery_model> model = SmallModel();
  const Handle<bindery_executor> net = MakeExecutor(model.get(), {1, 2});
  const auto array = [&](const char* name) {
    return Made<bindery_tensor>([&](auto** t) { return bindery_executor_argument(net.get(), name, t); });
  };
  const auto memory = [](const Handle<bindery_tensor>& tensor) {
    DLTensor view = {};
    EXPECT_EQ(bindery_tensor_view(tensor.get(), &view), BINDERY_OK) << bindery_last_error();
    return static_cast<float*>(view.data);
  };
  const auto data = array("data"), weight = array("fc_weight"), label = array("softmax_label");
  memory(data)[0] = 1;
  memory(data)[1] = -1;
  memory(label)[0] = 2;
  float last = 0;
  for (int step = 0; step < 20; ++step) {
    ASSERT_EQ(bindery_executor_forward(net.get()), BINDERY_OK) << bindery_last_error();
    const auto output = Made<bindery_tensor>([&](auto** t) { return bindery_executor_output(net.get(), 0, t); });
    const float score = At(output.get(), 2);
    if (step == 0) {
      EXPECT_NEAR(score, Expected(1, -1)[2], 1e-6);
    }
    EXPECT_GT(score, last);  // of the label
    last = score;
    ASSERT_EQ(bindery_executor_backward(net.get(), nullptr, 0), BINDERY_OK) << bindery_last_error();
    const auto gradient =
        Made<bindery_tensor>([&](auto** t) { return bindery_executor_gradient(net.get(), "fc_weight", t); });
    // (p - one hot) x^T
    EXPECT_NEAR(memory(gradient)[4], (score - 1) * 1, 1e-6);
    EXPECT_NEAR(memory(gradient)[5], (score - 1) * -1, 1e-6);
    for (int i = 0; i < 6; ++i) memory(weight)[i] -= 0.5f * memory(gradient)[i];
  }
  EXPECT_GT(last, 0.8f);
  // The model has its own values still.
  const auto value = Made<bindery_tensor>([&](auto** t) { return bindery_model_value(model.get(), "fc_weight", t); });
  EXPECT_EQ(At(value.get(), 5), 1);
  // They are not to be written, whoever gets them.
  DLManagedTensor* unflagged = nullptr;
  EXPECT_EQ(bindery_tensor_to_dlpack(value.get(), &unflagged), BINDERY_ERROR);
  EXPECT_EQ(unflagged, nullptr);
  DLManagedTensorVersioned* flagged = nullptr;
  ASSERT_EQ(bindery_tensor_to_dlpack_versioned(value.get(), &flagged), BINDERY_OK);
  EXPECT_EQ(flagged->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
  const auto taken = Made<bindery_tensor>([&](auto** t) { return bindery_tensor_from_dlpack_versioned(flagged, t); });
  EXPECT_EQ(bindery_tensor_to_dlpack(taken.get(), &unflagged), BINDERY_ERROR);
}

// The gradient of an output from memory that is used anew as soon as the call is back, which is long before a step that
// nobody waited for would have read it.
TEST(CApi, MemoryOfHeadGradientsIsTheCallersAfterTheCall) {
  const int64_t samples = 512, width = 1024;
  Model network{.symbol = Variable("data")};
  for (const std::string name : {"a", "b", "c"}) {  // which give what they get, where that is the same throughout
    network.symbol = FullyConnected(network.symbol, {.num_hidden = width, .no_bias = true}, name);
    network.params.emplace(name + "_weight",
                           HostTensor::Full(DType::kFloat32, {width, width}, 1.0 / static_cast<double>(width)));
  }
  network.symbol = FullyConnected(network.symbol, {.num_hidden = 4, .no_bias = true}, "last");
  network.params.emplace("last_weight", HostTensor(DType::kFloat32, {4, width}));
  const std::string bytes = SerializeModel(network);
  const auto model =
      Made<bindery_model>([&](auto** m) { return bindery_model_parse(bytes.data(), bytes.size(), 0, m); });
  std::vector<int64_t> shape = {samples, width}, head_shape = {samples, 4};
  const Handle<bindery_executor> net = MakeExecutor(model.get(), shape);
  std::vector<float> ones(static_cast<size_t>(samples * width), 1), heads(static_cast<size_t>(samples) * 4, 3);
  const DLTensor memory = MemoryOf(&ones, &shape), head_memory = MemoryOf(&heads, &head_shape);
  auto data = Made<bindery_tensor>([&](auto** t) { return bindery_tensor_borrow(&memory, t); });
  ASSERT_EQ(bindery_executor_set(net.get(), "data", data.get()), BINDERY_OK) << bindery_last_error();
  std::ranges::fill(ones, 7.0f);
  ASSERT_EQ(bindery_executor_forward(net.get()), BINDERY_OK) << bindery_last_error();

  const bindery_tensor* gradients[] = {data.get()};
  EXPECT_EQ(bindery_executor_backward(net.get(), gradients, 1), BINDERY_SHAPE_ERROR);
  gradients[0] = nullptr;
  EXPECT_EQ(bindery_executor_backward(net.get(), gradients, 1), BINDERY_ERROR);
  EXPECT_NE(std::string(bindery_last_error()).find("its gradient must be given"), std::string::npos);

  auto head = Made<bindery_tensor>([&](auto** t) { return bindery_tensor_borrow(&head_memory, t); });
  gradients[0] = head.get();
  ASSERT_EQ(bindery_executor_backward(net.get(), gradients, 1), BINDERY_OK) << bindery_last_error();
  head.reset();
  std::ranges::fill(heads, 7.0f);
  const auto gradient =
      Made<bindery_tensor>([&](auto** t) { return bindery_executor_gradient(net.get(), "last_weight", t); });
  EXPECT_NEAR(At(gradient.get(), 0), samples * 3, 0.1);
}

int g_deleted = 0;
DLManagedTensor Managed(std::vector<float>* values, std::vector<int64_t>* shape) {
  return {
      .dl_tensor = MemoryOf(values, shape), .manager_ctx = nullptr, .deleter = [](DLManagedTensor*) { ++g_deleted; }};
}

TEST(CApi, DLPackSharesMemoryAndGivesItBackOnce) {
  std::vector<float> values = {1, 2, 3, 4, 5, 6};
  std::vector<int64_t> shape = {3, 2};
  DLManagedTensor in = Managed(&values, &shape);
  g_deleted = 0;
  auto tensor = Made<bindery_tensor>([&](auto** t) { return bindery_tensor_from_dlpack(&in, t); });
  DLManagedTensor* out = nullptr;
  ASSERT_EQ(bindery_tensor_to_dlpack(tensor.get(), &out), BINDERY_OK);
  DLManagedTensorVersioned* versioned = nullptr;
  ASSERT_EQ(bindery_tensor_to_dlpack_versioned(tensor.get(), &versioned), BINDERY_OK);
  EXPECT_EQ(out->dl_tensor.data, values.data());
  EXPECT_EQ(out->dl_tensor.ndim, 2);
  EXPECT_EQ(out->dl_tensor.shape[0], 3);
  EXPECT_EQ(out->dl_tensor.strides[0], 2);
  EXPECT_EQ(out->dl_tensor.dtype.code, kDLFloat);
  EXPECT_EQ(versioned->version.major, 1u);
  EXPECT_EQ(versioned->dl_tensor.data, values.data());
  tensor.reset();
  EXPECT_EQ(g_deleted, 0);
  // Ours comes in again, by way of the other form.
  auto again = Made<bindery_tensor>([&](auto** t) { return bindery_tensor_from_dlpack_versioned(versioned, t); });
  out->deleter(out);
  EXPECT_EQ(g_deleted, 0);
  EXPECT_EQ(At(again.get(), 5), 6);
  again.reset();
  EXPECT_EQ(g_deleted, 1);
}

// What a refused call was given is its caller's still.
TEST(CApi, RefusesArraysThatItCannotShow) {
  std::vector<float> values(6);
  std::vector<int64_t> shape = {3, 2}, strides = {1, 3};
  g_deleted = 0;
  const auto refused = [&](auto change, bindery_status status, const std::string& message) {
    DLManagedTensor in = Managed(&values, &shape);
    change(&in.dl_tensor);
    bindery_tensor* tensor = nullptr;
    EXPECT_EQ(bindery_tensor_from_dlpack(&in, &tensor), status);
    EXPECT_NE(std::string(bindery_last_error()).find(message), std::string::npos) << bindery_last_error();
    EXPECT_EQ(tensor, nullptr);
    EXPECT_EQ(g_deleted, 0);
  };
  refused([&](DLTensor* t) { t->strides = strides.data(); }, BINDERY_SHAPE_ERROR, "has the stride 1 along axis 0");
  refused([&](DLTensor* t) { t->device.device_type = kDLROCM; }, BINDERY_DEVICE_ERROR, "expected host memory");
  refused([&](DLTensor* t) { t->dtype = {kDLComplex, 64, 1}; }, BINDERY_ERROR, "code 5, 64 bits and 1 lanes");
  refused([&](DLTensor* t) { t->dtype.lanes = 4; }, BINDERY_ERROR, "4 lanes");
  refused([&](DLTensor* t) { t->ndim = 9; }, BINDERY_SHAPE_ERROR, "");
  refused([&](DLTensor* t) { t->ndim = -1; }, BINDERY_SHAPE_ERROR, "rank -1");
  refused([&](DLTensor* t) { t->data = nullptr; }, BINDERY_ERROR, "its data is NULL");
  refused([&](DLTensor* t) { t->shape = nullptr; }, BINDERY_ERROR, "is NULL");
  refused([&](DLTensor* t) { t->byte_offset = 2; }, BINDERY_ERROR, "begins between elements");
  std::vector<int64_t> negative = {3, -1}, huge = {int64_t{1} << 40, int64_t{1} << 40};
  refused([&](DLTensor* t) { t->shape = negative.data(); }, BINDERY_SHAPE_ERROR, "extents of 0 or more");
  refused([&](DLTensor* t) { t->shape = huge.data(); }, BINDERY_SHAPE_ERROR, "");
}

TEST(CApi, EveryTypeGoesThereAndBack) {
  const DLDataType types[] = {{kDLFloat, 32, 1}, {kDLFloat, 64, 1}, {kDLBfloat, 16, 1}, {kDLFloat, 16, 1},
                              {kDLInt, 8, 1},    {kDLInt, 16, 1},   {kDLInt, 32, 1},    {kDLInt, 64, 1},
                              {kDLUInt, 8, 1},   {kDLUInt, 16, 1},  {kDLUInt, 32, 1},   {kDLUInt, 64, 1},
                              {kDLBool, 8, 1}};
  const int64_t shape[] = {2, 3};
  for (const DLDataType& type : types) {
    const auto tensor = Made<bindery_tensor>([&](auto** t) { return bindery_tensor_create(type, 2, shape, t); });
    DLTensor view = {};
    ASSERT_EQ(bindery_tensor_view(tensor.get(), &view), BINDERY_OK);
    EXPECT_EQ(view.dtype.code, type.code);
    EXPECT_EQ(view.dtype.bits, type.bits);
    EXPECT_EQ(view.dtype.lanes, 1);
  }
}

// Which would wait for the threads of its parent.
TEST(CApi, AForkedProcessIsRefused) {
  const Handle<bindery_model> model = SmallModel();
  Handle<bindery_predictor> predictor = MakePredictor(model.get(), 4);
  Handle<bindery_executor> net = MakeExecutor(model.get(), {1, 2});
  EXPECT_EQ(bindery_executor_forward(net.get()), BINDERY_OK) << bindery_last_error();
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    bindery_tensor* output = nullptr;
    const bool refused = bindery_predictor_run(predictor.get(), nullptr, nullptr, 0, &output, 1) == BINDERY_ERROR &&
                         std::string(bindery_last_error()).find("was forked") != std::string::npos;
    predictor.reset();
    net.reset();
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(bindery_executor_forward(net.get()), BINDERY_OK) << bindery_last_error();  // here it goes on
}

TEST(CApi, SaysWhatIsKeptWithAModel) {
  const Model scaled{.symbol = Relu(Variable("data")),
                     .metadata = {{"bindery.preprocessing", "mean=1,2&scale=standard&std=3,4"}, {"empty", ""}}};
  const std::string bytes = SerializeModel(scaled);
  const auto model =
      Made<bindery_model>([&](auto** m) { return bindery_model_parse(bytes.data(), bytes.size(), 0, m); });
  const char* value = nullptr;
  ASSERT_EQ(bindery_model_metadata(model.get(), "bindery.preprocessing", &value), BINDERY_OK) << bindery_last_error();
  EXPECT_STREQ(value, "mean=1,2&scale=standard&std=3,4");
  ASSERT_EQ(bindery_model_metadata(model.get(), "empty", &value), BINDERY_OK);
  EXPECT_STREQ(value, "");
  ASSERT_EQ(bindery_model_metadata(model.get(), "classes", &value), BINDERY_OK);
  EXPECT_EQ(value, nullptr);
  EXPECT_EQ(bindery_model_metadata(model.get(), nullptr, &value), BINDERY_ERROR);
  EXPECT_STREQ(bindery_last_error(), "Error: name is NULL");
  EXPECT_EQ(bindery_model_metadata(nullptr, "classes", &value), BINDERY_ERROR);
  EXPECT_EQ(bindery_model_metadata(model.get(), "classes", nullptr), BINDERY_ERROR);
}

TEST(CApi, ListsNamesAndKeepsFiles) {
  const Handle<bindery_model> model = SmallModel();
  const auto names = [&](const bindery_model* of, int32_t which) {
    const char* const* list = nullptr;
    size_t count = 0;
    EXPECT_EQ(bindery_model_list(of, which, &list, &count), BINDERY_OK) << bindery_last_error();
    return std::vector<std::string>(list, list + count);
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(model.get(), BINDERY_ARGUMENTS), (Names{"data", "fc_weight", "fc_bias", "softmax_label"}));
  EXPECT_EQ(names(model.get(), BINDERY_PARAMETERS), (Names{"fc_bias", "fc_weight"}));
  EXPECT_EQ(names(model.get(), BINDERY_AUXILIARY_STATES), Names());
  EXPECT_EQ(names(model.get(), BINDERY_OUTPUTS), (Names{"softmax_output"}));
  const std::string path = TempDir() + "/small.pb";
  ASSERT_EQ(bindery_model_save(model.get(), path.c_str()), BINDERY_OK) << bindery_last_error();
  const auto loaded = Made<bindery_model>([&](auto** m) { return bindery_model_load(path.c_str(), m); });
  EXPECT_EQ(names(loaded.get(), BINDERY_PARAMETERS), (Names{"fc_bias", "fc_weight"}));
}

TEST(CApi, ErrorsHaveAStatusAndAMessageOfTheThread) {
  const auto expect = [](bindery_status got, bindery_status wanted, const std::string& message) {
    EXPECT_EQ(got, wanted);
    EXPECT_NE(std::string(bindery_last_error()).find(message), std::string::npos) << bindery_last_error();
  };
  bindery_model* none = nullptr;
  expect(bindery_model_load("no-such-file.pb", &none), BINDERY_DATA_ERROR, "no-such-file.pb");
  expect(bindery_model_parse("}", 1, 1, &none), BINDERY_MODEL_ERROR, "ModelError");
  expect(bindery_model_load(nullptr, &none), BINDERY_ERROR, "path is NULL");
  expect(bindery_model_load("x.pb", nullptr), BINDERY_ERROR, "where to put the result is NULL");
  EXPECT_EQ(none, nullptr);

  const Handle<bindery_model> model = SmallModel();
  bindery_tensor* no_tensor = nullptr;
  expect(bindery_model_value(model.get(), "fc_wieght", &no_tensor), BINDERY_ERROR, "did you mean \"fc_weight\"?");
  const char* const* list = nullptr;
  size_t count = 0;
  expect(bindery_model_list(model.get(), 7, &list, &count), BINDERY_ERROR, "no list 7");
  expect(bindery_model_list(model.get(), -1, &list, &count), BINDERY_ERROR, "no list -1");

  bindery_predictor* no_predictor = nullptr;
  expect(bindery_predictor_create(model.get(), nullptr, 0, nullptr, &no_predictor), BINDERY_ERROR, "\"data\"");
  expect(bindery_predictor_create(nullptr, nullptr, 0, nullptr, &no_predictor), BINDERY_ERROR, "model is NULL");
  const int64_t shape[] = {1, 2};
  const bindery_input input = {.name = "data", .rank = 2, .shape = shape, .dtype = {}};
  const bindery_predictor_options elsewhere = {.device = "tpu:0", .calls = 0, .threads = 0};
  expect(bindery_predictor_create(model.get(), &input, 1, &elsewhere, &no_predictor), BINDERY_DEVICE_ERROR, "tpu");

  const Handle<bindery_predictor> predictor = MakePredictor(model.get(), 1);
  bindery_tensor* output = nullptr;
  expect(bindery_predictor_run(predictor.get(), nullptr, nullptr, 0, &output, 1), BINDERY_DATA_ERROR, "is missing");
  expect(bindery_predictor_run(predictor.get(), nullptr, nullptr, 0, &output, 2), BINDERY_ERROR, "asked for 2");
  const int64_t large[] = {2, 2};
  const auto two = Made<bindery_tensor>([&](auto** t) { return bindery_tensor_create(kFloat, 2, large, t); });
  const char* const names[] = {"data", "data"};
  const bindery_tensor* const inputs[] = {two.get(), two.get()};
  expect(bindery_tensor_create({}, 2, large, &no_tensor), BINDERY_ERROR, "code 0, 0 bits and 0 lanes");
  expect(bindery_predictor_run(predictor.get(), names, inputs, 1, &output, 1), BINDERY_DATA_ERROR, "at most (1, 2)");
  expect(bindery_predictor_run(predictor.get(), names, inputs, 2, &output, 1), BINDERY_ERROR, "comes twice");
  EXPECT_EQ(output, nullptr);

  const std::string before = bindery_last_error();
  std::thread([] { EXPECT_STREQ(bindery_last_error(), ""); }).join();
  EXPECT_EQ(bindery_last_error(), before);
  bindery_tensor_free(nullptr);
  bindery_model_free(nullptr);
  bindery_predictor_free(nullptr);
  bindery_executor_free(nullptr);
}

}  // namespace
}  // namespace bindery
