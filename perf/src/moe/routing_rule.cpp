#include "perf/src/moe/routing_rule.hpp"

#include <charconv>

namespace epccl::perf::moe {
namespace {

using Kind = RoutingRule::Kind;

/// True where `text` is one number and nothing else.
template <typename T>
bool read_number(std::string_view text, T& number) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  return code == std::errc() && end == text.data() + text.size();
}

Result<RoutingRule> parse_groups(std::string_view text, std::string_view value) {
  RoutingRule rule;
  rule.kind = Kind::groups;
  const size_t slash = value.find('/');
  const bool numbers = slash != std::string_view::npos && read_number(value.substr(0, slash), rule.chosen) &&
                       read_number(value.substr(slash + 1), rule.groups);
  if (numbers && rule.chosen > 0 && rule.chosen <= rule.groups) return rule;
  return error(Code::invalid_argument,
               "routing \"{}\": want groups:<chosen>/<groups>, as groups:4/8 for 4 of 8", text);
}

}  // namespace

Result<RoutingRule> parse_routing(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const std::string_view value =
      colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  RoutingRule rule;
  if (text == "uniform") return rule;
  if (name == "zipf") {
    rule.kind = Kind::zipf;
    if (read_number(value, rule.exponent) && rule.exponent >= 0 && rule.exponent <= 10) return rule;
    return error(Code::invalid_argument, "routing \"{}\": want an exponent from 0 to 10, as zipf:0.8", text);
  }
  if (name == "groups") return parse_groups(text, value);
  if (name == "hot") {
    rule.kind = Kind::hot;
    if (read_number(value, rule.hot) && rule.hot > 0) return rule;
    return error(Code::invalid_argument, "routing \"{}\": want a number of hot experts, as hot:2", text);
  }
  if (name == "trace" && !value.empty()) {
    rule.kind = Kind::trace;
    rule.path = value;
    return rule;
  }
  return error(
      Code::invalid_argument,
      "unknown routing \"{}\": want uniform, zipf:<exponent>, groups:<chosen>/<groups>, hot:<experts> or "
      "trace:<path>",
      text);
}

std::string to_string(const RoutingRule& rule) {
  switch (rule.kind) {
    case Kind::uniform:
      return "uniform";
    case Kind::zipf:
      return fmt::format("zipf:{}", rule.exponent);
    case Kind::groups:
      return fmt::format("groups:{}/{}", rule.chosen, rule.groups);
    case Kind::hot:
      return fmt::format("hot:{}", rule.hot);
    case Kind::trace:
      return "trace:" + rule.path;
  }
  return "";
}

Status check_routing(const RoutingRule& rule, uint32_t experts, uint32_t topk) {
  if (rule.kind == Kind::trace) return {};
  if (topk > experts)
    return error(Code::invalid_argument, "--topk {}: there are only {} experts", topk, experts);
  if (rule.kind == Kind::hot && rule.hot > experts)
    return error(Code::invalid_argument, "routing {}: there are only {} experts", to_string(rule), experts);
  if (rule.kind != Kind::groups) return {};
  if (experts % rule.groups != 0) {
    return error(Code::invalid_argument, "routing {}: {} experts are not {} groups of equal size",
                 to_string(rule), experts, rule.groups);
  }
  const uint32_t within = rule.chosen * (experts / rule.groups);
  if (topk <= within) return {};
  return error(Code::invalid_argument, "routing {}: --topk {}, but {} of {} groups have only {} experts",
               to_string(rule), topk, rule.chosen, rule.groups, within);
}

}  // namespace epccl::perf::moe
