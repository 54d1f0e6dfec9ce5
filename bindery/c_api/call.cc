#include "bindery/c_api/call.h"

#include <pthread.h>

#include <atomic>
#include <new>

#include "bindery/version.h"

namespace bindery::c_api {
namespace {

std::atomic<bool> is_forked{false};

std::string& LastError() {
  static thread_local std::string message;
  return message;
}

bindery_status StatusOf(const std::exception& e) {
  if (dynamic_cast<const ShapeError*>(&e)) return BINDERY_SHAPE_ERROR;
  if (dynamic_cast<const ModelError*>(&e)) return BINDERY_MODEL_ERROR;
  if (dynamic_cast<const DataError*>(&e)) return BINDERY_DATA_ERROR;
  if (dynamic_cast<const CheckpointError*>(&e)) return BINDERY_CHECKPOINT_ERROR;
  if (dynamic_cast<const DeviceError*>(&e)) return BINDERY_DEVICE_ERROR;
  if (dynamic_cast<const NumericError*>(&e)) return BINDERY_NUMERIC_ERROR;
  if (dynamic_cast<const std::bad_alloc*>(&e)) return BINDERY_OUT_OF_MEMORY;
  return BINDERY_ERROR;
}

}  // namespace

void ForbidForks() {
  [[maybe_unused]] static const int once = pthread_atfork(nullptr, nullptr, [] { is_forked = true; });
}

bool IsForked() { return is_forked; }

void CheckNotForked() {
  if (!is_forked) return;
  Throw("this process was forked from one that had made a predictor or an executor: spawn it, or fork before");
}

bindery_status Fail() noexcept {
  try {
    try {
      throw;
    } catch (const std::exception& e) {
      const bindery_status status = StatusOf(e);
      LastError() = e.what();
      return status;
    } catch (...) {
      LastError() = "an exception of an unknown type";
      return BINDERY_ERROR;
    }
  } catch (...) {  // no memory for the message
    LastError().clear();
    return BINDERY_OUT_OF_MEMORY;
  }
}

}  // namespace bindery::c_api

const char* bindery_version(void) { return BINDERY_VERSION; }
const char* bindery_last_error(void) { return bindery::c_api::LastError().c_str(); }
