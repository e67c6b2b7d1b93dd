#include "receive_channel.hpp"

#include <limits>
#include <utility>

#include "group_thread.hpp"

namespace epccl_torch {

ReceiveChannel::ReceiveChannel(Meeting meeting, Inbox& inbox, int source)
    : inbox_(inbox), source_(source), line_(std::move(meeting)) {
  thread_ = start_group_thread([this] { serve(); });
}

ReceiveChannel::~ReceiveChannel() {
  inbox_.release(source_);
  thread_.join();
}

void ReceiveChannel::leave() {
  if (inbox_.leave(source_)) abort();
}

void ReceiveChannel::serve() {
  while (inbox_.wanted(source_)) {
    try {
      receive_one();
    } catch (...) {
      inbox_.fail(source_, std::current_exception());
    }
  }
}

void ReceiveChannel::receive_one() {
  epcclComm_t comm = line_.open();
  const Inbox::Patience patience = inbox_.begin_wait(source_);
  if (patience == Inbox::Patience::none) return;
  const bool endless = patience == Inbox::Patience::endless;
  const double timeout = line_.timeout_seconds();
  check(epcclCommSetTimeout(comm, endless ? std::numeric_limits<double>::infinity() : timeout), line_.name());
  MessageHeader header{};
  check(epcclRecv(&header, sizeof header, epcclUint8, 0, comm, nullptr), line_.name());
  const Inbox::Landing landing = inbox_.land(source_, header);
  try {
    check(epcclCommSetTimeout(comm, timeout), line_.name());
    if (header.bytes > 0)
      check(epcclRecv(landing.data, header.bytes, epcclUint8, 0, comm, nullptr), line_.name());
  } catch (...) {
    inbox_.lost(source_, landing, std::current_exception());
    return;
  }
  inbox_.landed(source_, landing);
}

}  // namespace epccl_torch
