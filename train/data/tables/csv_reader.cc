#include <utility>

#include "base/error.h"
#include "train/data/tables/csv.h"

namespace bindery {

CsvReader::CsvReader(std::string_view bytes, std::string name, char separator)
    : name_(std::move(name)), separator_(separator), rest_(bytes) {
  if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);
}

void CsvReader::Fail(size_t field, const char* complaint) const {
  Throw<DataError>("\"{}\", line {}, column {}: {}", name_, line_, field, complaint);
}

// Up to the separator or line end behind it, which stay.
void CsvReader::ReadField(std::string* field) {
  field->clear();
  if (!rest_.starts_with('"')) {
    const char ends[] = {separator_, '\n', '\0'};
    size_t end = rest_.find_first_of(std::string_view(ends, 2));
    if (end == std::string_view::npos) end = rest_.size();
    std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end);
    if (text.ends_with('\r') && !rest_.starts_with(separator_)) text.remove_suffix(1);
    if (text.find('"') != std::string_view::npos)
      Fail(fields_.size(), "a quote within a field that has none around it");
    field->assign(text);
    return;
  }
  for (;;) {
    rest_.remove_prefix(1);
    const size_t quote = rest_.find('"');
    if (quote == std::string_view::npos) Fail(fields_.size(), "the quote that begins here does not end");
    field->append(rest_.substr(0, quote));
    rest_.remove_prefix(quote + 1);
    if (!rest_.starts_with('"')) break;
    *field += '"';
  }
  for (const char c : *field) next_line_ += c == '\n';
  if (rest_.starts_with("\r\n") || rest_ == "\r") rest_.remove_prefix(1);
  if (!rest_.empty() && !rest_.starts_with('\n') && !rest_.starts_with(separator_)) {
    Fail(fields_.size(), "text behind the closing quote");
  }
}

bool CsvReader::Next() {
  while (rest_.starts_with('\n') || rest_.starts_with("\r\n")) {
    rest_.remove_prefix(rest_.starts_with('\n') ? 1 : 2);
    ++next_line_;
  }
  if (rest_.empty()) return false;
  line_ = next_line_;
  for (fields_.clear();;) {
    fields_.emplace_back();
    ReadField(&fields_.back());
    if (rest_.empty()) return true;
    const bool last = rest_.front() == '\n';
    rest_.remove_prefix(1);
    if (last) {
      ++next_line_;
      return true;
    }
  }
}

}  // namespace bindery
