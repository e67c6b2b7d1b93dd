#include "perf/src/operation_first.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

#include "perf/src/links/options.hpp"
#include "perf/src/moe/options.hpp"
#include "perf/src/options.hpp"

namespace epccl::perf {
namespace {

bool is_operation(std::string_view word) {
  return moe::parse_operation(word) || links::is_operation(word) || parse_operation(word).ok();
}

/// Whether the word behind this option belongs to it.
bool takes_next(const ValueNames& names, std::string_view word, std::string_view next) {
  const bool is_long = word.starts_with("--");
  if (is_long ? word.find('=') != std::string_view::npos : word.size() > 2) return false;  // stands in it
  const std::string name(word);
  if (names.always.contains(name)) return true;
  return names.perhaps.contains(name) && !next.starts_with('-') && !is_operation(next);
}

}  // namespace

void ValueNames::add(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() || option->get_items_expected_max() == 0) continue;
    std::set<std::string>& names = option->get_items_expected_min() == 0 ? perhaps : always;
    for (const std::string& name : option->get_lnames()) names.insert("--" + name);
    for (const std::string& name : option->get_snames()) names.insert("-" + name);
  }
}

std::vector<const char*> operation_first(int argc, const char* const* argv) {
  ValueNames names;
  add_value_names(names);
  moe::add_value_names(names);
  links::add_value_names(names);
  std::vector<const char*> words(argv, argv + argc);
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--") break;
    if (!word.starts_with('-') || word == "-") {
      const auto operation = words.begin() + static_cast<std::ptrdiff_t>(i);
      std::rotate(words.begin() + 1, operation, operation + 1);
      break;
    }
    if (i + 1 < words.size() && takes_next(names, word, words[i + 1])) ++i;
  }
  return words;
}

}  // namespace epccl::perf
