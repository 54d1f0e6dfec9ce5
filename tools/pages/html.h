// Pages of HTML that need nothing but themselves: styles inside, images as data, no script.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bindery {

// A whole page. `title` is text, `body` is HTML.
std::string HtmlPage(const std::string& title, const std::string& body);

// A table of texts; cells of columns that are `numbers` stand at the right. Rows as long as the header.
std::string HtmlTable(const std::vector<std::string>& header, const std::vector<bool>& numbers,
                      const std::vector<std::vector<std::string>>& rows);

// An image that is part of the page. `png`: a file's bytes; `text` is shown in its place where there are no images.
std::string HtmlImage(const std::string& png, const std::string& text, int width);

std::string Base64(const std::string& bytes);  // RFC 4648, with padding
std::string Thousands(int64_t number);         // "1,256,080"

}  // namespace bindery
