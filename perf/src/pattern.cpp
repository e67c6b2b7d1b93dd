#include "perf/src/pattern.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <optional>

namespace epccl::perf {
namespace {

__extension__ typedef unsigned __int128 Wide;

/// Totals stay far from 2^64 bytes, whatever the datatype and the number of ranks.
constexpr uint64_t largest_count = uint64_t{1} << 40;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

/// Cuts one line of counts into fields. A separator is white space, or one comma or semicolon with white
/// space around it: two commas have an empty field between them.
class Fields {
 public:
  explicit Fields(std::string_view line) : rest_(line.substr(0, line.find('#'))) { skip_spaces(); }

  std::optional<std::string_view> next() {
    if (rest_.empty() && !after_comma_) return std::nullopt;
    size_t length = 0;
    while (length < rest_.size() && !is_space(rest_[length]) && !is_comma(rest_[length])) ++length;
    const std::string_view field = rest_.substr(0, length);
    rest_.remove_prefix(length);
    skip_spaces();
    after_comma_ = !rest_.empty() && is_comma(rest_.front());
    if (after_comma_) {
      rest_.remove_prefix(1);
      skip_spaces();
    }
    return field;
  }

 private:
  static bool is_comma(char c) { return c == ',' || c == ';'; }
  void skip_spaces() {
    while (!rest_.empty() && is_space(rest_.front())) rest_.remove_prefix(1);
  }

  std::string_view rest_;
  bool after_comma_ = false;
};

Result<uint64_t> parse_count(std::string_view field) {
  uint64_t count = 0;
  const auto [end, code] = std::from_chars(field.data(), field.data() + field.size(), count);
  if (field.empty()) return error(Code::invalid_argument, "empty, want a count of elements");
  const bool number = code != std::errc::invalid_argument && end == field.data() + field.size();
  if (!number) {
    return error(Code::invalid_argument, "\"{}\" is not a count of elements (0, 1, 2, ...)",
                 field.substr(0, 40));
  }
  if (code == std::errc::result_out_of_range || count > largest_count) {
    return error(Code::invalid_argument, "{} is more than the largest count, {}", field.substr(0, 40),
                 largest_count);
  }
  return count;
}

Status parse_line(std::string_view line, int source, CountMatrix& matrix) {
  Fields fields(line);
  int column = 0;
  for (auto field = fields.next(); field; field = fields.next(), ++column) {
    if (column == matrix.ranks() && field->empty()) {
      return error(Code::invalid_argument,
                   "column {}: empty behind the last separator, want {} counts (one per rank)", column + 1,
                   matrix.ranks());
    }
    if (column == matrix.ranks()) {
      return error(Code::invalid_argument, "column {}: one count too many, want {} (one per rank)",
                   column + 1, matrix.ranks());
    }
    auto count = parse_count(*field);
    if (!count.ok()) return std::move(count).take_status().with_context(fmt::format("column {}", column + 1));
    matrix.at(source, column) = *count;
  }
  if (column < matrix.ranks()) {
    return error(Code::invalid_argument, "column {}: the line ends, want {} counts (one per rank)",
                 column + 1, matrix.ranks());
  }
  return {};
}

}  // namespace

uint64_t CountMatrix::sent_by(int source) const {
  uint64_t total = 0;
  for (int d = 0; d < ranks_; ++d) total += at(source, d);
  return total;
}

uint64_t CountMatrix::received_by(int destination) const {
  uint64_t total = 0;
  for (int s = 0; s < ranks_; ++s) total += at(s, destination);
  return total;
}

uint64_t CountMatrix::largest_sent() const {
  uint64_t largest = 0;
  for (int s = 0; s < ranks_; ++s) largest = std::max(largest, sent_by(s));
  return largest;
}

CountMatrix uniform_counts(int ranks, uint64_t count) {
  CountMatrix matrix(ranks);
  for (int s = 0; s < ranks; ++s) {
    for (int d = 0; d < ranks; ++d) matrix.at(s, d) = count;
  }
  return matrix;
}

CountMatrix zipf_counts(int ranks, uint64_t count, double exponent) {
  // Shares are integers: ranks on machines whose pow() differs in the last bit still agree on every count.
  std::vector<uint64_t> share(static_cast<size_t>(ranks));
  uint64_t shares = 0;
  for (size_t d = 0; d < share.size(); ++d) {
    share[d] =
        static_cast<uint64_t>(std::llround(0x1p32 * std::pow(1.0 / static_cast<double>(1 + d), exponent)));
    shares += share[d];
  }
  const uint64_t total = static_cast<uint64_t>(ranks) * count;
  std::vector<uint64_t> split(share.size());
  uint64_t remainder = total;
  for (size_t d = 0; d < share.size(); ++d) {
    split[d] = static_cast<uint64_t>(static_cast<Wide>(total) * share[d] / shares);
    remainder -= split[d];
  }
  for (size_t d = 0; remainder > 0; ++d, --remainder) ++split[d];  // less than one element a destination

  CountMatrix matrix(ranks);
  for (int s = 0; s < ranks; ++s) {
    for (int d = 0; d < ranks; ++d) matrix.at(s, d) = split[static_cast<size_t>(d)];
  }
  return matrix;
}

CountMatrix scaled_counts(const CountMatrix& matrix, uint64_t largest) {
  const uint64_t now = matrix.largest_sent();
  CountMatrix scaled(matrix.ranks());
  if (now == 0) return scaled;
  for (int s = 0; s < matrix.ranks(); ++s) {
    for (int d = 0; d < matrix.ranks(); ++d) {
      scaled.at(s, d) = static_cast<uint64_t>(static_cast<Wide>(matrix.at(s, d)) * largest / now);
    }
  }
  return scaled;
}

Result<CountMatrix> parse_counts(std::string_view text, const std::string& name, int ranks) {
  constexpr std::string_view byte_order_mark =
      "\xEF\xBB\xBF";  // spreadsheets write one, and no editor shows it
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  CountMatrix matrix(ranks);
  int source = 0;
  int line_number = 0;
  while (!text.empty()) {
    const size_t length = text.find('\n');
    const std::string_view line = text.substr(0, length);
    text.remove_prefix(length == std::string_view::npos ? text.size() : length + 1);
    ++line_number;
    if (!Fields(line).next()) continue;
    if (source == ranks) {
      return error(Code::invalid_argument, "{}: line {}: one line of counts too many, want {} (one per rank)",
                   name, line_number, ranks);
    }
    EPCCL_TRY(parse_line(line, source++, matrix).with_context(fmt::format("{}: line {}", name, line_number)));
  }
  if (source < ranks) {
    return error(Code::invalid_argument,
                 "{}: ends at line {} with {} line{} of counts, want {} (one per rank)", name, line_number,
                 source, source == 1 ? "" : "s", ranks);
  }
  return matrix;
}

Result<CountMatrix> load_counts(const std::string& path, int ranks) {
  constexpr size_t largest_file = size_t{256} << 20;
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return system_error(errno, fmt::format("count matrix {}", path));
  std::string text;
  std::vector<char> piece(size_t{1} << 20);
  do {  // a loop, and not the file's size: it may be a pipe, or a directory, or endless
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    text.append(piece.data(), static_cast<size_t>(file.gcount()));
    if (text.size() > largest_file) {
      return error(Code::invalid_argument, "count matrix {}: more than {} bytes", path, largest_file);
    }
  } while (file);
  if (file.bad()) return system_error(errno, fmt::format("count matrix {}", path));
  return parse_counts(text, path, ranks);
}

Result<Pattern> parse_pattern(std::string_view text) {
  if (text == "uniform") return Pattern{};
  const std::string_view name = text.substr(0, text.find(':'));
  const std::string_view value =
      name.size() < text.size() ? text.substr(name.size() + 1) : std::string_view();
  if (name == "file" && !value.empty()) return Pattern{Pattern::Kind::file, 0, std::string(value)};
  if (name == "zipf") {
    Pattern pattern{Pattern::Kind::zipf, 0, {}};
    const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), pattern.exponent);
    const bool number = code == std::errc() && end == value.data() + value.size();
    if (number && pattern.exponent >= 0 && pattern.exponent <= 10) return pattern;
    return error(Code::invalid_argument, "pattern \"{}\": want an exponent from 0 to 10, as zipf:0.8", text);
  }
  return error(Code::invalid_argument, "unknown pattern \"{}\": want uniform, zipf:<exponent> or file:<path>",
               text);
}

}  // namespace epccl::perf
