// What every function of the C API is made of: a body whose exceptions become a status and the thread's last error.
#pragma once

#include <exception>
#include <string>

#include "base/error.h"
#include "bindery/c_api.h"

namespace bindery::c_api {

// There will be threads of ours. So calls fail in a process that is forked from now on, which would wait for them for
// ever.
void ForbidForks();
bool IsForked();
void CheckNotForked();  // throws Error

// Of the exception being handled; keeps its message for bindery_last_error.
bindery_status Fail() noexcept;

template <class F>
bindery_status Try(F&& body) noexcept {
  try {
    CheckNotForked();
    body();
    return BINDERY_OK;
  } catch (...) {
    return Fail();
  }
}

// Throws Error for a null pointer, and names it.
template <class T>
T& Given(T* pointer, const char* what) {
  if (!pointer) Throw("{} is NULL", what);
  return *pointer;
}

// The same for a function that makes something: `*result` is what `body` returns.
template <class T, class F>
bindery_status Make(T* result, F&& body) noexcept {
  return Try([&] {
    Given(result, "where to put the result");
    *result = body();
  });
}

// What waits for threads has to be left as it is where there are none.
template <class T>
void Free(T* handle) noexcept {
  if (!IsForked()) delete handle;
}

}  // namespace bindery::c_api
