// Who sends how many bytes to whom in one exchange, and where one rank's share of them lies.
#pragma once

#include <climits>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace peers {

/// Bytes to and from each rank, and where they start.
struct Layout {
  std::vector<int> send_bytes, send_offsets, recv_bytes, recv_offsets;
  size_t send_total = 0, recv_total = 0;

  /// Of the exchange that returns everything to where it came from.
  Layout reversed() const {
    return {recv_bytes, recv_offsets, send_bytes, send_offsets, recv_total, send_total};
  }
};

/// The layout of `rank` where `bytes_of(source, destination)` is what one rank sends to another.
template <typename BytesOf>
Layout make_layout(int rank, int ranks, const BytesOf& bytes_of) {
  Layout layout;
  const auto add = [](size_t bytes, std::vector<int>& each, std::vector<int>& offsets, size_t& total) {
    if (total + bytes > INT_MAX) throw std::runtime_error("a rank has more bytes than MPI's int can count");
    each.push_back(static_cast<int>(bytes));
    offsets.push_back(static_cast<int>(total));
    total += bytes;
  };
  for (int r = 0; r < ranks; r++) {
    add(bytes_of(rank, r), layout.send_bytes, layout.send_offsets, layout.send_total);
    add(bytes_of(r, rank), layout.recv_bytes, layout.recv_offsets, layout.recv_total);
  }
  return layout;
}

inline Layout uniform_layout(int rank, int ranks, size_t bytes_per_pair) {
  return make_layout(rank, ranks, [&](int, int) { return bytes_per_pair; });
}

/// As much per sender, but split over destinations d in proportion 1/(1+d)^0.8.
inline Layout zipf_layout(int rank, int ranks, size_t bytes_per_pair) {
  const auto weight = [](int destination) { return std::pow(1.0 / (1 + destination), 0.8); };
  double sum = 0;
  for (int d = 0; d < ranks; d++) sum += weight(d);
  const double total = ranks * static_cast<double>(bytes_per_pair);
  return make_layout(rank, ranks, [&](int, int destination) {
    return static_cast<size_t>(total * weight(destination) / sum) & ~size_t{15};
  });
}

/// `path`: a line for each source rank, with the number of rows for each destination.
inline Layout matrix_layout(int rank, int ranks, const std::string& path, size_t bytes_per_row) {
  std::ifstream file(path);
  const std::vector<size_t> rows{std::istream_iterator<size_t>(file), {}};
  const size_t wanted = static_cast<size_t>(ranks) * static_cast<size_t>(ranks);
  if (!file.eof() || rows.size() != wanted)
    throw std::runtime_error(path + " does not have a number for each of " + std::to_string(wanted) +
                             " rank pairs");
  return make_layout(rank, ranks, [&](int source, int destination) {
    return rows[static_cast<size_t>(source * ranks + destination)] * bytes_per_row;
  });
}

}  // namespace peers
