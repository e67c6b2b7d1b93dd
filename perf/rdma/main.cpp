// epccl-message-perf: verbs against ucx, message by message, both ends in one process on one device.
//
//   epccl-message-perf time [rounds]        medians of interleaved ping-pongs of messages, by size
//   epccl-message-perf put [rounds]         the same of puts with a signal, into memory that both ends know beforehand
//   epccl-message-perf count TRANSPORT BYTES MESSAGES
//                                           sends so many, each received by a progress() that finds it there: for callgrind, which
//                                           then counts the instructions of messages and not those of waiting
//
//   epccl-message-perf repeat TRANSPORT BYTES MESSAGES
//                                           sends so many, one after the other: for perf
//
// For the machine of tests/rdma/run. Environment: EPCCL_VERBS_DEVICES names the device; UCX's own variables are UCX's.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/caught.hpp"
#include "base/clock.hpp"
#include "base/net.hpp"
#include "perf/rdma/put_signal.hpp"
#include "transports/ucx/ucx_transport.hpp"
#include "transports/verbs/verbs_transport.hpp"

namespace {

using namespace epccl;
using namespace epccl::transports;

/// Two ranks that one thread drives.
class Pair {
 public:
  static Result<std::unique_ptr<Pair>> create(const std::string& transport) {
    auto pair = std::make_unique<Pair>();
    EPCCL_ASSIGN(const net::Endpoint loopback, net::local_address("lo"));
    for (int rank = 0; rank < 2; ++rank) {
      const auto lookup = [raw = pair.get()](int peer) {
        return Result(raw->addresses_[static_cast<size_t>(peer)]);
      };
      if (transport == "verbs") {
        VerbsOptions options;
        if (const char* devices = std::getenv("EPCCL_VERBS_DEVICES")) options.ports.devices = devices;
        EPCCL_ASSIGN(auto made, VerbsTransport::create(rank, 2, loopback, lookup, options));
        pair->addresses_.push_back(made->address());
        pair->ends_.push_back(std::move(made));
      } else {
        EPCCL_ASSIGN(auto made,
                     UcxTransport::create(rank, 2, lookup, {.close_timeout = 0.1, .expected_peers = 1}));
        pair->addresses_.push_back(made->address());
        pair->ends_.push_back(std::move(made));
      }
    }
    return pair;
  }

  MessageTransport& operator[](int rank) { return *ends_[static_cast<size_t>(rank)]; }

  /// One message; the time until both sides are done with it.
  Status move(int source, const void* from, void* to, size_t bytes) {
    Completion sending, receiving;
    EPCCL_TRY((*this)[1 - source].recv(source, key_, to, bytes, receiving));
    EPCCL_TRY((*this)[source].send(1 - source, key_, from, bytes, sending));
    ++key_;
    while (!sending.finished() || !receiving.finished()) {
      (*this)[1 - source].progress();
      (*this)[source].progress();
    }
    if (sending.state == Completion::State::failed) return sending.status;
    return receiving.status;
  }

  /// As move(), but the message has arrived before anybody looks.
  Status move_quietly(const void* from, void* to, size_t bytes) {
    Completion sending, receiving;
    EPCCL_TRY((*this)[1].recv(0, key_, to, bytes, receiving));
    ::usleep(3000);
    while ((*this)[0].progress()) {
    }
    EPCCL_TRY((*this)[0].send(1, key_, from, bytes, sending));
    ++key_;
    while (!sending.finished() || !receiving.finished()) {
      ::usleep(3000);
      (*this)[1].progress();
      (*this)[0].progress();
    }
    return receiving.status;
  }

 private:
  std::vector<std::vector<std::byte>> addresses_;
  std::vector<std::unique_ptr<MessageTransport>> ends_;
  MessageKey key_ = 1;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// `move(i)`: the i-th there or back.
template <typename Move>
Result<double> microseconds(int messages, Move move) {
  const double begin = now_seconds();
  for (int i = 0; i < messages; ++i) EPCCL_TRY(move(i));
  return 1e6 * (now_seconds() - begin) / messages;
}

constexpr size_t largest = 1 << 20;

/// `verbs(i, bytes)` and `ucx(i, bytes)`: the i-th there or back.
template <typename Verbs, typename Ucx>
Status compare(int rounds, Verbs verbs, Ucx ucx) {
  fmt::print("{:>10} {:>12} {:>12} {:>10}\n", "bytes", "verbs (us)", "ucx (us)", "ucx/verbs");
  for (const size_t bytes : {size_t{8}, size_t{64}, size_t{512}, size_t{4096}, size_t{65536}, largest}) {
    const int messages = bytes >= 65536 ? 4 : 20;
    std::vector<double> of_verbs, of_ucx;
    for (int round = -1; round < rounds; ++round) {                     // the first one warms up
      for (const bool of_ucx_now : {round % 2 != 0, round % 2 == 0}) {  // each is the first in turn
        EPCCL_ASSIGN(const double each, microseconds(messages, [&](int i) {
                       return of_ucx_now ? ucx(i, bytes) : verbs(i, bytes);
                     }));
        if (round >= 0) (of_ucx_now ? of_ucx : of_verbs).push_back(each);
      }
    }
    fmt::print("{:>10} {:>12.1f} {:>12.1f} {:>10.2f}\n", bytes, median(of_verbs), median(of_ucx),
               median(of_ucx) / median(of_verbs));
  }
  return {};
}

Status compare_messages(int rounds) {
  EPCCL_ASSIGN(auto verbs, Pair::create("verbs"));
  EPCCL_ASSIGN(auto ucx, Pair::create("ucx"));
  std::vector<char> from(largest, 1), to(largest);
  return compare(
      rounds, [&](int i, size_t bytes) { return verbs->move(i % 2, from.data(), to.data(), bytes); },
      [&](int i, size_t bytes) { return ucx->move(i % 2, from.data(), to.data(), bytes); });
}

/// What is put comes, before its signal is seen.
Status check(perf::rdma::PutPair& pair, const char* name) {
  for (const size_t bytes : {size_t{8}, size_t{4096}, size_t{5000}, largest}) {
    const auto from = pair.memory(0).first(bytes), to = pair.memory(1).first(bytes);
    for (size_t i = 0; i < bytes; ++i) from[i] = static_cast<std::byte>(i * 7 + i / 251 + bytes);
    EPCCL_TRY(pair.put(0, bytes));
    if (!std::equal(from.begin(), from.end(), to.begin()))
      return error(Code::internal_error, "{}: a put of {} bytes left others there", name, bytes);
  }
  return {};
}

Status compare_puts(int rounds) {
  EPCCL_ASSIGN(const auto verbs, perf::rdma::verbs_put_pair(largest));
  EPCCL_ASSIGN(const auto ucx, perf::rdma::ucx_put_pair(largest));
  EPCCL_TRY(check(*verbs, "verbs"));
  EPCCL_TRY(check(*ucx, "ucx"));
  return compare(
      rounds, [&](int i, size_t bytes) { return verbs->put(i % 2, bytes); },
      [&](int i, size_t bytes) { return ucx->put(i % 2, bytes); });
}

Status count(const std::string& transport, size_t bytes, int messages) {
  EPCCL_ASSIGN(auto pair, Pair::create(transport));
  std::vector<char> from(bytes, 1), to(bytes);
  for (int i = 0; i < messages; ++i) EPCCL_TRY(pair->move_quietly(from.data(), to.data(), bytes));
  return {};
}

Status repeat(const std::string& transport, size_t bytes, int messages) {
  EPCCL_ASSIGN(auto pair, Pair::create(transport));
  std::vector<char> from(bytes, 1), to(bytes);
  EPCCL_ASSIGN(const double each, microseconds(messages, [&](int i) {
                 return pair->move(i % 2, from.data(), to.data(), bytes);
               }));
  fmt::print("{} bytes by {}: {:.2f} us a message\n", bytes, transport, each);
  return {};
}

struct Arguments {
  std::string what, transport;
  int times = 25;  // rounds, or messages
  size_t bytes = 0;
};

constexpr const char* usage =
    "epccl-message-perf time|put [ROUNDS] | count|repeat verbs|ucx BYTES MESSAGES\n";

template <typename Number>
Status read_number(const char* name, std::string_view text, Number most, Number& number) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code == std::errc() && end == text.data() + text.size() && number > 0 && number <= most) return {};
  return error(Code::invalid_argument, "{} {}: want a number in 1..{}", name, text, most);
}

Result<Arguments> read_arguments(int argc, char** argv) {
  constexpr int most_times = 1'000'000'000;
  constexpr size_t most_bytes = 1 << 30;
  Arguments read;
  read.what = argc > 1 ? argv[1] : "";
  const bool compares = read.what == "time" || read.what == "put";
  const bool sends = read.what == "count" || read.what == "repeat";
  if (!compares && !sends)
    return error(Code::invalid_argument, "\"{}\": want time, put, count or repeat", read.what);
  if (compares ? argc > 3 : argc != 5)
    return error(Code::invalid_argument, "{}: {} arguments", read.what, argc - 2);
  if (compares) {
    if (argc == 3) EPCCL_TRY(read_number("ROUNDS", argv[2], most_times, read.times));
    return read;
  }
  read.transport = argv[2];
  if (read.transport != "verbs" && read.transport != "ucx")
    return error(Code::invalid_argument, "TRANSPORT {}: want verbs or ucx", read.transport);
  EPCCL_TRY(read_number("BYTES", argv[3], most_bytes, read.bytes));
  EPCCL_TRY(read_number("MESSAGES", argv[4], most_times, read.times));
  return read;
}

Status run(const Arguments& given) {
  if (given.what == "time") return compare_messages(given.times);
  if (given.what == "put") return compare_puts(given.times);
  if (given.what == "count") return count(given.transport, given.bytes, given.times);
  return repeat(given.transport, given.bytes, given.times);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "--help" || what == "-h") {
    fmt::print("{}", usage);
    return 0;
  }
  const Result<Arguments> arguments = read_arguments(argc, argv);
  if (!arguments.ok()) {
    fmt::print(stderr, "epccl-message-perf: {}\n{}", arguments.status().message(), usage);
    return 2;
  }
  const Status status = epccl::caught([&] { return run(*arguments); });
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.message());
  return 1;
}
