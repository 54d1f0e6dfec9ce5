// InputRanges: what numbers in inputs have to be, where operators are given these as they are or in another shape
// (AskedNumbers), and where a cast would change them. So a batch is refused before it is on its way, by one text on all
// kinds of devices and by whoever takes it: groups, executors, modules. What is computed on the way, and arrays that
// lie on devices already, the kernels look at.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "executor/batch.h"
#include "executor/plan/program.h"
#include "executor/plan/signature.h"
#include "symbol/graph.h"
#include "symbol/op_def.h"

namespace bindery {

class InputRanges {
 public:
  // `inputs` are arguments of the signature, which tells what is trained; `for_training`: gradients are computed.
  InputRanges(const Symbol& symbol, const Signature& signature, std::vector<DataDesc> inputs, bool for_training);

  struct Range : WholeNumbers {
    std::string asks = {};          // who: `SoftmaxOutput "softmax"`
    std::string Complaint() const;  // of a number that it does not have: "not in 0..9"
  };
  // By input; those that nobody asks for are not there. For inputs of these shapes, of so many samples, in this mode.
  using Ranges = std::multimap<size_t, Range>;
  const Ranges& Of(const std::vector<Shape>& shapes, std::optional<int64_t> samples, Mode mode);
  // Throws SampleError, or DataError where there is no batch axis, for a number that is none of input `i`. The last
  // `pad` samples may be anything; `index`: Batch::index.
  void Check(size_t i, const HostTensor& array, const Ranges& ranges, int64_t pad = 0,
             std::span<const int64_t> index = {}) const;
  // The same by name, of inputs in the shapes that are described; arguments that are none of them may be anything.
  void Check(const std::string& name, const HostTensor& array, std::optional<int64_t> samples, Mode mode);

 private:
  // An input of a node that is one of `inputs_`, or shows one.
  struct Use {
    size_t input = 0, node = 0, place = 0;  // the last among the node's inputs
    const AskedNumbers* asked = nullptr;
  };
  struct Known {
    std::vector<Shape> shapes;
    Mode mode;
    Ranges ranges;
  };
  std::optional<size_t> Find(const std::string& name) const;
  std::optional<size_t> InputOf(const Entry& entry) const;
  void CheckRange(const DataDesc& desc, const HostTensor& array, const Range& range, int64_t pad,
                  std::span<const int64_t> index) const;

  Graph graph_;
  const std::vector<DataDesc> inputs_;
  const bool for_training_;
  GivenTypes given_;
  std::vector<Use> uses_;
  std::vector<Known> known_;  // of shapes met before
};

}  // namespace bindery
