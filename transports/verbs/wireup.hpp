// Making connections: who dials whom, the handshake (wire.hpp) over TCP, and the notices that come over it later.
#pragma once

#include <array>
#include <unordered_map>

#include "base/unique_fd.hpp"
#include "transports/strangers.hpp"
#include "transports/transport.hpp"
#include "transports/verbs/wire.hpp"

namespace epccl::transports::verbs {

/// Who has the queue pairs.
class Connector {
 public:
  virtual ~Connector() = default;
  /// This rank's ends of the queue pairs with a peer; makes them at the first call.
  virtual Result<Ends> ends(int peer) = 0;
  /// Connects them with the other ends.
  virtual Status connect(int peer, const Ends& other) = 0;
  /// Both sides are connected: it may send.
  virtual void opened(int peer) = 0;
  /// No connection comes about, or it is over.
  virtual void failed(int peer, Status why) = 0;
  virtual void noticed(int peer, const Notice& notice) = 0;
};

class Wireup {
 public:
  Wireup(int rank, int ranks, AddressLookup lookup, Connector& connector)
      : rank_(rank), ranks_(ranks), lookup_(std::move(lookup)), connector_(connector) {}

  /// Listens; `epoll` is told of everything, with tags below `tags`.
  Status open(const net::Endpoint& at, int epoll);
  std::vector<std::byte> address() const { return address_.encode(); }
  static constexpr uint64_t tags = uint64_t{1} << 60;

  /// Begins to connect, if nobody has yet. Blocks only for the peer's address.
  Status dial(int peer);
  void handle(uint64_t tag);
  void notify(int peer, const Notice& notice);
  /// Closes the connection with a peer; those that come later are refused.
  void close(int peer);
  /// Whether anything is under way that is not over yet.
  bool busy() const { return under_way_ > 0; }

 private:
  enum class State : uint8_t {
    unconnected,
    dialling,
    greeted,   // Hello is out, the answer is not in
    declined,  // the peer's own connection will come
    answered,  // the peer's Hello was answered, and it is not ready yet
    open,
    closed,
  };
  /// What is being read from a socket.
  struct Inbox {
    std::array<char, 512> data;
    size_t filled = 0;
    int error = 0;  // of the connection, where that has ended by one
  };
  struct Line {
    State state = State::unconnected;
    UniqueFd socket;
    // The peer's, declined for this rank's own: open as long as that is being made, so that the peer hears when this process ends.
    UniqueFd declined;
    Address address;
    Inbox inbox;
  };
  using Stranger = Strangers<Hello>::Stranger;
  enum class Read : uint8_t { whole, partly, closed };

  template <typename T>
  static Read read(int fd, Inbox& inbox, T& into);
  template <typename T>
  static bool write(int fd, const T& what);
  Status watch(int fd, uint64_t tag, bool also_writable);
  void set(Line& line, State state);
  void on_line(int peer);
  void on_dialled(int peer, Line& line);
  void on_answer(int peer, Line& line);
  void on_notice(int peer, Line& line);
  static Status ended(const Line& line, const char* text);
  void fail(int peer, Status why);
  void on_declined(int peer, Line& line);
  void accept();
  bool admit(Stranger& stranger);
  void answer(int peer, Line& line, const Hello& hello);

  const int rank_, ranks_;
  const AddressLookup lookup_;
  Connector& connector_;
  Address address_;
  UniqueFd listener_;
  int epoll_ = -1;
  std::unordered_map<int, Line> lines_;
  Strangers<Hello> strangers_{ranks_};
  int under_way_ = 0;
};

}  // namespace epccl::transports::verbs
