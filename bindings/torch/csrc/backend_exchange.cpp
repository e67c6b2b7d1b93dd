// All-to-all, sends and receives, barriers.
#include <c10/util/Exception.h>

#include <thread>
#include <utility>

#include "backend.hpp"
#include "device_receive.hpp"
#include "from_store.hpp"
#include "store_connection.hpp"
#include "tensors.hpp"

namespace epccl_torch {
namespace {

Parts split_up(const char* what, const at::Tensor& tensor, const std::vector<int64_t>& sizes, int ranks) {
  TORCH_CHECK(tensor.dim() > 0, "epccl: all_to_all_single: the ", what,
              " has no dimension 0 to split: pass a tensor of at least one dimension, as tensor.view(1) is");
  const int64_t rows = tensor.size(0);
  const int64_t width = rows > 0 ? tensor.numel() / rows : 0;
  if (sizes.empty()) {
    TORCH_CHECK(rows % ranks == 0, "epccl: all_to_all_single: dimension 0 of the ", what, " is ", rows,
                ", not a multiple of ", ranks, " ranks");
    return Parts(std::vector<size_t>(static_cast<size_t>(ranks), static_cast<size_t>(rows / ranks * width)));
  }
  TORCH_CHECK(sizes.size() == static_cast<size_t>(ranks), "epccl: all_to_all_single: ", sizes.size(),
              " split sizes of the ", what, " for ", ranks, " ranks");
  std::vector<size_t> counts;
  int64_t sum = 0;
  for (const int64_t size : sizes) {
    TORCH_CHECK(size >= 0, "epccl: all_to_all_single: a split size of the ", what, " is ", size);
    sum += size;
    counts.push_back(static_cast<size_t>(size * width));
  }
  TORCH_CHECK(sum == rows, "epccl: all_to_all_single: the split sizes of the ", what, " add up to ", sum,
              ", its dimension 0 is ", rows);
  return Parts(std::move(counts));
}

}  // namespace

EpcclBackend::WorkPtr EpcclBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                  std::vector<int64_t>& output_splits,
                                                  std::vector<int64_t>& input_splits,
                                                  const c10d::AllToAllOptions& opts) {
  check_tensor("output of all_to_all_single", output);
  check_tensor("input of all_to_all_single", input);
  check_same_dtype("all_to_all_single", output, input);
  Parts from_here = split_up("input", input, input_splits, size_),
        to_here = split_up("output", output, output_splits, size_);
  const bool even = output_splits.empty() && input_splits.empty();
  TORCH_CHECK(!even || input.numel() == output.numel(), "epccl: all_to_all_single: input of ", input.numel(),
              " elements, output of ", output.numel());
  const auto body = [this, output, input, from_here = std::move(from_here), to_here = std::move(to_here),
                     even](const Line& line) mutable {
    const Unit unit = unit_of(input);
    Target target(output);
    at::Tensor source = packed(input);
    if (overlap(source, target.memory())) source = source.clone();
    if (even) {
      ok(epcclAlltoall(line.place(source.const_data_ptr()), line.place(target.data()),
                       from_here.counts[0] * unit.count, unit.datatype, line.comm, line.stream),
         "all_to_all_single without split sizes");
    } else {
      from_here.scale(unit.count);
      to_here.scale(unit.count);
      ok(epcclAlltoallv(line.place(source.const_data_ptr()), from_here.counts.data(), from_here.places.data(),
                        line.place(target.data()), to_here.counts.data(), to_here.places.data(),
                        unit.datatype, line.comm, line.stream),
         "all_to_all_single with split sizes");
    }
    target.finish();
  };
  return issue(c10d::OpType::ALLTOALL_BASE, "epccl:all_to_all_single", {input}, {output}, opts, body);
}

EpcclBackend::WorkPtr EpcclBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                             const c10d::AllToAllOptions& opts) {
  const auto ranks = static_cast<size_t>(size_);
  TORCH_CHECK(outputs.size() == ranks && inputs.size() == ranks, "epccl: all_to_all: ", inputs.size(),
              " inputs and ", outputs.size(), " outputs for ", size_, " ranks");
  check_same_dtype("all_to_all", outputs[0], inputs[0]);
  Blocks from_here(inputs), to_here(outputs);
  const auto body = [this, from_here, to_here, unit = unit_of(inputs[0])](const Line& line) mutable {
    Parts from(from_here.counts()), to(to_here.counts());
    from.scale(unit.count);
    to.scale(unit.count);
    from_here.load();
    at::Tensor source = from_here.flat();
    if (overlap(source, to_here.flat())) source = source.clone();
    ok(epcclAlltoallv(line.place(source.const_data_ptr()), from.counts.data(), from.places.data(),
                      line.place(to_here.data()), to.counts.data(), to.places.data(), unit.datatype,
                      line.comm, line.stream),
       "all_to_all");
    to_here.store();
  };
  return issue(c10d::OpType::ALLTOALL, "epccl:all_to_all", inputs, outputs, opts, body);
}

c10::intrusive_ptr<c10d::Store> EpcclBackend::message_store() const {
  const std::lock_guard lock(message_store_mutex_);
  if (!message_store_) message_store_ = over_own_connection(store_);
  return message_store_;
}

Meeting EpcclBackend::meeting_of_pair(int from, int to) const {
  return {message_store(),
          "epccl/messages/" + std::to_string(from) + ">" + std::to_string(to),
          2,
          rank_ == from ? 0 : 1,
          timeout_,
          "messages from rank " + std::to_string(from) + " (0 of this pair) to rank " + std::to_string(to) +
              " (1 of this pair) of process group " + name_ + other_names_,
          [this] { check_others("messages"); },
          left_key(rank_ == from ? to : from)};
}

SendChannel& EpcclBackend::send_channel(int receiver) {
  const std::lock_guard lock(channels_mutex_);
  if (const auto known = send_channels_.find(receiver); known != send_channels_.end()) return *known->second;
  auto made = std::make_shared<SendChannel>(
      meeting_of_pair(rank_, receiver),
      [store = message_store(), receiver, rank = rank_] { announce_sender(*store, receiver, rank); });
  return *send_channels_.emplace(receiver, std::move(made)).first->second;
}

ReceiveChannel& EpcclBackend::receive_channel(int source) {
  const std::lock_guard lock(channels_mutex_);
  if (const auto known = receive_channels_.find(source); known != receive_channels_.end())
    return *known->second;
  auto made = std::make_shared<ReceiveChannel>(meeting_of_pair(source, rank_), inbox_, source);
  return *receive_channels_.emplace(source, std::move(made)).first->second;
}

AnySource::Group EpcclBackend::any_source_group() {
  return {message_store(), rank_, size_, [this](int source) { receive_channel(source); },
          [this](int source) {
            if (source != rank_) receive_channel(source).abort();
          },
          // Ranks that have not sent yet have no channel here, whose end would tell.
          [this] { check_others("recv from any rank"); }};
}

void EpcclBackend::check_peer(const char* name, int peer) const {
  TORCH_CHECK(peer >= 0 && peer < size_, name, ": rank ", peer, " is not in 0..", size_ - 1);
  communicator_->handle();
}

CallPtr EpcclBackend::send_message(const at::Tensor& tensor, int to, int tag) {
  const Target source(tensor, true);
  auto call = c10::make_intrusive<Call>(rank_,
                                        Call::What{.type = c10d::OpType::SEND,
                                                   .name = "epccl:send",
                                                   .inputs = {tensor},
                                                   .outputs = {tensor},
                                                   .patience = timeout_->load()},
                                        [source] {});
  if (to != rank_) {
    send_channel(to).issue({call, source.data(), source.memory().nbytes(), tag});
    return call;
  }
  // Not in the call's body: the receive's callbacks are not the send's.
  inbox_.send_own(source.data(), source.memory().nbytes(), tag);
  call->run();
  return call;
}

CallPtr EpcclBackend::receive_message(const at::Tensor& tensor, int source, int tag) {
  Target target(tensor);
  const bool from_any = source == Inbox::any;
  Call::What what{from_any ? c10d::OpType::RECVANYSOURCE : c10d::OpType::RECV,
                  from_any ? "epccl:recvAnySource" : "epccl:recv",
                  {tensor},
                  {tensor}};
  what.source = source;
  what.patience = *timeout_;
  auto call = c10::make_intrusive<Call>(rank_, std::move(what), [target]() mutable { target.finish(); });
  inbox_.post({call, target.data(), target.memory().nbytes(), tag, source});
  return call;
}

// Of a GPU's tensor: see DeviceReceive.
EpcclBackend::WorkPtr EpcclBackend::receive(const at::Tensor& tensor, int source, int tag) {
  if (tensor.is_cpu()) return receive_message(tensor, source, tag);
  const at::Tensor host = pinned_room(tensor);
  return c10::make_intrusive<DeviceReceive>(rank_, receive_message(host, source, tag), host, tensor);
}

EpcclBackend::WorkPtr EpcclBackend::send(Tensors& tensors, int to, int tag) {
  return in_batch([&]() -> WorkPtr {
    const at::Tensor& tensor = single("send", tensors);
    check_peer("epccl:send", to);
    if (tensor.is_cpu()) return note(send_message(tensor, to, tag));
    if (batch_) return add_to_batch(true, tensor, to);
    return send_message(fetched(tensor), to, tag);
  });
}

EpcclBackend::WorkPtr EpcclBackend::recv(Tensors& tensors, int from, int tag) {
  return in_batch([&]() -> WorkPtr {
    const at::Tensor& tensor = single("recv", tensors);
    check_peer("epccl:recv", from);
    check_written("epccl:recv", tensors);
    if (batch_ && !tensor.is_cpu()) return add_to_batch(false, tensor, from);
    if (from == rank_)
      any_source_.start();
    else
      receive_channel(from);
    return note(receive(tensor, from, tag));
  });
}

EpcclBackend::WorkPtr EpcclBackend::recvAnysource(Tensors& tensors, int tag) {
  return in_batch([&] {
    const at::Tensor& tensor = single("recv", tensors);
    check_written("epccl:recv", tensors);
    communicator_->handle();
    any_source_.start();
    return note(receive(tensor, Inbox::any, tag));
  });
}

EpcclBackend::WorkPtr EpcclBackend::barrier(const c10d::BarrierOptions& opts) {
  const auto body = [this, rest = rest_of_current_streams(opts)](const Line& line) {
    rest();
    const std::vector<char> sent(static_cast<size_t>(size_), 1);
    std::vector<char> received(sent.size());
    ok(epcclAlltoall(sent.data(), received.data(), 1, epcclInt8, line.comm, nullptr), "barrier");
  };
  return issue(c10d::OpType::BARRIER, "epccl:barrier", {}, {}, opts, body);
}

void EpcclBackend::forget(const std::vector<std::string>& keys) {
  try {
    for (const std::string& key : keys) (void)store_->deleteKey(key);
  } catch (const std::exception&) {
    keys_stay_ = true;  // not every store can
  }
}

// Through the store, not the communicator: who is missing is known by name, and the group stays usable.
void EpcclBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  check_process();
  const std::chrono::milliseconds timeout =
      opts.timeout.count() >= 0 ? bounded(opts.timeout) : timeout_->load();
  const std::string place = "epccl/monitored/" + std::to_string(monitored_++) + "/";
  from_store("monitored_barrier" + other_names_,
             [&] { come_to_monitored_barrier(place, timeout, wait_all_ranks); });
}

void EpcclBackend::come_to_monitored_barrier(const std::string& place, std::chrono::milliseconds timeout,
                                             bool wait_all_ranks) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  const auto comes = [&](const std::string& key, std::chrono::milliseconds more) {
    while (!store_->check({place + key})) {
      if (std::chrono::steady_clock::now() > end + more) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  };
  if (rank_ != 0) {
    store_->set(place + std::to_string(rank_), std::vector<uint8_t>{1});
    // Rank 0 may have begun later, and says who is missing: it is given time for that. Who gives it up leaves its own mark in the
    // store: rank 0 may come yet, and look for it.
    TORCH_CHECK_WITH(DistBackendError, comes("answer", timeout + std::chrono::seconds(1)),
                     "epccl: monitored_barrier: rank 0 has not come within ", timeout.count(), " ms (rank ",
                     rank_, " waits for it)", other_names_);
    const std::vector<uint8_t> answer = store_->get(place + "answer");
    forget({place + std::to_string(rank_)});  // rank 0 looks for it no more
    TORCH_CHECK_WITH(DistBackendError, answer.size() == 1,
                     "epccl: ", std::string(answer.begin(), answer.end()));
    return;
  }
  if (monitored_ == 1) {  // whether keys can be taken away is to be known before anything waits for that
    store_->set(place + "0", std::vector<uint8_t>{1});
    forget({place + "0"});
  }
  std::string missing;
  int count = 0;
  for (int rank = 1; rank < size_ && (missing.empty() || wait_all_ranks); ++rank)
    if (!comes(std::to_string(rank), std::chrono::milliseconds(0)))
      missing += (count++ > 0 ? ", " : "") + std::to_string(rank);
  std::string text = "+";
  if (count > 0)  // in gloo's words, which programs may look for
    text = std::string(count == 1 ? "Rank " : "Ranks ") + missing + " failed to pass monitoredBarrier in " +
           std::to_string(timeout.count()) + " ms" + other_names_;
  store_->set(place + "answer", std::vector<uint8_t>(text.begin(), text.end()));
  // This process may hold the store, and may end next: whoever has come takes the answer first, and its own key away.
  constexpr std::chrono::seconds patience{3};
  const auto longest = std::chrono::steady_clock::now() + patience;
  for (int rank = 1; rank < size_ && !keys_stay_; ++rank)
    while (store_->check({place + std::to_string(rank)}) && std::chrono::steady_clock::now() < longest)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // Who has come to this barrier has read the answers of those before.
  if (count == 0) forget(std::exchange(monitored_answers_, {}));
  monitored_answers_.push_back(place + "answer");
  TORCH_CHECK_WITH(DistBackendError, missing.empty(), "epccl: ", text);
}

}  // namespace epccl_torch
