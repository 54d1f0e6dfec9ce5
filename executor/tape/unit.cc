#include "executor/tape/unit.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <variant>

#include "base/error.h"
#include "symbol/gradient.h"
#include "symbol/graph.h"
#include "symbol/op_def.h"

namespace bindery::tape {
namespace {

// --- keys: text in which every part says how long it is, or cannot be mistaken for another ---

template <class T>
void AppendRaw(const T& value, std::string* key) {
  key->append(reinterpret_cast<const char*>(&value), sizeof value);
}
void AppendText(const std::string& text, std::string* key) {
  AppendRaw(text.size(), key);
  *key += text;
}
void AppendShape(DType dtype, const Shape& shape, std::string* key) {
  AppendRaw(dtype, key);
  AppendRaw(shape.rank(), key);
  for (const int64_t extent : shape) AppendRaw(extent, key);
}

struct AppendAttr {
  std::string* key;
  void operator()(const std::string& text) const { AppendText(text, key); }
  void operator()(const std::vector<std::string>& texts) const {
    AppendRaw(texts.size(), key);
    for (const std::string& text : texts) AppendText(text, key);
  }
  void operator()(const std::shared_ptr<const HostTensor>& tensor) const {
    AppendRaw(tensor != nullptr, key);
    if (!tensor) return;
    AppendShape(tensor->dtype(), tensor->shape(), key);
    key->append(static_cast<const char*>(tensor->raw()), static_cast<size_t>(tensor->bytes()));
  }
  template <class T>
  void operator()(const std::vector<T>& numbers) const {
    AppendRaw(numbers.size(), key);
    for (const T number : numbers) AppendRaw(number, key);
  }
  template <class T>
  void operator()(const T& number) const {
    AppendRaw(number, key);
  }
};

// --- values that gradients need ---

GivenTypes TypesOfArguments(const Unit& unit, const std::vector<ValueType>& inputs) {
  GivenTypes given;
  for (const int i : unit.arguments) {
    given.shapes[unit.inputs[i]] = inputs[i].shape;
    given.dtypes[unit.inputs[i]] = inputs[i].dtype;
    given.batch_axes[unit.inputs[i]] = -1;
  }
  return given;
}

// What the gradient of the symbol by these variables reads of its nodes, and all that is random, which must not be
// drawn again; without the outputs, which are there anyway.
std::vector<Entry> NeededValues(const Symbol& symbol, const std::vector<std::string>& wanted, const GivenTypes& given) {
  const std::vector<NodePtr> nodes = PostOrder(symbol.entries());
  std::set<std::pair<const Node*, int>> known;
  std::vector<Entry> needed;
  const auto need = [&](const Entry& entry) {
    if (!entry.node->is_variable() && known.emplace(entry.node.get(), entry.output).second) needed.push_back(entry);
  };
  for (const Entry& output : symbol.entries()) known.emplace(output.node.get(), output.output);
  for (const NodePtr& node : nodes) {
    if (node->is_variable() || !node->op().is_random) continue;
    for (const Entry& output : OutputsOf(node)) need(output);
  }
  GradientResult gradients;
  try {
    gradients = Gradient(symbol, wanted, given);
  } catch (const Error&) {  // Backward says so, if it gets there
    return needed;
  }
  std::vector<Entry> entries;
  for (const Symbol& gradient : gradients.gradients) {
    if (!gradient.empty()) entries.push_back(gradient.entry());
  }
  std::unordered_set<const Node*> own;
  for (const NodePtr& node : nodes) own.insert(node.get());
  const auto see = [&](const Entry& entry) {
    if (own.contains(entry.node.get())) need(entry);
  };
  for (const Entry& entry : entries) see(entry);
  for (const NodePtr& node : PostOrder(entries)) {
    if (own.contains(node.get())) continue;
    for (const Entry& input : node->inputs()) see(input);
  }
  return needed;
}

std::string NameOfEntry(const Entry& entry) { return entry.node->OutputName(entry.output); }

// A regular expression for exactly these values, whose names are of letters, digits and underscores.
std::string Pattern(const std::vector<Entry>& values) {
  std::string pattern;
  for (const Entry& value : values) pattern += (pattern.empty() ? "^(" : "|") + NameOfEntry(value);
  return pattern.empty() ? pattern : pattern + ")$";
}

uint64_t NextId() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

void CheckVariables(const Symbol& symbol, const std::vector<Symbol>& inputs) {
  for (const NodePtr& node : PostOrder(symbol.entries())) {
    if (node->is_variable()) continue;
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      const NodePtr& input = node->inputs()[i].node;
      if (!input->is_variable()) continue;
      if (std::ranges::any_of(inputs, [&](const Symbol& known) { return known.entry().node == input; })) continue;
      Throw("Apply: {} has no array for its input \"{}\"; {} given", node->op().name, InputNames(*node)[i],
            inputs.size() == 1 ? "1 is" : fmt::format("{} are", inputs.size()));
    }
  }
}

}  // namespace

Symbol Canonical(const Symbol& symbol, const std::vector<Symbol>& inputs, Mode mode) {
  if (symbol.empty()) throw Error("Apply: the function made a symbol without outputs");
  CheckVariables(symbol, inputs);
  int count = 0;
  return Rewrite(symbol, [&](const NodePtr& node, const std::vector<Entry>& of) {
    AnyAttrs attrs = node->attrs();
    if (node->op().adapt) {
      attrs = node->op().adapt(attrs, {.fixed = std::vector<bool>(of.size()), .training = mode == Mode::kTrain});
    }
    std::string name;
    for (const char c : node->op().name) {
      if (std::isalnum(static_cast<unsigned char>(c))) name += static_cast<char>(std::tolower(c));
    }
    return OutputsOf(
        std::make_shared<const Node>(&node->op(), std::move(attrs), name + std::to_string(count++), of, Annotations()));
  });
}

std::string NameOf(const Symbol& symbol) {
  const Node& last = *symbol.entries().back().node;
  return last.is_variable() ? "Identity" : last.op().name;
}

std::string KeyOf(const Symbol& symbol, const UnitOptions& options) {
  std::string key;
  key.reserve(256);
  AppendRaw(options.mode, &key);
  AppendRaw(options.device, &key);
  AppendRaw(options.threads, &key);
  for (size_t i = 0; i < options.inputs.size(); ++i) {
    AppendShape(options.inputs[i].dtype, options.inputs[i].shape, &key);
    key += options.wanted[i] ? 'w' : 'c';
  }
  std::unordered_map<const Node*, size_t> places;
  const auto append_entry = [&](const Entry& entry) {
    AppendRaw(places.at(entry.node.get()), &key);
    AppendRaw(entry.output, &key);
  };
  for (const NodePtr& node : PostOrder(symbol.entries())) {
    places.emplace(node.get(), places.size());
    if (node->is_variable()) {
      AppendText(node->name(), &key);
      continue;
    }
    const OpDef* const op = &node->op();
    AppendRaw(op, &key);
    const AttrMap attrs = node->attrs().ToMap();
    AppendRaw(attrs.size(), &key);
    for (const auto& [name, value] : attrs) {
      AppendText(name, &key);
      AppendRaw(value.index(), &key);
      std::visit(AppendAttr{&key}, value);
    }
    AppendRaw(node->inputs().size(), &key);
    for (const Entry& input : node->inputs()) append_entry(input);
  }
  for (const Entry& output : symbol.entries()) append_entry(output);
  return key;
}

PlacedProgram CompilePlaced(const Symbol& symbol, const GivenTypes& types, Mode mode, DeviceKind device, int threads,
                            const std::string& observe) {
  CompileOptions options{.signature = Signature::Of(symbol), .mode = mode, .device = device, .threads = threads};
  options.switches.derive = false;
  options.observe = observe;
  for (Argument& argument : options.signature.arguments) {
    argument.shape = types.shapes.at(argument.name);
    argument.dtype = types.dtypes.at(argument.name);
    argument.batch_axis = -1;
    argument.format = Format::Plain();
  }
  return PlaceResults(Compile(symbol, options));
}

std::shared_ptr<const Unit> MakeUnit(const Symbol& symbol, const std::vector<Symbol>& inputs,
                                     const UnitOptions& options) {
  auto unit = std::make_shared<Unit>();
  unit->id = NextId();
  unit->name = NameOf(symbol);
  unit->symbol = symbol;
  unit->mode = options.mode;
  const std::vector<std::string> arguments = symbol.ListArguments(), states = symbol.ListAuxiliaryStates();
  std::vector<std::string> wanted;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string& name = unit->inputs.emplace_back(inputs[i].name());
    unit->is_auxiliary.push_back(std::ranges::find(states, name) != states.end());
    const bool is_argument = std::ranges::find(arguments, name) != arguments.end();
    if (options.wanted[i] && is_argument && IsFloat(options.inputs[i].dtype)) wanted.push_back(name);
  }
  const auto place_of = [&](const std::string& name) {
    return static_cast<int>(std::ranges::find(unit->inputs, name) - unit->inputs.begin());
  };
  for (const std::string& name : arguments) unit->arguments.push_back(place_of(name));
  for (const std::string& name : states) unit->auxiliary.push_back(place_of(name));
  for (const NodePtr& node : PostOrder(symbol.entries())) {
    unit->is_random |= !node->is_variable() && node->op().is_random;
  }

  const GivenTypes types = TypesOfArguments(*unit, options.inputs);
  std::vector<Entry> saved;
  if (!wanted.empty()) saved = NeededValues(symbol, wanted, types);
  const auto compile = [&] {
    return CompilePlaced(symbol, types, options.mode, options.device, options.threads, Pattern(saved));
  };
  unit->program = compile();
  if (unit->program.plan().observed.size() < saved.size()) {
    // Some have a form that only kernels understand: these are computed again, by the gradient's program.
    std::erase_if(saved, [&](const Entry& value) {
      const std::vector<PlanOutput>& observed = unit->program.plan().observed;
      return std::ranges::find(observed, NameOfEntry(value), &PlanOutput::name) == observed.end();
    });
    unit->program = compile();
  }
  const Plan& plan = unit->program.plan();
  for (size_t i = 0; i < states.size(); ++i) {
    const ValueType &type = plan.auxiliary[i].type, &given = options.inputs[unit->auxiliary[i]];
    if (type.dtype == given.dtype && type.shape == given.shape) continue;
    Throw<ShapeError>("{}, state {}: expected {} {}, got {} {}", unit->name, i, type.dtype, type.shape, given.dtype,
                      given.shape);
  }
  for (const Entry& output : symbol.entries()) unit->results.emplace_back(output.node->name(), output.output);
  unit->num_outputs = symbol.size();
  std::map<std::string, Unit::Value> by_name;
  for (const Entry& value : saved) by_name[NameOfEntry(value)] = {value.node->name(), value.output};
  for (const PlanOutput& observed : plan.observed) unit->results.push_back(by_name.at(observed.name));
  return unit;
}

}  // namespace bindery::tape
