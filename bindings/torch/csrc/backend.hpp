// The process group: every call of c10d::Backend as calls of libepccl.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "any_source.hpp"
#include "batch.hpp"
#include "communicator.hpp"
#include "device_line.hpp"
#include "receive_channel.hpp"
#include "send_channel.hpp"
#include "versions.hpp"
#include "work.hpp"

namespace epccl_torch {

class EpcclBackend : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<Tensors>;

  /// Joins the others: blocks until all have come, at most `timeout`. `global_ranks`: of this group's ranks, for messages.
  EpcclBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout,
               std::vector<int64_t> global_ranks, std::string name);
  ~EpcclBackend() override;
  /// A callback may have had the last reference: then the group ends in a thread of its own.
  static void operator delete(EpcclBackend* group, std::destroying_delete_t) noexcept;
  static void operator delete(void* memory) noexcept { ::operator delete(memory); }

  const std::string getBackendName() const override { return "epccl"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void abort() override;
  void shutdown() override;
  /// Of calls that begin from now on.
  void setTimeout(std::chrono::milliseconds timeout) override;
  c10d::ErrorType getError() override;
  bool supportsSplitting() const override { return true; }
  /// The program ends: the others hear that this rank makes no more calls, or, if one is under way, that it will not end. Takes no lock
  /// of the interpreter. Messages end with the process. Calls of GPUs are for leave_gpus_at_end().
  void leave_at_end() noexcept;
  /// The same of GPUs. `waits`: for calls that are under way: false is returned while there are any, and the others hear nothing of those.
  bool leave_gpus_at_end(bool waits) noexcept;
  /// The same of messages, where the process's end does not do it: those that nobody has received yet fail.
  void leave_messages_at_end();
  /// So long.
  static constexpr std::chrono::seconds gpus_time_to_end{5};
  /// Of messages that nobody has received yet when the group is destroyed.
  static constexpr std::chrono::seconds sends_time_to_end{5};
  /// In a forked child, which has the group but not its threads: from now on nobody ends it, abort() and shutdown() do nothing, and calls
  /// are refused.
  void stay_of_parent() noexcept;
  /// A group of some of the ranks (of this group), in the order given; null for those that are not among them. They meet anew, over the store.
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& opts) override;
  bool supportsShrinking() const override { return true; }
  /// A group of the ranks that are not excluded, in their order, which all call this. They meet anew, over the store, so excluded ranks may
  /// be dead. `shrink_flags`: 1 aborts this group first, for ranks that may still be in a call.
  c10::intrusive_ptr<Backend> shrink(const std::vector<int64_t>& excluded, int shrink_flags,
                                     const c10::intrusive_ptr<Options>& opts) override;
  /// A group of `size` ranks, this one `rank` of it, of any groups: they meet over `store`.
  c10::intrusive_ptr<Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                    const c10::intrusive_ptr<Options>& opts, const int& rank,
                                    const int& size) override;
  /// Of a group that is bound to a device: all ranks meet there, before calls that not all of them make.
  void eagerConnectSingleDevice(at::Device device) override;
  /// Where there are GPUs, whose sends and receives of a batch are one call.
  bool supportsCoalescing() const override;
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  // backend_exchange.cpp: what is moved.
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  // backend_gather.cpp: from one to all, from all to one.
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input,
                        const c10d::GatherOptions& opts) EPCCL_OVERRIDES_SINCE_2_14;
  WorkPtr scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& opts) override;

  // backend_reduce.cpp: what is added up.
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  // backend_sparse.cpp
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;

 private:
  /// Queues `body`; what it throws is the call's failure. `opts` give timeout and whether the caller will wait at once.
  template <typename Opts>
  WorkPtr issue(c10d::OpType type, const char* name, Tensors inputs, Tensors outputs, const Opts& opts,
                Body body) {
    return issue({type, name, std::move(inputs), std::move(outputs), opts.timeout, opts.asyncOp},
                 std::move(body));
  }
  /// On the GPU whose tensors they are, or in host memory.
  WorkPtr issue(Call::What what, Body body);
  WorkPtr issue_on_host(Call::What what, Body body);
  // backend_devices.cpp
  DeviceLine& device_line(c10::Device device);
  std::vector<DeviceLine*> device_lines();
  /// Waits a while for what is under way there: false if it is not over then.
  bool gpus_come_to_rest();
  /// What the call throws ends the open batch, if there is one: PyTorch does not end a batch in which a call raised.
  WorkPtr in_batch(const std::function<WorkPtr()>& call);
  void drop_batch(const std::exception_ptr& why);
  /// Throws in a forked child.
  void check_process() const;
  /// One more of an open batch.
  WorkPtr note(WorkPtr work);
  WorkPtr add_to_batch(bool is_send, const at::Tensor& tensor, int peer);
  /// Blocks until the GPUs that this group has used, and those that the barrier names, have done what their current streams have now.
  std::function<void()> rest_of_current_streams(const c10d::BarrierOptions& opts);
  /// Deletes them from the store.
  void forget(const std::vector<std::string>& keys);
  void come_to_monitored_barrier(const std::string& place, std::chrono::milliseconds timeout,
                                 bool wait_all_ranks);
  void check_peer(const char* name, int peer) const;
  /// Throws where a rank has died, or the group has failed otherwise, or is over here.
  void check_others(const char* what) const;
  Meeting meeting_of_pair(int from, int to) const;
  SendChannel& send_channel(int receiver);
  ReceiveChannel& receive_channel(int source);
  void leave_channels(std::chrono::milliseconds patience);
  /// Where in the store the mark of a rank is that has left the group in order.
  static std::string left_key(int rank);
  /// What a rank of this group is globally.
  int64_t global_rank(int rank) const;
  void tell_that_this_rank_left();
  CallPtr send_message(const at::Tensor& tensor, int to, int tag);
  CallPtr receive_message(const at::Tensor& tensor, int source, int tag);
  WorkPtr receive(const at::Tensor& tensor, int source, int tag);
  AnySource::Group any_source_group();
  void scatter_reduced(const at::Tensor& input, const std::vector<size_t>& counts, const at::Tensor& output,
                       const c10d::ReduceOp& op, const Line& line) const;
  std::vector<int64_t> entries_of_all(const at::Tensor& tensor, int64_t entries, const Line& line) const;
  /// As check(), with what the ranks of the text are outside of this group.
  void ok(epcclResult_t result, const char* what) const;
  void check_root(const char* what, int64_t root) const;

  /// Over a connection of the process: the program's is taken while it waits in the store. Asked for with the group: later the store's host may be
  /// dead, and a connection to that is tried for long.
  c10::intrusive_ptr<c10d::Store> message_store() const;

  c10::intrusive_ptr<c10d::Store> store_;  // of this group alone, once its communicator is made
  mutable std::mutex message_store_mutex_;
  mutable c10::intrusive_ptr<c10d::Store> message_store_;
  const c10::intrusive_ptr<Options> options_;
  const SharedTimeout timeout_;
  const std::string name_;
  std::string other_names_;  // "" where ranks of the group are global ranks
  std::shared_ptr<Communicator> communicator_;
  Queue queue_;
  std::mutex making_line_, devices_mutex_;
  std::map<c10::Device, std::unique_ptr<DeviceLine>, bool (*)(const c10::Device&, const c10::Device&)>
      device_lines_;
  std::exception_ptr no_more_lines_;  // why there could not be one
  struct Batch {
    std::vector<WorkPtr> works;
    std::unique_ptr<MessageBatch> messages;
  };
  std::optional<Batch> batch_;
  std::atomic<uint64_t> sequence_{0};
  uint64_t monitored_ = 0;
  std::vector<std::string> monitored_answers_;  // rank 0: keys of those that may not have been read yet
  bool keys_stay_ = false;                      // the store cannot take them away
  std::atomic<bool> failed_{false}, left_{false}, of_parent_{false};
  std::mutex channels_mutex_;
  std::map<int, std::shared_ptr<SendChannel>> send_channels_;  // by receiver
  Inbox inbox_;
  std::map<int, std::shared_ptr<ReceiveChannel>> receive_channels_;  // by source
  AnySource any_source_;
};

}  // namespace epccl_torch
