// What the outputs hold after symbolic execution, against what the collective must do.
#include <algorithm>
#include <iterator>

#include "plan/data_flow.hpp"

namespace epccl::plan {

Status DataFlow::check_outputs(std::span<const Transfer> expected) {
  std::vector<Transfer> sorted;
  sorted.reserve(expected.size());
  std::ranges::copy_if(expected, std::back_inserter(sorted),
                       [](const Transfer& transfer) { return transfer.bytes > 0; });
  std::ranges::sort(sorted, [](const Transfer& a, const Transfer& b) {
    return std::pair(a.destination_rank, a.destination_offset) <
           std::pair(b.destination_rank, b.destination_offset);
  });
  size_t first = 0;
  for (int rank = 0; rank < graph_.plan().cluster.ranks(); ++rank) {
    size_t last = first;
    while (last < sorted.size() && sorted[last].destination_rank == rank) ++last;
    EPCCL_TRY(check_output(rank, std::span(sorted).subspan(first, last - first)));
    first = last;
  }
  return {};
}

/// Walks what is expected and what was written side by side, both ascending.
Status DataFlow::check_output(int rank, std::span<const Transfer> expected) {
  std::vector<Piece> written;
  outputs_[static_cast<size_t>(rank)].for_each(0, UINT64_MAX,
                                               [&](const Piece& piece) { written.push_back(piece); });
  size_t next = 0;
  uint64_t checked = 0;  // all output bytes before this one are right
  for (const Transfer& want : expected) {
    const uint64_t end = want.destination_offset + want.bytes;
    if (want.destination_offset < checked)
      return error(Code::invalid_argument,
                   "two expected transfers overlap in the output of rank {} at byte {}", rank,
                   want.destination_offset);
    checked = want.destination_offset;
    while (checked < end) {
      while (next < written.size() && written[next].end <= checked) ++next;
      if (next == written.size() || written[next].begin >= end)
        return missing_output(rank, checked, end, want);
      const Piece& got = written[next];
      if (got.begin > checked) return missing_output(rank, checked, got.begin, want);
      const uint64_t last = std::min(end, got.end);
      const bool right =
          got.source_rank == want.source_rank && got.source_offset + (checked - got.begin) ==
                                                     want.source_offset + (checked - want.destination_offset);
      if (!right) return wrong_output(rank, got, checked, last, want);
      checked = last;
    }
  }
  return check_nothing_more(rank, expected, written);
}

/// All of `expected` is there; a byte that is not in it is one too many.
Status DataFlow::check_nothing_more(int rank, std::span<const Transfer> expected,
                                    std::span<const Piece> written) const {
  size_t next = 0;
  for (const Piece& piece : written)
    for (uint64_t at = piece.begin; at < piece.end;) {
      while (next < expected.size() && expected[next].destination_offset + expected[next].bytes <= at) ++next;
      const uint64_t wanted_from = next < expected.size() ? expected[next].destination_offset : UINT64_MAX;
      if (at < wanted_from) return extra_output(rank, piece, at, std::min(piece.end, wanted_from));
      at = wanted_from + expected[next].bytes;
    }
  return {};
}

Status DataFlow::missing_output(int rank, uint64_t begin, uint64_t end, const Transfer& expected) const {
  const uint64_t from = expected.source_offset + (begin - expected.destination_offset);
  return error(Code::internal_error,
               "plan {}: bytes [{}, {}) of the output of rank {} are never written; expected: bytes [{}, {}) "
               "of the input of "
               "rank {}",
               graph_.plan().algorithm, begin, end, rank, from, from + (end - begin), expected.source_rank);
}

Status DataFlow::wrong_output(int rank, const Piece& piece, uint64_t begin, uint64_t end,
                              const Transfer& expected) const {
  const uint64_t found = piece.source_offset + (begin - piece.begin);
  const uint64_t wanted = expected.source_offset + (begin - expected.destination_offset);
  return failure(
      piece.writer,
      fmt::format(
          "wrong data in bytes [{}, {}) of the output of rank {}; expected: bytes [{}, {}) of the input "
          "of rank {}; found: bytes [{}, {}) of the input of rank {}",
          begin, end, rank, wanted, wanted + (end - begin), expected.source_rank, found,
          found + (end - begin), piece.source_rank));
}

Status DataFlow::extra_output(int rank, const Piece& piece, uint64_t begin, uint64_t end) const {
  return failure(piece.writer,
                 fmt::format("writes bytes [{}, {}) of the output of rank {}, which nothing should write",
                             begin, end, rank));
}

}  // namespace epccl::plan
