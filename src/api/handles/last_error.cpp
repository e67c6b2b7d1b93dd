#include "api/handles/last_error.hpp"

#include <optional>
#include <string>

#include "base/log.hpp"
#include "base/threads_own.hpp"

namespace epccl::api {
namespace {

struct Last {
  std::string text;
  Reason reason = Reason::none;
};

// The last failure is one whose text there was no memory for: needs none itself.
thread_local constinit bool text_is_lost = false;

/// Null: there is no memory for it, so nothing has been kept.
Last* kept() {
  return guarded_or<Last*>(nullptr, [] { return &threads_own<Last>(); });
}

constexpr bool is(Code code, epcclResult_t result) {
  return static_cast<int>(code) == static_cast<int>(result);
}
static_assert(is(Code::success, epcclSuccess) && is(Code::device_error, epcclUnhandledDeviceError) &&
              is(Code::system_error, epcclSystemError) && is(Code::internal_error, epcclInternalError) &&
              is(Code::invalid_argument, epcclInvalidArgument) &&
              is(Code::invalid_usage, epcclInvalidUsage) && is(Code::remote_error, epcclRemoteError) &&
              is(Code::in_progress, epcclInProgress) && epcclNumResults == 8);
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
    text_is_lost = status.message().empty();  // of a failure for whose text there was no memory
  }
  // Other failures have been logged where they were found out.
  if (status.code() == Code::invalid_argument) log::warn(log::coll, -1, "refused: {}", status.message());
  return static_cast<epcclResult_t>(status.code());
}

epcclResult_t finish_thrown(const std::exception& failure) {
  const auto code = guarded_or<std::optional<epcclResult_t>>(
      std::nullopt, [&] { return finish(Status(Code::system_error, failure.what())); });
  if (!code) text_is_lost = true;
  return code.value_or(epcclSystemError);
}

const char* last_error() {
  if (text_is_lost) return no_memory_for_text;
  const Last* const last = kept();
  return last == nullptr ? "" : last->text.c_str();
}

Reason last_reason() {
  const Last* const last = text_is_lost ? nullptr : kept();
  return last == nullptr ? Reason::none : last->reason;
}

}  // namespace epccl::api
