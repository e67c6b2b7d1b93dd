// What kernels need to know of a routing, in a device's memory: made from the handle's lists when a call first asks for it.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "device/device.hpp"
#include "device/kernels/layout_parameters.hpp"
#include "runtime/streams/device_rooms.hpp"

namespace epccl::ep {

class Handle;

class KernelTables {
 public:
  /// Sizes of a routing, at most.
  struct Limits {
    uint64_t tokens = 0, k = 0, rows = 0;
    uint64_t given =
        0;  // weights that a combine of several nodes gives back: k for each row; 0: it is of one node
  };
  static uint64_t bytes(const Limits& limits);

  /// Both of bytes() of memory: the device's own, and pinned.
  KernelTables(const Limits& limits, runtime::DeviceRooms::Borrowed there,
               runtime::DeviceRooms::Borrowed here);
  /// Whose tables kernels make, before a call asks for them: bytes() of the device's memory.
  KernelTables(const Limits& limits, runtime::DeviceRooms::Borrowed there);
  /// Where they are to make them; terms follow from targets.
  void make_by(device::kernels::LayoutParameters& layout, device::kernels::TermsParameters& terms) const;

  // Each queues what makes its tables, if they are not there yet.
  /// Where a token's rows are, and the terms of the sum of them.
  Status need_targets(const Handle& handle, device::Queue& queue);
  Status need_terms(const Handle& handle, device::Queue& queue);
  /// Of each row that this rank receives, which entry it is.
  Status need_rows(const Handle& handle, device::Queue& queue);
  /// Where the weight of each entry is at its expert's rank.
  Status need_homes(const Handle& handle, device::Queue& queue);
  /// Of the k weights of each row that this rank gives back, which of the caller's it is.
  Status need_given(const Handle& handle, device::Queue& queue);

  // Addresses of the device.
  const device::kernels::Target* targets() const { return targets_.there; }  // [tokens, k]
  const device::kernels::Term* terms() const { return terms_.there; }        // [tokens, k]
  const uint32_t* term_counts() const { return term_counts_.there; }         // [tokens]
  const uint32_t* row_entries() const { return row_entries_.there; }         // [rows]; expert-major
  const int32_t* row_topk() const { return row_topk_.there; }                // [rows, k]; not expert-major
  const device::kernels::Term* row_terms() const {
    return row_terms_.there;
  }  // [rows]: itself, weighted; expert-major
  const uint32_t* row_counts() const {
    return row_counts_.there;
  }  // [rows]: 0 where it only pads; expert-major
  const device::kernels::Term* homes() const { return homes_.there; }   // [tokens, k]: of single weights
  const uint32_t* home_counts() const { return home_counts_.there; }    // [tokens, k]: 0 where there is none
  const device::kernels::Term* given() const { return given_.there; }   // [rows, k]: of single weights
  const uint32_t* given_counts() const { return given_counts_.there; }  // [rows, k]: 0 where it is zero

 private:
  template <typename T>
  struct Section {
    T* there = nullptr;
    T* here = nullptr;
    uint64_t room = 0;
  };
  template <typename Use>
  static void lay_out(const Limits& limits, KernelTables* tables, Use use);
  void place_sections();
  Status check(const Handle& handle) const;
  template <typename T>
  static Status upload(device::Queue& queue, const Section<T>& section, uint64_t count);

  const Limits limits_;
  const runtime::DeviceRooms::Borrowed there_, here_;  // here_ is null where kernels make the tables
  Section<device::kernels::Target> targets_;
  Section<device::kernels::Term> terms_, row_terms_, homes_, given_;
  Section<uint32_t> term_counts_, row_entries_, row_counts_, home_counts_, given_counts_;
  Section<int32_t> row_topk_;
  bool has_targets_ = false, has_terms_ = false, has_rows_ = false, has_homes_ = false, has_given_ = false;
};

}  // namespace epccl::ep
