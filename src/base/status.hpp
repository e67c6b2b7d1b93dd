// Errors as values: a code, a sentence that says what was wrong, with names and numbers, and, where the program has to know, a reason.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace epccl {

/// The codes of the C API (epcclResult_t has the same numbers).
enum class Code : int {
  success = 0,
  device_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
};

/// What is asked of a failure beside its code: texts are for people. (epcclReason_t has the same numbers, which go between ranks, too.)
enum class Reason : uint8_t {
  none = 0,         // no more than the code says
  timeout = 1,      // a rank, this or another, has waited too long for a silent one
  unreachable = 2,  // a machine does not answer any more
};

/// A text that most often is empty, and then no more than a null pointer: a short call passes some dozens.
class SparseText {
 public:
  SparseText() = default;
  explicit SparseText(std::string text) : text_(text.empty() ? nullptr : make(std::move(text))) {}
  SparseText(const SparseText& other) : text_(other.text_ == nullptr ? nullptr : make(*other.text_)) {}
  SparseText(SparseText&&) noexcept = default;
  SparseText& operator=(const SparseText& other) { return *this = SparseText(other); }
  SparseText& operator=(SparseText&&) noexcept = default;
  ~SparseText() = default;

  const std::string& get() const { return text_ == nullptr ? nothing() : *text_; }

 private:
  // Not inline: these are rare.
  struct Free {
    void operator()(const std::string* text) const;
  };
  using Text = std::unique_ptr<const std::string, Free>;
  static Text make(std::string text);
  static const std::string& nothing();

  Text text_;
};

/// A result without a value. Empty message when ok. Cheap to return when ok.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : Status(code, Reason::none, std::move(message)) {}
  Status(Code code, Reason reason, std::string message)
      : code_(code), reason_(reason), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::success; }
  Code code() const { return code_; }
  Reason reason() const { return reason_; }
  const std::string& message() const { return message_.get(); }

  /// Puts "context: " in front of the message; a Status that is ok stays ok.
  Status with_context(const std::string& context) && {
    if (!ok()) message_ = SparseText(message().empty() ? context : context + ": " + message());
    return std::move(*this);
  }

 private:
  Code code_ = Code::success;
  Reason reason_ = Reason::none;  // where there was room
  SparseText message_;
};

/// Makes an error with a formatted message:  return error(Code::invalid_argument, "count {} ...", count);
template <typename... Args>
Status error(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return {code, fmt::format(format, std::forward<Args>(args)...)};
}
/// The same with a reason.
template <typename... Args>
Status error(Code code, Reason reason, fmt::format_string<Args...> format, Args&&... args) {
  return {code, reason, fmt::format(format, std::forward<Args>(args)...)};
}

static_assert(sizeof(Status) == 2 * sizeof(void*), "short calls return some dozens");

/// What strerror() says, for any thread.
std::string text_of_error(int errno_value);

/// As error(), with ": <strerror(errno_value)>" appended; the code is system_error.
Status system_error(int errno_value, const std::string& what);

/// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit on purpose

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  Status take_status() && { return std::move(status_); }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace epccl

/// Returns the error of a Status expression from the enclosing function, if there is one.
#define EPCCL_TRY(expression)                                                                    \
  do {                                                                                           \
    if (::epccl::Status epccl_status_ = (expression); !epccl_status_.ok()) return epccl_status_; \
  } while (0)

/// `EPCCL_ASSIGN(auto x, f())`: x = the value of a Result, or returns its Status.
#define EPCCL_ASSIGN(declaration, expression) \
  EPCCL_ASSIGN_IMPL_(EPCCL_CONCAT_(epccl_result_, __LINE__), declaration, expression)
#define EPCCL_ASSIGN_IMPL_(name, declaration, expression) \
  auto name = (expression);                               \
  if (!name.ok()) return std::move(name).take_status();   \
  declaration = std::move(name).value()
#define EPCCL_CONCAT_(a, b) EPCCL_CONCAT2_(a, b)
#define EPCCL_CONCAT2_(a, b) a##b
