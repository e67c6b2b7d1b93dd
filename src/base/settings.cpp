#include "base/settings.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <optional>

#include "base/core_mask.hpp"
#include "base/fork_safe.hpp"
#include "base/log.hpp"
#include "base/net.hpp"
#include "base/never_destroyed.hpp"
#include "base/per_process.hpp"
#include "base/unique_fd.hpp"

namespace epccl::settings {
namespace {

using FileValues = std::map<std::string, std::string, std::less<>>;

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool is_name(std::string_view text) {
  return !text.empty() &&
         text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") ==
             std::string_view::npos;
}

/// What a message can show of a line that may be anything.
std::string shown(std::string_view line) {
  constexpr size_t most = 60;
  std::string text(line.substr(0, most));
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text + (line.size() > most ? "..." : "");
}

/// What the files say.
struct Files {
  FileValues values;
  std::string wrong;   // the first line that sets nothing, or ""
  std::string unread;  // the first file that is there and cannot be read, with the reason, or ""
};

/// Adds what `path` sets and earlier files do not. A file that is not there is no error: none of them has to be.
void read_file(const std::string& path, Files& files) {
  errno = 0;
  std::ifstream file(path);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string_view text = trim(line);
    const auto equals = text.find('=');
    if (text.empty() || text.front() == '#') continue;
    if (equals == std::string_view::npos || !is_name(trim(text.substr(0, equals)))) {
      if (files.wrong.empty())
        files.wrong = fmt::format("{}, line {}: \"{}\": want KEY=VALUE", path, number, shown(text));
      continue;
    }
    std::string_view value = trim(text.substr(equals + 1));
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"')
      value = value.substr(1, value.size() - 2);
    files.values.emplace(trim(text.substr(0, equals)), value);
  }
  const int cause = errno;
  struct stat info {};
  if ((!file.is_open() || file.bad()) && cause != ENOENT && files.unread.empty() &&
      lstat(path.c_str(), &info) == 0)
    files.unread = fmt::format("{} cannot be read: {}", path, std::strerror(cause));
}

Files read_files() {
  Files all;
  if (const char* named = std::getenv("EPCCL_CONF_FILE"); named && *named) {
    read_file(named, all);
  } else if (const char* home = std::getenv("HOME"); home && *home) {
    read_file(std::string(home) + "/.epccl.conf", all);
  }
  read_file("/etc/epccl.conf", all);
  return all;
}

struct Known {
  ForkSafe<std::mutex> mutex;
  std::optional<Files> files;  // once they have been read
};

Known& known() {
  static NeverDestroyed<Known> instance;
  return *instance;
}

/// Of who reads the files, which a server that is away may keep waiting: no fork waits for that. Taken before the other. A child has its own,
/// and reads them itself where its parent had not yet.
std::mutex& reading() {
  static PerProcess<std::mutex> mutex;
  return *mutex;
}

// When the library is loaded: no child finds another thread just making them.
[[maybe_unused]] const bool made_when_loaded = (known(), reading(), true);

void read_at_first_use() {
  const std::lock_guard turn(reading());
  {
    const std::lock_guard lock(known().mutex);
    if (known().files) return;
  }
  Files fresh = read_files();
  const std::lock_guard lock(known().mutex);
  known().files = std::move(fresh);
}

/// Calls f with what the files say, reading them at first use.
template <typename F>
auto with_files(F&& f) {
  for (;; read_at_first_use()) {
    const std::lock_guard lock(known().mutex);
    if (known().files) return f(std::as_const(*known().files));
  }
}

const Entry* find(std::string_view name) {
  for (const Entry& entry : table()) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

Status wrong_value(std::string_view name, std::string_view value, std::string_view wanted) {
  return error(Code::invalid_argument, "{}=\"{}\": want {}", name, value, wanted);
}

/// A number followed by a unit; the number must be finite and not negative.
std::optional<std::pair<double, std::string_view>> number_and_rest(std::string_view text) {
  double number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  return std::pair(number, trim(text.substr(static_cast<size_t>(end - text.data()))));
}

std::optional<int64_t> integer_of(std::string_view text) {
  text = trim(text);
  int64_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Whether it is what the word asks for: "integer", "integer 1..4", or "microseconds", which are not negative.
bool is_integer(std::string_view word, std::string_view value) {
  const auto number = integer_of(value);
  if (!number) return false;
  if (word == "microseconds") return *number >= 0;
  if (word == "integer") return true;
  word.remove_prefix(std::string_view("integer ").size());
  const auto dots = word.find("..");
  return *number >= integer_of(word.substr(0, dots)) && *number <= integer_of(word.substr(dots + 2));
}

bool is_size_or_auto(std::string_view kind) {
  return kind.starts_with("bytes") && kind.ends_with("|auto");
}

/// One of `a|b|c`, where integers and microseconds may be among them.
bool is_one_of(std::string_view words, std::string_view value) {
  while (!words.empty()) {
    const std::string_view word = words.substr(0, words.find('|'));
    if (value == word) return true;
    if ((word.starts_with("integer") || word == "microseconds") && is_integer(word, value)) return true;
    words.remove_prefix(std::min(words.size(), word.size() + 1));
  }
  return false;
}

Status check_port(const char* name, const std::string& value) {
  const auto port = get_integer(name);
  if (port.ok() && *port >= 1 && *port <= 65535) return {};
  return wrong_value(name, value, "a port: 1 to 65535");
}

/// "eth,ib", "^a,b", "2,3": a word that is missing is a mistake, or an expansion that came to nothing.
Status check_list(const Entry& entry, const std::string& value) {
  const bool of_cores = std::string_view(entry.values) == "list of cores";
  std::string_view rest = value;
  if (!of_cores && rest.starts_with('^')) rest.remove_prefix(1);
  if (!of_cores && rest.starts_with('=')) rest.remove_prefix(1);
  for (bool more = true; more;) {
    const auto comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    const auto core = integer_of(word);
    if (of_cores && (!core || *core < 0 || *core >= most_cores))
      return wrong_value(entry.name, value, "a list of cores, as 2,3");
    if (word.empty() || word.find_first_of(" \t") != std::string_view::npos)
      return wrong_value(entry.name, value,
                         fmt::format("a {} without blanks or empty entries", entry.values));
    more = comma != std::string_view::npos;
    if (more) rest.remove_prefix(comma + 1);
  }
  return {};
}

Status check_value(const Entry& entry, const std::string& value) {
  const std::string_view kind = entry.values;
  if (is_size_or_auto(kind) && value == "auto") return {};
  if (kind.starts_with("bytes")) return get_bytes(entry.name).take_status();
  if (kind.starts_with("seconds")) return get_seconds(entry.name).take_status();
  if (kind == "port") return check_port(entry.name, value);
  if (kind == "host:port")
    return net::parse_host_port(value).ok()
               ? Status{}
               : wrong_value(entry.name, value, "host, host:port or [address]:port");
  if (kind == "10^9 bytes per second above 0") {
    const auto number = number_and_rest(trim(value));
    const bool positive = number && number->first > 0 && number->second.empty();
    return positive ? Status{} : wrong_value(entry.name, value, kind);
  }
  if (kind.starts_with("list of")) return check_list(entry, value);
  if (kind.starts_with("integer") && kind.find('|') == std::string_view::npos)
    return get_integer(entry.name).take_status();
  if (kind == "text up to 255 bytes")
    return value.size() <= 255 ? Status{} : wrong_value(entry.name, value.substr(0, 20) + "...", kind);
  if (kind == "bits per second") return get_rate(entry.name).take_status();
  if (kind == "0|1") return get_bool(entry.name).take_status();
  if (kind.find('|') == std::string_view::npos || is_one_of(kind, value)) return {};
  return wrong_value(entry.name, value, kind);
}

/// A file that is named must be there, and all files must be made of settings; which, is theirs.
Status check_files() {
  if (const char* named = std::getenv("EPCCL_CONF_FILE"); named && *named) {
    // Where it is a pipe its settings are taken out before.
    static_cast<void>(with_files([](const Files&) { return 0; }));
    const UniqueFd file(open(named, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    char byte = 0;  // what comes through a pipe stays there
    if (!file || (pread(file.get(), &byte, 1, 0) < 0 && errno != ESPIPE))
      return system_error(errno, fmt::format("reading EPCCL_CONF_FILE=\"{}\"", named));
  }
  // Not where files are read: what is logged, they may say.
  if (const std::string unread = with_files([](const Files& files) { return files.unread; });
      !unread.empty() && log::enabled(log::Level::warn, log::env) && log::remember_line(-1, unread))
    log::warn(log::env, -1, "{}: nothing of it is set", unread);
  return with_files([](const Files& files) -> Status {
    if (files.wrong.empty()) return {};
    return error(Code::invalid_argument, "{}", files.wrong);
  });
}

std::string escape_cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::optional<std::string> get_explicit(std::string_view name) {
  assert(find(name) && "a setting that is not in the table");
  // An empty variable counts as unset, so that `EPCCL_X= command` takes a setting back.
  if (const char* value = std::getenv(std::string(name).c_str()); value && *value) return std::string(value);
  return with_files([&](const Files& files) -> std::optional<std::string> {
    const auto found = files.values.find(name);
    if (found == files.values.end() || found->second.empty()) return std::nullopt;
    return found->second;
  });
}

std::string get(std::string_view name) {
  if (auto value = get_explicit(name)) return *std::move(value);
  const Entry* entry = find(name);
  return entry ? entry->default_value : "";
}

std::string get_plain(std::string_view name) {
  std::string value = get(name);
  const Entry* entry = find(name);
  const std::string_view kind = entry ? entry->values : "";
  if (kind.starts_with("bytes")) {
    if (const auto bytes = parse_bytes(value); bytes.ok()) return std::to_string(*bytes);
  } else if (kind == "0|1") {
    if (const auto flag = get_bool(name); flag.ok()) return *flag ? "1" : "0";
  } else if (kind.starts_with("integer")) {
    if (const auto number = integer_of(value)) return std::to_string(*number);
  }
  return value;
}

Result<uint64_t> parse_bytes(std::string_view text) {
  std::string_view rest = trim(text);
  uint64_t number = 0;
  const auto [end, code] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  const Status bad = error(Code::invalid_argument, "\"{}\" is not a size: want 64, 4K, 8M, 1G or 1T", text);
  if (code != std::errc()) return bad;
  rest = trim(rest.substr(static_cast<size_t>(end - rest.data())));
  std::string unit = lower(rest);
  if (unit.size() > 1 && unit.ends_with('b')) unit.pop_back();  // KB
  if (unit.size() > 1 && unit.ends_with('i')) unit.pop_back();  // KiB
  if (unit.empty() || unit == "b") return number;
  const auto power = std::string_view("kmgt").find(unit);
  if (unit.size() != 1 || power == std::string_view::npos) return bad;
  const auto shift = static_cast<unsigned>(10 * (power + 1));
  if (number > (std::numeric_limits<uint64_t>::max() >> shift))
    return error(Code::invalid_argument, "\"{}\" is more than 64 bits of bytes", text);
  return number << shift;
}

Result<double> parse_rate(std::string_view text) {
  static constexpr std::pair<std::string_view, double> units[] = {
      {"", 1},         {"bit", 1},      {"bps", 1},      {"kbit", 1e3},   {"k", 1e3},
      {"kbps", 1e3},   {"mbit", 1e6},   {"m", 1e6},      {"mbps", 1e6},   {"gbit", 1e9},
      {"g", 1e9},      {"gbps", 1e9},   {"tbit", 1e12},  {"t", 1e12},     {"tbps", 1e12},
      {"kbit/s", 1e3}, {"mbit/s", 1e6}, {"gbit/s", 1e9}, {"tbit/s", 1e12}};
  if (const auto parts = number_and_rest(trim(text)); parts && parts->first > 0) {
    const std::string unit = lower(parts->second);
    for (const auto& [name, factor] : units) {
      if (unit == name && std::isfinite(parts->first * factor)) return parts->first * factor;
    }
  }
  return error(Code::invalid_argument, "\"{}\" is not a rate: want bits per second as 4gbit, 100mbit or 25e9",
               text);
}

Result<uint64_t> get_bytes(std::string_view name) {
  const std::string value = get(name);
  auto bytes = parse_bytes(value);
  const Entry* entry = find(name);
  const std::string_view kind = entry ? entry->values : "", up_to = "bytes up to ";
  const std::string_view or_auto = is_size_or_auto(kind) ? "auto, or " : "";
  if (!bytes.ok()) return wrong_value(name, value, fmt::format("{}bytes: 64, 4K, 8M or 1G", or_auto));
  if (*bytes == 0 && kind.starts_with("bytes above 0"))
    return wrong_value(name, value, fmt::format("{}bytes above 0: 64, 4K, 8M or 1G", or_auto));
  if (kind.starts_with(up_to) && *bytes > *parse_bytes(kind.substr(up_to.size())))
    return wrong_value(name, value, kind);
  return bytes;
}

Result<double> get_rate(std::string_view name) {
  const std::string value = get(name);
  auto rate = parse_rate(value);
  if (!rate.ok()) return wrong_value(name, value, "bits per second: 4gbit, 100mbit or 25e9");
  return rate;
}

Result<double> get_seconds(std::string_view name) {
  const std::string value = get(name);
  const auto parts = number_and_rest(trim(value));
  const Entry* entry = find(name);
  if (parts && parts->first == 0 && entry && std::string_view(entry->values) == "seconds above 0")
    return wrong_value(name, value, "seconds above 0: 30, 0.5 or 200ms");
  if (parts && (parts->second.empty() || parts->second == "s")) return parts->first;
  if (parts && parts->second == "ms") return parts->first * 1e-3;
  return wrong_value(name, value, "seconds: 30, 0.5 or 200ms");
}

Result<int64_t> get_integer(std::string_view name) {
  const std::string value = get(name);
  const auto number = integer_of(value);
  if (!number) return wrong_value(name, value, "an integer");
  const Entry* entry = find(name);
  const std::string_view kind = entry ? entry->values : "integer";
  if (!is_one_of(kind, value) && kind.starts_with("integer ")) return wrong_value(name, value, kind);
  return *number;
}

Result<bool> get_bool(std::string_view name) {
  const std::string value = get(name);
  const std::string text = lower(trim(value));
  if (text == "1" || text == "yes" || text == "true" || text == "on") return true;
  if (text == "0" || text == "no" || text == "false" || text == "off") return false;
  return wrong_value(name, value, "0 or 1");
}

std::vector<std::string> unknown_names() {
  std::vector<std::string> names;
  const auto consider = [&](std::string name) {
    if (name.starts_with("EPCCL_") && !find(name)) names.push_back(std::move(name));
  };
  for (char** entry = environ; entry && *entry; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    consider(equals ? std::string(*entry, static_cast<size_t>(equals - *entry)) : std::string(*entry));
  }
  with_files([&](const Files& files) {
    for (const auto& [name, value] : files.values) consider(name);
  });
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

Status check() {
  EPCCL_TRY(check_files());
  for (const Entry& entry : table()) {
    if (const std::string_view name = entry.name; name == "EPCCL_DEBUG" || name == "EPCCL_DEBUG_SUBSYS")
      continue;
    if (const auto value = get_explicit(entry.name)) EPCCL_TRY(check_value(entry, *value));
  }
  return {};
}

std::string documentation() {
  std::string text =
      "# Configuration\n\n"
      "Every setting is an environment variable. A setting that the environment lacks is looked for in a "
      "file of\n"
      "`KEY=VALUE` lines: `EPCCL_CONF_FILE` where that is set, else `~/.epccl.conf`; then `/etc/epccl.conf`. "
      "The first\n"
      "that has it wins. Lines that start with `#` are comments. An `EPCCL_*` name that is not in this table "
      "is warned\n"
      "about; a value that is not allowed, a line of a file that is no `KEY=VALUE`, and a file that is named "
      "and missing, are errors when a communicator "
      "is made (of `EPCCL_DEBUG` and "
      "`EPCCL_DEBUG_SUBSYS` a warning). Of the other files one that is there and cannot be read is warned "
      "about. Sizes are counted in powers of two: "
      "`64`, `4K`, "
      "`8M`, `1G`.\n\n"
      "This page is generated from the table in `src/base/settings_table.cpp`.\n\n"
      "| setting | default | values | meaning |\n"
      "|---|---|---|---|\n";
  for (const Entry& entry : table()) {
    const std::string unset =
        *entry.default_value ? fmt::format("`{}`", escape_cell(entry.default_value)) : "unset";
    const char* scope = entry.scope == Scope::all_ranks ? " Must be equal on all ranks." : "";
    text += fmt::format("| `{}` | {} | {} | {}{} |\n", entry.name, unset, escape_cell(entry.values),
                        escape_cell(entry.description), scope);
  }
  return text;
}

void reload() {
  const std::lock_guard turn(reading());  // or what was being read would be taken for new
  const std::lock_guard lock(known().mutex);
  known().files.reset();
}

}  // namespace epccl::settings
