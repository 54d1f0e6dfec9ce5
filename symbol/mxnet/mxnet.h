// Models of Apache MXNet (docs/mxnet.md): a graph, `prefix-symbol.json`, and its values, `prefix-0012.params`. An
// imported model is a Model like any other: LoadModel comes here for names that end in .json and .params. As with our
// own files, ones from an untrusted source give a model or an error that names file and node.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/host_tensor.h"
#include "symbol/model.h"

namespace bindery {

// The values of a .params file by name, as far as their names say what they are: "arg:NAME", "aux:NAME", or NAME.
struct MxnetParams {
  HostTensorMap args = {}, aux = {}, others = {};
};
// An NDArray list with names, of any version. Throws ModelError: damaged, sparse arrays, element types that we have
// none for, arrays without names.
MxnetParams ParseMxnetParams(std::string_view bytes, const std::string& source_name = "<memory>",
                             const ModelLimits& limits = {});

// A graph as Symbol.save of MXNet 0.x to 1.x writes it, with the values (none: the architecture alone). Whether a value
// is a parameter or an auxiliary state is what the graph says. Throws ModelError, which lists all operators that are
// not known at once.
Model ParseMxnet(std::string_view json, MxnetParams params = {}, const std::string& source_name = "<memory>",
                 const ModelLimits& limits = {});

// LoadModel of these two kinds of files. A graph's values are those of the latest epoch beside it: of
// `prefix-symbol.json` the `prefix-NNNN.params` with the greatest number, of another `name.json` `name.params`; none is
// an architecture alone. A .params file is a model without a graph.
bool IsMxnetName(const std::string& path);
Model LoadMxnet(const std::string& path, const ModelLimits& limits);

// MXNet's operators that can be imported, sorted.
std::vector<std::string> MxnetImports();

}  // namespace bindery
