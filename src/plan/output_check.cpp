// What the outputs hold after symbolic execution, against what the collective must do.
#include <algorithm>
#include <iterator>

#include "plan/data_flow.hpp"
#include "plan/printer.hpp"

namespace epccl::plan {

Status DataFlow::check_outputs(std::span<const Transfer> expected, std::span<const RowSum> sums) {
  std::vector<Wanted> sorted;
  sorted.reserve(expected.size() + sums.size());
  for (const Transfer& transfer : expected)
    if (transfer.bytes > 0) sorted.push_back({transfer});
  for (const RowSum& sum : sums)
    if (sum.bytes > 0)
      sorted.push_back({{SumTable::rank, 0, sum.destination_rank, sum.destination_offset, sum.bytes}, &sum});
  std::ranges::sort(sorted, {}, [](const Wanted& it) {
    return std::pair(it.transfer.destination_rank, it.transfer.destination_offset);
  });
  size_t first = 0;
  for (int rank = 0; rank < graph_.plan().cluster.ranks(); ++rank) {
    size_t last = first;
    while (last < sorted.size() && sorted[last].transfer.destination_rank == rank) ++last;
    EPCCL_TRY(check_output(rank, std::span(sorted).subspan(first, last - first)));
    first = last;
  }
  return {};
}

/// Walks what is wanted and what was written side by side, both ascending.
Status DataFlow::check_output(int rank, std::span<const Wanted> wanted) {
  std::vector<Piece> written;
  outputs_[static_cast<size_t>(rank)].for_each(0, UINT64_MAX,
                                               [&](const Piece& piece) { written.push_back(piece); });
  size_t next = 0;
  uint64_t checked = 0;  // all output bytes before this one are right
  for (const Wanted& want : wanted) {
    const uint64_t begin = want.transfer.destination_offset, end = begin + want.transfer.bytes;
    if (begin < checked)
      return error(Code::invalid_argument,
                   "two expected transfers or sums overlap in the output of rank {} at byte {}", rank, begin);
    checked = begin;
    while (checked < end) {
      while (next < written.size() && written[next].end <= checked) ++next;
      if (next == written.size() || written[next].begin >= end)
        return missing_output(rank, checked, end, want);
      const Piece& got = written[next];
      if (got.begin > checked) return missing_output(rank, checked, got.begin, want);
      const uint64_t last = std::min(end, got.end);
      if (!holds(got, checked, want)) return wrong_output(rank, got, checked, last, want);
      checked = last;
    }
  }
  return check_nothing_more(rank, wanted, written);
}

/// Whether the piece has at `at`, and from there on, what is wanted there.
bool DataFlow::holds(const Piece& piece, uint64_t at, const Wanted& want) const {
  const uint64_t found = piece.source_offset + (at - piece.begin);
  const uint64_t distance = at - want.transfer.destination_offset;
  if (piece.source_rank != want.transfer.source_rank) return false;
  if (want.sum == nullptr) return found == want.transfer.source_offset + distance;
  const SumTable::Sum sum = sums_.find(found);
  if (sum.terms.empty()) return want.sum->terms.empty() && found - sum.offset == distance;
  // A sum may have been made piece by piece: what counts is which byte of each term this is.
  return std::ranges::equal(sum.terms, want.sum->terms, [&](const RowSum::Term& a, const RowSum::Term& b) {
    return a.offset + (found - sum.offset) == b.offset + distance && a.rank == b.rank &&
           a.weight == b.weight && a.ends == b.ends;
  });
}

/// All of `wanted` is there; a byte that is not in it is one too many.
Status DataFlow::check_nothing_more(int rank, std::span<const Wanted> wanted,
                                    std::span<const Piece> written) const {
  size_t next = 0;
  const auto begin_of = [&](size_t i) { return wanted[i].transfer.destination_offset; };
  const auto end_of = [&](size_t i) { return begin_of(i) + wanted[i].transfer.bytes; };
  for (const Piece& piece : written)
    for (uint64_t at = piece.begin; at < piece.end && piece.writer != Piece::nobody;) {
      while (next < wanted.size() && end_of(next) <= at) ++next;
      const uint64_t wanted_from = next < wanted.size() ? begin_of(next) : UINT64_MAX;
      if (at < wanted_from) return extra_output(rank, piece, at, std::min(piece.end, wanted_from));
      at = end_of(next);
    }
  return {};
}

namespace {

std::string bytes_of_input(uint64_t begin, uint64_t length, int rank) {
  return fmt::format("bytes [{}, {}) of the input of rank {}", begin, begin + length, rank);
}

std::string bytes_of_sum(uint64_t begin, uint64_t length, std::span<const RowSum::Term> terms) {
  return fmt::format("bytes [{}, {}) of the sum {}", begin, begin + length, to_text(terms));
}

/// Where two sums part.
std::string difference(std::span<const RowSum::Term> wanted, std::span<const RowSum::Term> found) {
  const auto at = std::ranges::mismatch(wanted, found);
  if (at.in1 == wanted.end() && at.in2 == found.end()) return "; the terms are the same, the bytes are not";
  const auto term = [](auto it, auto end) { return it == end ? "nothing" : to_text(*it); };
  return fmt::format("; they differ from term {} on: expected {}, found {}", at.in1 - wanted.begin(),
                     term(at.in1, wanted.end()), term(at.in2, found.end()));
}

}  // namespace

std::string DataFlow::describe(const Fragment& fragment) const {
  if (fragment.rank != SumTable::rank) return bytes_of_input(fragment.offset, fragment.length, fragment.rank);
  const SumTable::Sum sum = sums_.find(fragment.offset);
  return bytes_of_sum(fragment.offset - sum.offset, fragment.length, sum.terms);
}

std::string DataFlow::describe(const Wanted& want, uint64_t begin, uint64_t end) {
  const uint64_t distance = begin - want.transfer.destination_offset;
  if (want.sum != nullptr) return bytes_of_sum(distance, end - begin, want.sum->terms);
  return bytes_of_input(want.transfer.source_offset + distance, end - begin, want.transfer.source_rank);
}

Status DataFlow::missing_output(int rank, uint64_t begin, uint64_t end, const Wanted& want) const {
  return error(Code::internal_error,
               "plan {}: bytes [{}, {}) of the output of rank {} are never written; expected: {}",
               graph_.plan().algorithm, begin, end, rank, describe(want, begin, end));
}

Status DataFlow::wrong_output(int rank, const Piece& piece, uint64_t begin, uint64_t end,
                              const Wanted& want) const {
  const Fragment found{end - begin, piece.source_offset + (begin - piece.begin), piece.source_rank};
  std::string text =
      fmt::format("wrong data in bytes [{}, {}) of the output of rank {}; expected: {}; found: {}", begin,
                  end, rank, describe(want, begin, end), describe(found));
  if (want.sum != nullptr && found.rank == SumTable::rank)
    text += difference(want.sum->terms, sums_.find(found.offset).terms);
  return failure(piece.writer, text);
}

Status DataFlow::extra_output(int rank, const Piece& piece, uint64_t begin, uint64_t end) const {
  return failure(piece.writer,
                 fmt::format("writes bytes [{}, {}) of the output of rank {}, which nothing should write",
                             begin, end, rank));
}

}  // namespace epccl::plan
