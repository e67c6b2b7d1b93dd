#include "topology/xml_guard.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <vector>

namespace epccl::topology {
namespace {

/// Position after the `end` that follows `from`; npos when there is none.
size_t skip_past(std::string_view xml, size_t from, std::string_view end) {
  const size_t found = xml.find(end, from);
  return found == std::string_view::npos ? found : found + end.size();
}

/// Position of the '>' that closes a tag; '>' inside quotes does not.
size_t tag_end(std::string_view xml, size_t from) {
  char quote = 0;
  for (size_t i = from; i < xml.size(); ++i) {
    const char c = xml[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '>') {
      return i;
    }
  }
  return std::string_view::npos;
}

/// Counts elements and nesting.
class Walk {
 public:
  Status open(bool closes_itself) {
    if (after_root()) return error(Code::invalid_argument, "a second root element: more than one document");
    if (++elements_ > XmlLimits::elements)
      return error(Code::invalid_argument, "more than {} XML elements", XmlLimits::elements);
    if (!children_.empty() && ++children_.back() > XmlLimits::siblings)
      return error(Code::invalid_argument, "an XML element with more than {} children", XmlLimits::siblings);
    if (children_.size() >= XmlLimits::depth)
      return error(Code::invalid_argument, "XML elements nested deeper than {}", XmlLimits::depth);
    if (!closes_itself) children_.push_back(0);
    return {};
  }
  Status close() {
    if (children_.empty())
      return error(Code::invalid_argument, "an XML element is closed that was not opened");
    children_.pop_back();
    return {};
  }
  size_t depth() const { return children_.size(); }
  bool after_root() const { return elements_ > 0 && children_.empty(); }

 private:
  std::vector<size_t> children_;  // of each open element
  size_t elements_ = 0;
};

/// Parsers would pass over it.
Status check_text_after_root(std::string_view text, size_t position) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return error(Code::invalid_argument, "text after the root element, at byte {}", position + first);
}

/// By its mark, or by its first '<'.
Status check_encoding(std::string_view xml) {
  using namespace std::string_view_literals;
  for (const std::string_view start :
       {"\xff\xfe"sv, "\xfe\xff"sv, "<\0"sv, "\0<"sv, "\0\0\0<"sv, "\0\0\xfe\xff"sv})
    if (xml.starts_with(start))
      return error(Code::invalid_argument,
                   "the text is UTF-16 or UTF-32, not UTF-8 (iconv -f UTF-16 -t UTF-8)");
  return {};
}

/// Those of XML 1.0 that are below 128: parsers take others, and a terminal obeys them.
constexpr bool is_character(uint32_t code) {
  return (code >= 0x20 && code != 0x7f) || code == '\t' || code == '\n' || code == '\r';
}

Status check_characters(std::string_view xml) {
  const auto refused = [](size_t position) {
    return error(Code::invalid_argument, "broken XML: a control character at byte {}", position);
  };
  const auto wrong =
      std::ranges::find_if_not(xml, [](char c) { return is_character(static_cast<uint8_t>(c)); });
  if (wrong != xml.end()) return refused(static_cast<size_t>(wrong - xml.begin()));
  for (size_t i = xml.find("&#"); i != std::string_view::npos; i = xml.find("&#", i + 1)) {
    const bool is_hex = i + 2 < xml.size() && (xml[i + 2] == 'x' || xml[i + 2] == 'X');
    const std::string_view digits = xml.substr(i + 2 + (is_hex ? 1 : 0));
    uint32_t code = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), code, is_hex ? 16 : 10);
    if (read.ec == std::errc() && !is_character(code)) return refused(i);
  }
  return {};
}

}  // namespace

Status check_xml_limits(std::string_view xml) {
  if (xml.size() > XmlLimits::bytes)
    return error(Code::invalid_argument, "larger than {} MiB", XmlLimits::bytes >> 20);
  EPCCL_TRY(check_encoding(xml));
  EPCCL_TRY(check_characters(xml));
  Walk walk;
  size_t last_end = 0;
  for (size_t i = xml.find('<'); i != std::string_view::npos; i = xml.find('<', i)) {
    if (walk.after_root()) EPCCL_TRY(check_text_after_root(xml.substr(last_end, i - last_end), last_end));
    const std::string_view rest = xml.substr(i);
    if (rest.starts_with("<!--")) {
      i = skip_past(xml, i, "-->");
    } else if (rest.starts_with("<![CDATA[")) {
      if (walk.after_root())
        return error(Code::invalid_argument, "text after the root element, at byte {}", i);
      i = skip_past(xml, i, "]]>");
    } else if (rest.starts_with("<?")) {
      i = skip_past(xml, i, "?>");
    } else if (const size_t end = tag_end(xml, i); end == std::string_view::npos) {
      i = end;
    } else {
      if (rest.starts_with("</")) {
        EPCCL_TRY(walk.close());
      } else if (rest.starts_with("<!")) {
        // An internal subset defines entities, which can expand without bound.
        if (xml.substr(i, end - i).find('[') != std::string_view::npos)
          return error(Code::invalid_argument, "a document type with declarations");
      } else {
        EPCCL_TRY(walk.open(xml[end - 1] == '/'));
      }
      i = end + 1;
    }
    if (i == std::string_view::npos) return error(Code::invalid_argument, "the XML is truncated");
    last_end = i;
  }
  if (walk.depth() > 0)
    return error(Code::invalid_argument, "the XML is truncated: {} elements are not closed", walk.depth());
  return walk.after_root() ? check_text_after_root(xml.substr(last_end), last_end) : Status();
}

}  // namespace epccl::topology
