#include "symbol/attrs.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/names.h"

namespace bindery {
namespace {

using TensorPtr = std::shared_ptr<const HostTensor>;

constexpr size_t kMaxPrinted = 16;  // elements of a list and characters of a text in messages

template <class T>
const T& At(const Field& field, const void* attrs) {
  return *static_cast<const T*>(field.In(attrs));
}

std::string EnumNameOf(const Field& field, int value) {
  for (const EnumName& known : field.enum_names()) {
    if (known.value == value) return known.name;
  }
  Throw<ModelError>("attribute \"{}\": {} is not a value of its enum", field.name(), value);
}

std::vector<std::string> EnumChoices(const Field& field) {
  std::vector<std::string> names;
  for (const EnumName& known : field.enum_names()) names.emplace_back(known.name);
  return names;
}

AttrValue Load(const Field& field, const void* attrs) {
  switch (field.kind()) {
    case Field::Kind::kBool: return At<bool>(field, attrs);
    case Field::Kind::kInt: return At<int64_t>(field, attrs);
    case Field::Kind::kDouble: return At<double>(field, attrs);
    case Field::Kind::kString: return At<std::string>(field, attrs);
    case Field::Kind::kInts: return At<std::vector<int64_t>>(field, attrs);
    case Field::Kind::kDoubles: return At<std::vector<double>>(field, attrs);
    case Field::Kind::kStrings: return At<std::vector<std::string>>(field, attrs);
    case Field::Kind::kDType: return std::string(ToString(At<DType>(field, attrs)));
    case Field::Kind::kTensor: return At<TensorPtr>(field, attrs);
    case Field::Kind::kEnum: break;
  }
  return EnumNameOf(field, field.EnumIn(attrs));
}

const char* Expectation(Field::Kind kind) {
  switch (kind) {
    case Field::Kind::kBool: return "true or false";
    case Field::Kind::kInt: return "an integer";
    case Field::Kind::kDouble: return "a number";
    case Field::Kind::kString: return "a string";
    case Field::Kind::kInts: return "a list of integers";
    case Field::Kind::kDoubles: return "a list of numbers";
    case Field::Kind::kStrings: return "a list of strings";
    case Field::Kind::kDType: return "the name of an element type";
    case Field::Kind::kTensor: return "a tensor";
    case Field::Kind::kEnum: break;
  }
  return "a name";
}

// The value with its type, short enough for a message.
std::string Describe(const AttrValue& value) {
  std::string text = ToString(value);
  if (text.size() > 4 * kMaxPrinted && !std::holds_alternative<std::vector<int64_t>>(value)) {
    text = text.substr(0, 4 * kMaxPrinted) + "...";
  }
  if (std::holds_alternative<std::string>(value)) return fmt::format("the string \"{}\"", text);
  static constexpr const char* kinds[] = {"",          "the integer ", "the number ", "",
                                          "the list ", "the list ",    "the list ",   "the tensor "};
  return kinds[value.index()] + text;
}

[[noreturn]] void ThrowWrongType(const Field& field, const AttrValue& value) {
  std::string expected = Expectation(field.kind());
  if (field.kind() == Field::Kind::kEnum) expected = fmt::format("one of {}", fmt::join(EnumChoices(field), ", "));
  Throw<ModelError>("attribute \"{}\": expected {}, got {}", field.name(), expected, Describe(value));
}

// The alternative of `value` that the field takes. An integer is a number too if it is one exactly; a file does not
// say what an empty list is a list of.
template <class T>
T Take(const Field& field, const AttrValue& value) {
  if (const T* exact = std::get_if<T>(&value)) return *exact;
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    if constexpr (std::is_same_v<T, double>) {
      constexpr int64_t kExact = int64_t{1} << 53;
      if (-kExact <= *integer && *integer <= kExact) return static_cast<double>(*integer);
      Throw<ModelError>("attribute \"{}\": {} is too large to be an exact number", field.name(), *integer);
    }
    if constexpr (std::is_same_v<T, bool>) {
      if (*integer == 0 || *integer == 1) return *integer == 1;
    }
  }
  if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) {
    if constexpr (std::is_same_v<T, std::vector<double>>) {
      std::vector<double> numbers;
      for (const int64_t integer : *integers) numbers.push_back(Take<double>(field, integer));
      return numbers;
    }
    if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      if (integers->empty()) return {};
    }
  }
  ThrowWrongType(field, value);
}

void StoreEnum(const Field& field, void* attrs, const AttrValue& value) {
  const auto& name = Take<std::string>(field, value);
  for (const EnumName& known : field.enum_names()) {
    if (name == known.name) return field.SetEnumIn(attrs, known.value);
  }
  ThrowWrongType(field, value);
}

void StoreDType(const Field& field, DType& dtype, const AttrValue& value) {
  try {
    dtype = ParseDType(Take<std::string>(field, value));
  } catch (const ModelError&) {
    throw;
  } catch (const Error& error) {
    Throw<ModelError>("attribute \"{}\": {}", field.name(), error.message());
  }
}

void Store(const Field& field, void* attrs, const AttrValue& value) {
  void* address = field.In(attrs);
  const auto take = [&]<class T>(T* member) { *member = Take<T>(field, value); };
  switch (field.kind()) {
    case Field::Kind::kBool: return take(static_cast<bool*>(address));
    case Field::Kind::kInt: return take(static_cast<int64_t*>(address));
    case Field::Kind::kDouble: return take(static_cast<double*>(address));
    case Field::Kind::kString: return take(static_cast<std::string*>(address));
    case Field::Kind::kInts: return take(static_cast<std::vector<int64_t>*>(address));
    case Field::Kind::kDoubles: return take(static_cast<std::vector<double>*>(address));
    case Field::Kind::kStrings: return take(static_cast<std::vector<std::string>*>(address));
    case Field::Kind::kTensor: return take(static_cast<TensorPtr*>(address));
    case Field::Kind::kDType: return StoreDType(field, *static_cast<DType*>(address), value);
    case Field::Kind::kEnum: return StoreEnum(field, attrs, value);
  }
}

// Bits, not values: -0.0 and NaN are kept by a file too.
bool SameStored(const AttrValue& a, const AttrValue& b) {
  if (a.index() != b.index()) return false;
  const auto same = [](double x, double y) { return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y); };
  if (const double* number = std::get_if<double>(&a)) return same(*number, std::get<double>(b));
  if (const auto* list = std::get_if<std::vector<double>>(&a)) {
    return std::ranges::equal(*list, std::get<std::vector<double>>(b), same);
  }
  return a == b;
}

std::string TypeName(const Field& field) {
  switch (field.kind()) {
    case Field::Kind::kBool: return "bool";
    case Field::Kind::kInt: return "int";
    case Field::Kind::kDouble: return "float";
    case Field::Kind::kString: return "string";
    case Field::Kind::kInts: return "ints";
    case Field::Kind::kDoubles: return "floats";
    case Field::Kind::kStrings: return "strings";
    case Field::Kind::kDType: return "dtype";
    case Field::Kind::kTensor: return "tensor";
    case Field::Kind::kEnum: break;
  }
  return fmt::format("{}", fmt::join(EnumChoices(field), " | "));
}

std::string NamesOf(const AttrsType& type) {
  std::string names;
  for (const FieldInfo& field : type.Fields()) names += (names.empty() ? "" : ", ") + field.name;
  return names.empty() ? "no attributes" : names;
}

// Values, not bits, and tensors by content.
bool Same(const Field& field, const void* a, const void* b) {
  if (field.kind() == Field::Kind::kEnum) return field.EnumIn(a) == field.EnumIn(b);
  if (field.kind() != Field::Kind::kTensor) return Load(field, a) == Load(field, b);
  const TensorPtr &x = At<TensorPtr>(field, a), &y = At<TensorPtr>(field, b);
  return x == y || (x && y && *x == *y);
}

}  // namespace

FieldList Joined(FieldList base, const FieldList& own) {
  base.insert(base.end(), own.begin(), own.end());
  return base;
}

AnyAttrs AttrsType::FromMap(const AttrMap& map) const {
  std::shared_ptr<void> attrs = make_();
  for (const auto& [name, value] : map) {
    const auto field = std::ranges::find_if(fields_, [&](const Field& known) { return known.name() == name; });
    if (field == fields_.end()) {
      std::vector<std::string> known;
      for (const Field& each : fields_) known.emplace_back(each.name());
      Throw<ModelError>("unknown attribute \"{}\"{}", name, NameHint(name, known));
    }
    Store(*field, attrs.get(), value);
  }
  return {this, std::move(attrs)};
}

AttrMap AttrsType::ToMap(const void* attrs, bool all) const {
  AttrMap map;
  for (const Field& field : fields_) {
    AttrValue value = Load(field, attrs);
    if (!all && SameStored(value, Load(field, defaults_.get()))) continue;
    map.emplace(field.name(), std::move(value));
  }
  return map;
}

bool AttrsType::Equal(const void* a, const void* b) const {
  return std::ranges::all_of(fields_, [&](const Field& field) { return Same(field, a, b); });
}

std::vector<FieldInfo> AttrsType::Fields() const {
  std::vector<FieldInfo> infos;
  for (const Field& field : fields_) {
    infos.push_back({field.name(), TypeName(field), ToString(Load(field, defaults_.get())), field.doc()});
  }
  return infos;
}

void AttrsType::ThrowGot(const AttrsType& other) const {
  Throw("attributes of another operator: asked for those with ({}), but these have ({})", NamesOf(*this),
        NamesOf(other));
}

std::string ToString(const AttrValue& value) {
  return std::visit(
      [](const auto& held) -> std::string {
        if constexpr (
            requires { held.begin() + 1; } && !requires { held.c_str(); }) {
          if (held.size() <= kMaxPrinted) return fmt::format("({})", fmt::join(held, ", "));
          return fmt::format("({}, ... {} in all)", fmt::join(held.begin(), held.begin() + kMaxPrinted, ", "),
                             held.size());
        } else if constexpr (requires { held->dtype(); }) {
          return held ? fmt::format("{} {}", held->dtype(), held->shape()) : "none";
        } else {
          return fmt::format("{}", held);
        }
      },
      value);
}

AnyAttrs::AnyAttrs() : type_(&AttrsOf<NoAttrs>()) {
  static const std::shared_ptr<const void> value = std::make_shared<const NoAttrs>();
  value_ = value;
}

AttrMap AnyAttrs::ToMap() const { return type_->ToMap(value_.get(), false); }

AttrMap AnyAttrs::ToFullMap() const { return type_->ToMap(value_.get(), true); }

bool AnyAttrs::operator==(const AnyAttrs& other) const {
  if (type_ != other.type_) return false;
  return value_ == other.value_ || type_->Equal(value_.get(), other.value_.get());
}

}  // namespace bindery
