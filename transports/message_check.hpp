// What every transport asks of a message before it starts it.
#pragma once

#include "transports/transport.hpp"

namespace epccl::transports {

/// The rank that sends or receives, among how many.
struct MessageEnd {
  int rank = 0, ranks = 1;
  bool reaches_itself = false;

  bool reaches(int peer) const { return peer >= 0 && peer < ranks && (reaches_itself || peer != rank); }
};

/// `verb`: "send to" or "receive from". Nothing has been done when it is an error.
inline Status check_message(const MessageEnd& here, int peer, MessageKey key, const Completion& completion,
                            const char* verb) {
  if (!here.reaches(peer))
    return error(Code::invalid_argument, "{} rank {}: rank {} of {} has no such peer", verb, peer, here.rank,
                 here.ranks);
  if (key >> message_key_bits != 0)
    return error(Code::invalid_argument, "{} rank {}: message key {:#x} has more than {} bits", verb, peer,
                 key, message_key_bits);
  if (completion.state == Completion::State::pending)
    return error(Code::invalid_usage, "{} rank {}: the completion belongs to a pending message", verb, peer);
  return {};
}

}  // namespace epccl::transports
