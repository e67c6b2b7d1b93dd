#include "api/handles/last_error.hpp"

#include <string>

#include "base/log.hpp"
#include "base/threads_own.hpp"

namespace epccl::api {
namespace {

struct Text {
  std::string value;
};

std::string& text() {
  return threads_own<Text>().value;
}

}  // namespace

epcclResult_t finish(const Status& status) {
  // "In progress" is no failure; the text of one stays.
  if (!status.ok() && status.code() != Code::in_progress) text() = status.message();
  // Other failures have been logged where they were found out.
  if (status.code() == Code::invalid_argument) log::warn(log::coll, -1, "refused: {}", status.message());
  return static_cast<epcclResult_t>(status.code());
}

const char* last_error() {
  return text().c_str();
}

}  // namespace epccl::api
