// Error texts, versions, logging: what needs no communicator.
#include <algorithm>
#include <cctype>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/log.hpp"
#include "base/never_destroyed.hpp"
#include "base/threads_own.hpp"
#include "convert.hpp"
#include "entry_points.hpp"
#include "last_error.hpp"
#include "real_library.hpp"

namespace epccl::nccl {
namespace {

enum class Source { none, shim, native, real };

struct LastError {
  Source source = Source::none;
  std::string text;  // Source::shim
};

struct Translated {
  std::string text;
};

// The last error is one whose text there was no memory for: needs none itself.
thread_local constinit bool text_is_lost = false;

LastError& last() {
  return threads_own<LastError>();
}

/// NCCL has one text for the whole process: what a thread asks for that has had no error of its own.
class LastOfProcess {
 public:
  void put(std::string text) {
    const std::lock_guard lock(mutex_);
    text_ = std::move(text);
  }
  std::string get() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

LastOfProcess& last_of_process() {
  static NeverDestroyed<LastOfProcess> instance;
  return *instance;
}

// EPCCL's texts name its own functions and constants; programs of NCCL know them by NCCL's names. What NCCL has not keeps its own, as
// do settings of the environment.
constexpr std::pair<std::string_view, std::string_view> nccl_names[] = {
#define ROW(result, name, parameters, arguments) {"epccl" #name, "nccl" #name},
#include "entry_points.inc"
#undef ROW
    {"epcclInProgress", "ncclInProgress"},           {"epcclConfig_t", "ncclConfig_t"},
    {"EPCCL_SHRINK_DEFAULT", "NCCL_SHRINK_DEFAULT"}, {"EPCCL_SHRINK_ABORT", "NCCL_SHRINK_ABORT"},
    {"EPCCL_SPLIT_NOCOLOR", "NCCL_SPLIT_NOCOLOR"},   {"EPCCL_REVOKE_DEFAULT", "NCCL_REVOKE_DEFAULT"},
    {"EPCCL_WIN_DEFAULT", "NCCL_WIN_DEFAULT"},       {"EPCCL_WIN_COLL_SYMMETRIC", "NCCL_WIN_COLL_SYMMETRIC"},
};

bool is_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

std::string with_nccl_names(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto end = std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), is_of_name);
    const std::string_view word =
        text.substr(at, std::max<size_t>(1, static_cast<size_t>(end - text.begin()) - at));
    const auto* const known =
        std::ranges::find(nccl_names, word, &std::pair<std::string_view, std::string_view>::first);
    out += known != std::end(nccl_names) ? known->second : word;
    at += word.size();
  }
  return out;
}

std::string_view text_of_last(ncclComm_t comm) {
  if (text_is_lost) return no_memory_for_text;
  const RealNccl* real = opened_real_nccl();
  if (last().source == Source::shim) return last().text;
  if (last().source != Source::real || real == nullptr) {
    std::string& translated = threads_own<Translated>().text;
    translated = with_nccl_names(epcclGetLastError(native(comm)));
    if (translated.empty()) translated = last_of_process().get();
    return translated;
  }
  return real->GetLastError != nullptr ? real->GetLastError(nullptr) : "";
}

void remember(Source source) {
  last().source = source;
  text_is_lost = false;
  last_of_process().put(std::string(text_of_last(nullptr)));
}

}  // namespace

ncclResult_t refuse(const Status& status) {
  if (status.ok()) return ncclSuccess;
  last().text = status.message();
  remember(Source::shim);
  if (status.code() == Code::invalid_argument || status.code() == Code::invalid_usage)
    log::warn(log::coll, -1, "refused: {}", status.message());
  return static_cast<ncclResult_t>(status.code());
}

ncclResult_t refuse_thrown(const std::exception& failure) {
  try {
    return refuse(Status(Code::system_error, failure.what()));
  } catch (const std::exception&) {
    text_is_lost = true;
    return ncclSystemError;
  }
}

ncclResult_t from_native(epcclResult_t result) {
  if (result != epcclSuccess && result != epcclInProgress) remember(Source::native);
  return static_cast<ncclResult_t>(result);
}

ncclResult_t from_real(ncclResult_t result) {
  if (is_failure(result)) remember(Source::real);
  return result;
}

ncclResult_t GetVersion(int* version) {
  if (version == nullptr) return refuse({Code::invalid_argument, "ncclGetVersion: version is NULL"});
  *version = nccl_version;
  return ncclSuccess;
}

// NCCL's own sentences: programs print them, and some compare them.
const char* GetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* GetLastError(ncclComm_t comm) {
  // Programs keep NCCL's pointer: it must not move.
  thread_local char shown[1024];
  const std::string_view text = text_of_last(comm);
  shown[text.copy(shown, sizeof shown - 1)] = 0;
  return shown;
}

// Both this library and EPCCL's write log lines, each by what it has read.
void ResetDebugInit() {
  log::read_again();
  (void)epcclResetDebugInit();
  const RealNccl* real = opened_real_nccl();
  if (real != nullptr && real->ResetDebugInit != nullptr) real->ResetDebugInit();
}

}  // namespace epccl::nccl
