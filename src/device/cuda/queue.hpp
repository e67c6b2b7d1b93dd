// A CUDA stream as a queue: its own, or the user's.
#pragma once

#include "device/cuda/copies.hpp"
#include "device/cuda/graph_objects.hpp"
#include "device/cuda/held_queues.hpp"
#include "device/cuda/kernel_table.hpp"
#include "device/cuda/priorities.hpp"
#include "device/cuda/signal_words.hpp"
#include "device/device.hpp"

namespace epccl::device::cuda {

/// What the queues of a GPU share.
struct QueueParts {
  const Context& context;
  Copier& copier;
  SignalWords& words;
  const KernelTable& kernels;
  GraphObjects& objects;
  const Priorities& priorities;
  HeldQueues& held;
};

class StreamQueue : public Queue {
 public:
  /// A stream of its own, which does not wait for the legacy NULL stream.
  static Result<std::unique_ptr<Queue>> make(const QueueParts& parts, QueueKind kind);
  /// The user's; its end waits for nothing, as the stream goes on.
  static Result<std::unique_ptr<Queue>> borrow(const QueueParts& parts, CUstream stream);
  StreamQueue(const StreamQueue&) = delete;
  StreamQueue& operator=(const StreamQueue&) = delete;
  ~StreamQueue() override;

  Status copy(std::span<const CopyWork> copies) override;
  Status reduce(const ReduceWork& work) override;
  Status post(SignalWord& word, uint64_t value) override;
  Status wait(const SignalWord& word, uint64_t value) override;
  Status post_after(std::span<const WordValue> waits, std::span<const WordPost> posts) override;
  Status record(QueueEvent& event) override;
  Status wait(const QueueEvent& event) override;
  void set_blocks(int blocks) override { blocks_ = blocks; }
  void set_default_blocks(int blocks) override { default_blocks_ = blocks; }
  Status synchronize() override;
  Result<bool> idle() override;
  Status failure() const override { return failure_; }
  bool capturing() const override;
  Result<uint64_t> capture() const override;
  Status keep_in_graph(std::shared_ptr<const void> object) override;
  std::shared_ptr<const void> hold() override { return parts_.held.hold(stream_); }

  kernels::Grid grid() const {
    return {static_cast<uint32_t>(blocks_), parts_.kernels.multiprocessors(), &parts_.kernels.residency()};
  }
  /// Of what is to leave cores to others: sums, and copies by cores.
  kernels::Grid bounded_grid() const {
    const int bound = blocks_ > 0 ? blocks_ : default_blocks_;
    return {bound > 0 ? static_cast<uint32_t>(bound) : parts_.kernels.fewest_blocks({}),
            parts_.kernels.multiprocessors(), &parts_.kernels.residency()};
  }
  bool has_kernels() const { return parts_.kernels.status().ok(); }
  /// Queues a kernel.
  Status launch(const kernels::Kernel& kernel, uint32_t blocks, uint32_t threads, const void* parameters);

 private:
  StreamQueue(const QueueParts& parts, QueueKind kind, CUstream stream, bool is_owned)
      : parts_(parts), kind_(kind), stream_(stream), is_owned_(is_owned) {}

  Result<bool> is_capturing() const;
  /// Keeps the first error.
  Status keep(Status status);
  Status copy_now(std::span<const CopyWork> copies);
  Status copy_by_cores(std::span<const CopyWork> copies);
  Status reduce_now(const ReduceWork& work);
  Status launch_now(const kernels::Kernel& kernel, uint32_t blocks, uint32_t threads, const void* parameters);
  Status refuse_while_capturing(const char* what) const;
  Status post_after_by_kernel(std::span<const WordValue> waits, std::span<const WordPost> posts);
  Result<uint64_t*> address_of(const SignalWord* word) const;
  Status queue_values(std::span<CUstreamBatchMemOpParams> operations);
  Status post_after_by_driver(std::span<const WordValue> waits, std::span<const WordPost> posts);

  const QueueParts parts_;
  const QueueKind kind_;
  const CUstream stream_;
  const bool is_owned_;
  int blocks_ = 0, default_blocks_ = 0;
  Status failure_;
};

}  // namespace epccl::device::cuda
