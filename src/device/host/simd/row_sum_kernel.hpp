// sum_row over any lanes (lanes_*.hpp). A tile of columns stays in registers while all terms are added.
#pragma once

#include <cstring>

#include "device/host/row_sum.hpp"

namespace epccl::device {
namespace {

/// The first `count` of a vector's elements; the rest are zero.
template <class Lanes, RowType type>
typename Lanes::Float load_part(const std::byte* from, size_t count) {
  constexpr size_t size = element_bytes(type);
  alignas(64) std::byte padded[Lanes::width * size] = {};
  std::memcpy(padded, from, count * size);
  return Lanes::template load<type>(padded);
}

template <class Lanes, RowType type>
void store_part(std::byte* to, typename Lanes::Float value, size_t count) {
  constexpr size_t size = element_bytes(type);
  alignas(64) std::byte padded[Lanes::width * size];
  Lanes::template store<type>(padded, value);
  std::memcpy(to, padded, count * size);
}

/// What is known of a partial sum. Rounding is dear, and changes nothing where the type of the rows can
/// represent it.
enum class Known : uint8_t { zero, representable, nothing };

Known after_adding(Known sum, bool representable) {
  return sum == Known::zero && representable ? Known::representable : Known::nothing;
}

/// The columns of one tile: `vectors` whole vectors, or one of which only `part` elements exist.
template <class Lanes, RowType type, size_t vectors, bool whole>
struct SumTile {
  using Float = typename Lanes::Float;
  static constexpr size_t step = Lanes::width * element_bytes(type);

  static Float load(const std::byte* from, size_t part) {
    if constexpr (whole) return Lanes::template load<type>(from);
    return load_part<Lanes, type>(from, part);
  }

  static void store(std::byte* to, Float value, size_t part) {
    if constexpr (whole) return Lanes::template store<type>(to, value);
    store_part<Lanes, type>(to, value, part);
  }

  /// into += round(from), from = 0.
  static void carry(Float (&into)[vectors], Float (&from)[vectors], Known known) {
    if (known != Known::representable) {
#pragma GCC unroll 8
      for (size_t i = 0; i < vectors; ++i) from[i] = Lanes::template round<type>(from[i]);
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < vectors; ++i) {
      into[i] = Lanes::add(into[i], from[i]);
      from[i] = Lanes::broadcast(0);
    }
  }

  static void add(Float (&rank)[vectors], const SumTerm& term, size_t offset, size_t part) {
    const std::byte* row = term.row + offset;
    if (term.weighted) {
      // Lanes::round() relies on this NaN: one with all bits set would be carried over into the sign.
      const Float weight = Lanes::broadcast(term.weight == term.weight ? term.weight : __builtin_nanf(""));
#pragma GCC unroll 8
      for (size_t i = 0; i < vectors; ++i)
        rank[i] = Lanes::add(rank[i], Lanes::multiply(weight, load(row + i * step, part)));
    } else {
#pragma GCC unroll 8
      for (size_t i = 0; i < vectors; ++i) rank[i] = Lanes::add(rank[i], load(row + i * step, part));
    }
  }

  static void sum(std::byte* destination, const SumTerm* terms, size_t count, size_t offset, size_t part) {
    Float rank[vectors], node[vectors], total[vectors];
#pragma GCC unroll 8
    for (size_t i = 0; i < vectors; ++i) rank[i] = node[i] = total[i] = Lanes::broadcast(0);
    Known of_rank = Known::zero, of_node = Known::zero;
    for (const SumTerm* term = terms; term != terms + count; ++term) {
      add(rank, *term, offset, part);
      of_rank = after_adding(of_rank, !term->weighted);
      if (term->ends_rank) {
        carry(node, rank, of_rank);
        of_node = after_adding(of_node, true);
        of_rank = Known::zero;
      }
      if (term->ends_node) {
        carry(total, node, of_node);
        of_node = Known::zero;
      }
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < vectors; ++i) store(destination + offset + i * step, total[i], part);
  }
};

template <class Lanes, RowType type>
void sum_row_of(std::byte* destination, const SumTerm* terms, size_t count, size_t elements) {
  constexpr size_t vectors = 4;
  constexpr size_t width = Lanes::width;
  constexpr size_t size = element_bytes(type);
  size_t at = 0;
  for (; at + vectors * width <= elements; at += vectors * width)
    SumTile<Lanes, type, vectors, true>::sum(destination, terms, count, at * size, 0);
  for (; at + width <= elements; at += width)
    SumTile<Lanes, type, 1, true>::sum(destination, terms, count, at * size, 0);
  if (at < elements) SumTile<Lanes, type, 1, false>::sum(destination, terms, count, at * size, elements - at);
}

template <class Lanes>
void sum_row_with(RowType type, std::byte* destination, const SumTerm* terms, size_t count, size_t elements) {
  switch (type) {
    case RowType::float32:
      return sum_row_of<Lanes, RowType::float32>(destination, terms, count, elements);
    case RowType::bfloat16:
      return sum_row_of<Lanes, RowType::bfloat16>(destination, terms, count, elements);
    case RowType::float16:
      return sum_row_of<Lanes, RowType::float16>(destination, terms, count, elements);
  }
}

}  // namespace
}  // namespace epccl::device
