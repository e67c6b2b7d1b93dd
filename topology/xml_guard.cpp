#include "topology/xml_guard.hpp"

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

 private:
  std::vector<size_t> children_;  // of each open element
  size_t elements_ = 0;
};

}  // namespace

Status check_xml_limits(std::string_view xml) {
  if (xml.size() > XmlLimits::bytes)
    return error(Code::invalid_argument, "larger than {} MiB", XmlLimits::bytes >> 20);
  Walk walk;
  for (size_t i = xml.find('<'); i != std::string_view::npos; i = xml.find('<', i)) {
    const std::string_view rest = xml.substr(i);
    if (rest.starts_with("<!--")) {
      i = skip_past(xml, i, "-->");
    } else if (rest.starts_with("<![CDATA[")) {
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
  }
  if (walk.depth() > 0)
    return error(Code::invalid_argument, "the XML is truncated: {} elements are not closed", walk.depth());
  return {};
}

}  // namespace epccl::topology
