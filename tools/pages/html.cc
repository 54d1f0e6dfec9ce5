#include "tools/pages/html.h"

#include <fmt/format.h>

#include "train/quoted_text.h"

namespace bindery {

std::string HtmlPage(const std::string& title, const std::string& body) {
  return fmt::format(R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{0}</title>
<style>
body {{ font: 15px/1.45 sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #222; background: #fff; }}
h1 {{ font-size: 1.5em; }} h2 {{ font-size: 1.15em; margin-top: 2em; }}
table {{ border-collapse: collapse; }}
th, td {{ border-bottom: 1px solid #ddd; padding: .2em .7em; text-align: left; vertical-align: top; }}
th {{ background: #f3f3f3; position: sticky; top: 0; }}
td.n, th.n {{ text-align: right; font-variant-numeric: tabular-nums; }}
.wide {{ overflow-x: auto; }}
figure {{ display: inline-block; margin: 0 1em 1em 0; vertical-align: top; width: 9em; }}
figcaption {{ font-size: .85em; overflow-wrap: anywhere; }}
img {{ image-rendering: pixelated; border: 1px solid #ccc; }}
svg {{ max-width: 100%; height: auto; }}
summary {{ cursor: pointer; margin: 1em 0 .5em; }}
</style>
</head>
<body>
<h1>{0}</h1>
{1}</body>
</html>
)",
                     MarkupText(title), body);
}

std::string HtmlTable(const std::vector<std::string>& header, const std::vector<bool>& numbers,
                      const std::vector<std::vector<std::string>>& rows) {
  const auto cell = [&](const char* tag, size_t column, const std::string& text) {
    return fmt::format("<{0}{1}>{2}</{0}>", tag, numbers[column] ? " class=\"n\"" : "", MarkupText(text));
  };
  std::string html = "<div class=\"wide\"><table>\n<thead><tr>";
  for (size_t c = 0; c < header.size(); ++c) html += cell("th", c, header[c]);
  html += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    html += "<tr>";
    for (size_t c = 0; c < row.size(); ++c) html += cell("td", c, row[c]);
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string HtmlImage(const std::string& png, const std::string& text, int width) {
  return fmt::format("<img src=\"data:image/png;base64,{}\" alt=\"{}\" width=\"{}\">", Base64(png), MarkupText(text),
                     width);
}

std::string Base64(const std::string& bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k) {
      three = three << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += i + k > bytes.size() ? '=' : kDigits[three >> (18 - 6 * k) & 63];
    }
  }
  return text;
}

std::string Thousands(int64_t number) {
  std::string digits = std::to_string(number);
  const int first = number < 0 ? 1 : 0;
  for (int at = static_cast<int>(digits.size()) - 3; at > first; at -= 3)
    digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

}  // namespace bindery
