#include "api/handles/last_error.hpp"

#include <string>

#include "base/log.hpp"
#include "base/threads_own.hpp"

namespace epccl::api {
namespace {

struct Last {
  std::string text;
  Reason reason = Reason::none;
};

static_assert(static_cast<int>(Reason::none) == epcclReasonNone &&
              static_cast<int>(Reason::timeout) == epcclReasonTimeout &&
              static_cast<int>(Reason::unreachable) == epcclReasonUnreachable);

}  // namespace

epcclResult_t finish(const Status& status) {
  // "In progress" is no failure; what one has said stays.
  if (!status.ok() && status.code() != Code::in_progress) {
    Last& last = threads_own<Last>();
    last.text = status.message();
    last.reason = status.reason();
  }
  // Other failures have been logged where they were found out.
  if (status.code() == Code::invalid_argument) log::warn(log::coll, -1, "refused: {}", status.message());
  return static_cast<epcclResult_t>(status.code());
}

const char* last_error() {
  return threads_own<Last>().text.c_str();
}

Reason last_reason() {
  return threads_own<Last>().reason;
}

}  // namespace epccl::api
