// Configuration: environment > file (EPCCL_CONF_FILE, ~/.epccl.conf, /etc/epccl.conf; KEY=VALUE lines) > default.
// One table (settings_table.cpp) holds every setting; it also prints docs/configuration.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace epccl::settings {

/// Whose a setting is.
enum class Scope : uint8_t {
  local,      // each rank's own
  all_ranks,  // one value for all, since it shapes plans or messages: ranks compare it when they join
};

/// One row of the table.
struct Entry {
  const char* name;           // "EPCCL_ALGO"
  const char* default_value;  // as the user would write it; "" = unset
  const char* values;         // "flat|two_stage|auto", "bytes", "seconds", "path", ...
  Scope scope;
  const char* description;  // one sentence or two, for the documentation, which says itself what `scope` is
};

/// Every setting, in the order of the documentation.
const std::vector<Entry>& table();

/// Value of a setting that is in the table: environment, else file, else default. Asking for a name that is not in
/// the table is a programming error and aborts in debug builds. The files are read once.
std::string get(std::string_view name);

/// As get(), empty optional where neither environment nor file sets it.
std::optional<std::string> get_explicit(std::string_view name);

/// As get(), in the one form that equal values have, however they are written: sizes in bytes, 0 or 1, numbers without leading zeros.
/// What does not parse stays as it is.
std::string get_plain(std::string_view name);

/// Parsed forms. A value that does not parse is an error naming the setting, the value and what is allowed.
Result<uint64_t> get_bytes(std::string_view name);  // 64, 4K, 8M, 1G (powers of two)
Result<double> get_seconds(std::string_view name);
Result<double> get_rate(std::string_view name);  // bits per second: 4gbit, 100mbit, 25e9
Result<int64_t> get_integer(std::string_view name);
Result<bool> get_bool(std::string_view name);  // 0/1, no/yes, false/true, off/on

/// Parses "4K" and the like; used by command lines too.
Result<uint64_t> parse_bytes(std::string_view text);

/// Parses "4gbit" and the like: bits per second, units are powers of ten.
Result<double> parse_rate(std::string_view text);

/// Names in the environment and in the files that start with EPCCL_ and are not in the table, sorted (each is warned
/// about once, at init).
std::vector<std::string> unknown_names();

/// Whether every value that is set is one that the table allows, as far as the table says it in words (`flat|auto`) or by a unit
/// (`bytes up to 64K`, `seconds above 0`, `integer 1..4`) or as a list, and whether every line of the files sets something: a typing
/// error shall not be taken for the default, nor be found only by the part that reads it. EPCCL_DEBUG and EPCCL_DEBUG_SUBSYS, which
/// must not keep a program from running, are left out: what is wrong there is warned about.
Status check();

/// docs/configuration.md, generated.
std::string documentation();

/// Forgets what was read from files; for tests.
void reload();

}  // namespace epccl::settings
