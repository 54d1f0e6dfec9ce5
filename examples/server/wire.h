// What predictions look like on the wire: JSON, and raw octets.
//
// JSON in:  {"inputs": {"data": [[...], ...], ...}}, or {"data": ...} for a model with one input, whatever its name.
//           Axis 0 counts samples; one sample may come without that axis, and any without leading extents of 1: a
//           row as it is in its file, (4), of a model that takes (1, 1, 4).
//           A feature that was trained as categories is a word; one that is unknown is none of them. In octets it is
//           the number that GET / lists it by, from 0; -1: none of them.
//           null, in octets NaN, is a value that is missing, of models that were trained with missing=NUMBER.
// JSON out: {"outputs": {"softmax_output": [[...], ...]}}. A number that is not finite is null.
// Octets in and out: float32, little endian, C order, whole samples one after the other; in only for models with one
//           input, out the outputs one after the other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "examples/server/served_model.h"

namespace bindery::server {

// Inputs of the dtypes that ServedModel::Asked says, finite or missing, of 1 to `max_batch` samples, the same number of
// each. Throw DataError, which says what was expected and what came.
HostTensorMap InputsOfJson(const ServedModel& model, std::string_view body, int64_t max_batch);
HostTensorMap InputsOfOctets(const ServedModel& model, std::string_view body, int64_t max_batch);

// `outputs` in the order of model.outputs.
std::string JsonOf(const ServedModel& model, const std::vector<HostTensor>& outputs);
std::string OctetsOf(const std::vector<HostTensor>& outputs);
std::string JsonOfModel(const ServedModel& model, int64_t max_batch);  // its inputs and outputs
std::string JsonOfError(const std::string& message);                   // {"error": "..."}

// Bytes that a request of `max_batch` samples has at most: 32 for a number in JSON, and some for the rest.
size_t LargestBody(const ServedModel& model, int64_t max_batch);

}  // namespace bindery::server
