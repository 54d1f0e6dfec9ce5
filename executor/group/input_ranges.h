// InputRanges: what operators ask of the numbers in inputs that they are given as these are: class labels, lengths of
// sequences, numbers of rows. So a batch is refused before it is on its way, by one text on all kinds of devices. What
// is computed on the way, and arrays that lie on devices already, the kernels look at.
//
// Thread safety: one thread at a time.
#pragma once

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "executor/group/options.h"
#include "symbol/graph.h"

namespace bindery {

class InputRanges {
 public:
  explicit InputRanges(const GroupSpec& spec);  // which stays the caller's

  struct Range {  // of whole numbers
    double low = 0, high = 0;
    std::optional<double> besides = {};
    std::string asks = {};  // who: `SoftmaxOutput "softmax"`
    bool Has(double value) const {
      return (value >= low && value <= high && value == std::floor(value)) || value == besides;
    }
    std::string Complaint() const;  // of a number that it does not have: "not in 0..9"
  };
  // By input; those that nobody asks for are not there. For a batch of these shapes that runs in this mode.
  const std::multimap<size_t, Range>& Of(const std::vector<Shape>& shapes, Mode mode);

 private:
  // An input of a node that is an input of the group, or the same numbers in another shape.
  struct Use {
    size_t input = 0, node = 0;
    int at = 0;  // among the node's inputs
  };
  struct Known {
    std::vector<Shape> shapes;
    Mode mode;
    std::multimap<size_t, Range> ranges;
  };
  std::optional<size_t> InputOf(const Entry& entry) const;

  const GroupSpec& spec_;
  Graph graph_;
  std::vector<Use> uses_;
  std::vector<Known> known_;  // of shapes met before
};

}  // namespace bindery
