// Models behind handles, with the names that callers are shown.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "bindery/c_api.h"
#include "executor/batch.h"
#include "symbol/model.h"

struct bindery_model {
  // The names of one kind, and pointers to them.
  struct Names {
    std::vector<std::string> names;
    std::vector<const char*> pointers;
  };
  std::shared_ptr<const bindery::Model> model;
  std::array<Names, 4> names = {};  // by bindery_names
};

namespace bindery::c_api {

// What a call describes as inputs. Throws Error, ShapeError.
std::vector<DataDesc> Describe(const bindery_input* inputs, size_t count);
Device DeviceOf(const char* text);  // NULL: cpu:0; throws DeviceError

}  // namespace bindery::c_api
