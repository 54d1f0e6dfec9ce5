#include "train/data/text.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/philox.h"

namespace bindery {
namespace {

// How many bytes the character at the beginning of a text takes; 0 if there is none that is valid (RFC 3629).
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return text.empty() ? 0 : 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const size_t bytes = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  // No longer form than is needed, no surrogate, nothing above 10FFFF.
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (second < low || second > high) return 0;
  for (size_t i = 2; i < bytes; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return bytes;
}

// Calls visit(character, line) for each character.
template <class Visit>
void ForEachCharacter(std::string_view text, const std::string& source, const Visit& visit) {
  int64_t line = 1;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = CharacterBytes(text.substr(at));
    if (bytes == 0) Throw<DataError>("{}, line {}: byte {} is not UTF-8", source, line, at);
    const std::string_view character = text.substr(at, bytes);
    visit(character, line);
    if (character == "\n") ++line;
    at += bytes;
  }
}

TextPtr Part(const std::vector<int32_t>& text, int64_t begin, int64_t end) {
  return std::make_shared<const std::vector<int32_t>>(text.begin() + begin, text.begin() + end);
}

// The numbers of the windows that a text has room for: each takes `length` characters, and the last has a next one.
HostTensor WindowNumbers(const TextPtr& text, const TextIterOptions& options) {
  if (options.length < 1)
    Throw<DataError>("windows of a text: expected a length of at least 1, got {}", options.length);
  const auto characters = static_cast<int64_t>(text->size());
  const int64_t windows = (characters - 1) / options.length;
  if (characters < 1 || windows < 1) {
    Throw<DataError>("a text of {} characters has no window of {} and a next character", characters, options.length);
  }
  HostTensor numbers(DType::kInt64, {windows});
  for (int64_t i = 0; i < windows; ++i) numbers.data<int64_t>()[static_cast<size_t>(i)] = i;
  return numbers;
}

}  // namespace

Vocabulary::Vocabulary(std::string_view characters) {
  ForEachCharacter(characters, "vocabulary", [&](std::string_view character, int64_t) {
    if (!classes_.emplace(character, static_cast<int32_t>(characters_.size())).second) {
      Throw<DataError>("vocabulary: \"{}\" is there twice", character);
    }
    characters_.emplace_back(character);
  });
  if (characters_.empty()) throw DataError("vocabulary: it has no characters");
}

Vocabulary Vocabulary::Of(std::string_view text, const std::string& source) {
  std::set<std::string, std::less<>> found;  // UTF-8 sorts as code points do
  ForEachCharacter(text, source, [&](std::string_view character, int64_t) {
    if (!found.contains(character)) found.emplace(character);
  });
  if (found.empty()) Throw<DataError>("{}: it has no characters", source);
  std::string all;
  for (const std::string& character : found) all += character;
  return Vocabulary(all);
}

std::string Vocabulary::characters() const {
  std::string all;
  for (const std::string& character : characters_) all += character;
  return all;
}

std::vector<int32_t> Vocabulary::Encode(std::string_view text, const std::string& source) const {
  std::vector<int32_t> classes;
  classes.reserve(text.size());
  ForEachCharacter(text, source, [&](std::string_view character, int64_t line) {
    const auto found = classes_.find(character);
    if (found == classes_.end()) {
      Throw<DataError>("{}, line {}: \"{}\" is none of the {} characters of the vocabulary", source, line, character,
                       size());
    }
    classes.push_back(found->second);
  });
  return classes;
}

TextSet ReadTextSet(const std::string& path, double validation, const std::optional<Vocabulary>& vocabulary) {
  if (!(validation >= 0 && validation <= 1)) {
    Throw<DataError>("text \"{}\": expected a part for validation from 0 to 1, got {}", path, validation);
  }
  constexpr int64_t kMostBytes = int64_t{1} << 30;
  const std::string bytes = ReadFile(path, kMostBytes), source = fmt::format("\"{}\"", path);
  Vocabulary known = vocabulary ? *vocabulary : Vocabulary::Of(bytes, source);
  const std::vector<int32_t> text = known.Encode(bytes, source);
  const auto size = static_cast<int64_t>(text.size());
  const int64_t train = size - std::llround(validation * static_cast<double>(size));
  return {std::move(known), Part(text, 0, train), Part(text, train, size)};
}

TextIter::TextIter(TextPtr text, const TextIterOptions& options)
    : text_(std::move(text)), options_(options),
      checksum_(static_cast<int64_t>(Checksum(text_->data(), static_cast<int64_t>(text_->size() * sizeof(int32_t))))),
      windows_({{"window", std::make_shared<const HostTensor>(WindowNumbers(text_, options))}}, {},
               {.batch_size = options.batch_size, .last_batch = options.last_batch}) {}

DataDesc TextIter::Describe(const std::string& name) const {
  const int64_t rows = windows_.ProvideData()[0].shape[0];
  const Shape shape = options_.time_first ? Shape{options_.length, rows} : Shape{rows, options_.length};
  return {name, shape, DType::kInt32, options_.time_first ? "TN" : "NT"};
}

HostTensor TextIter::Gather(const std::vector<int64_t>& starts, int64_t ahead) const {
  const auto rows = static_cast<int64_t>(starts.size()), length = options_.length;
  HostTensor out(DType::kInt32, options_.time_first ? Shape{length, rows} : Shape{rows, length});
  int32_t* to = out.data<int32_t>().data();
  const int64_t next_row = options_.time_first ? 1 : length, next_place = options_.time_first ? rows : 1;
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t* from = text_->data() + starts[static_cast<size_t>(row)] + ahead;
    for (int64_t t = 0; t < length; ++t) to[row * next_row + t * next_place] = from[t];
  }
  return out;
}

std::shared_ptr<const Batch> TextIter::Next() {
  int64_t sweep = windows_.sweep();
  const BatchPtr numbers = windows_.Next();
  if (numbers == nullptr) return nullptr;
  // Numbers rise within a sweep. A batch that begins with what was kept has some of the one before, too; one that is
  // filled up has some of later ones.
  const std::vector<int64_t>& index = numbers->index;
  const auto real = index.begin() + numbers->samples;
  if (options_.last_batch == LastBatch::kRollOver && std::is_sorted_until(index.begin(), real) != real) --sweep;
  std::vector<int64_t> starts;
  for (auto at = index.begin(); at != index.end(); ++at) {
    const int64_t number = *at;
    if (at != index.begin() && at < real && number <= *std::prev(at)) ++sweep;
    if (options_.random) {
      PhiloxStream stream(options_.seed, fmt::format("window:{}:{}", sweep, number));
      starts.push_back(static_cast<int64_t>(stream.Below(text_->size() - static_cast<uint64_t>(options_.length))));
    } else {
      starts.push_back(number * options_.length);
    }
  }
  auto batch = std::make_shared<Batch>();
  batch->data.push_back(Gather(starts, 0));
  batch->label.push_back(Gather(starts, 1));
  batch->samples = numbers->samples;
  batch->pad = numbers->pad;
  batch->index = numbers->index;
  return batch;
}

IterState TextIter::SaveState() const {
  IterState state = windows_.SaveState();
  state["text"] = checksum_;
  state["length"] = options_.length;
  state["random"] = options_.random;
  state["seed"] = static_cast<int64_t>(options_.seed);
  return state;
}

void TextIter::LoadState(const IterState& state) {
  const IterState mine = SaveState();
  IterState windows = state;
  for (const char* key : {"text", "length", "random", "seed"}) {
    const auto found = state.find(key);
    if (found == state.end()) {
      Throw<CheckpointError>("this is not the state of an iterator over a text: it has no \"{}\"", key);
    }
    if (found->second != mine.at(key)) {
      Throw<CheckpointError>("the iterator's state was saved with another \"{}\": {}, but here it is {}", key,
                             found->second, mine.at(key));
    }
  }
  windows["seed"] = 0;  // of the numbers, which are not shuffled
  windows_.LoadState(windows);
}

}  // namespace bindery
