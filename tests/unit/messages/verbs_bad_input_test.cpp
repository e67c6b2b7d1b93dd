// What is wrong with devices and limits is named.
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <deque>
#include <functional>
#include <utility>

#include "soft_roce.hpp"

namespace epccl::transports {
namespace {

using verbs::device_selected;

TEST(VerbsDevices, AreSelectedByPrefixNameAndPort) {
  EXPECT_TRUE(device_selected("", "mlx5_0", 1));
  EXPECT_TRUE(device_selected("mlx5", "mlx5_0", 1));
  EXPECT_TRUE(device_selected("efa,mlx5_1", "mlx5_10", 1)) << "by prefix";
  EXPECT_FALSE(device_selected("efa,=mlx5_1", "mlx5_10", 1));
  EXPECT_TRUE(device_selected("mlx5_0:2", "mlx5_0", 2));
  EXPECT_FALSE(device_selected("mlx5_0:2", "mlx5_0", 1));
  EXPECT_FALSE(device_selected("^mlx5_0", "mlx5_0", 1));
  EXPECT_TRUE(device_selected("^mlx5_0", "mlx5_1", 1));
  EXPECT_FALSE(device_selected("^mlx5_0:1,efa", "mlx5_0", 1));
  EXPECT_TRUE(device_selected("^mlx5_0:1,efa", "mlx5_0", 2));
}

TEST(VerbsSignals, ComeBackAsTheyWent) {
  for (const uint32_t id : {1U, 0x3ffffU, 0xfffffffU})
    for (const uint32_t parts : {1U, 2U, 4U})
      for (const bool shorter : {false, true}) {
        const auto back = verbs::Signal::decode(verbs::Signal{id, parts, shorter}.encode());
        EXPECT_EQ(back.id, id);
        EXPECT_EQ(back.parts, parts);
        EXPECT_EQ(back.shorter, shorter);
      }
}

TEST(VerbsAdverts, FindNothingOnceTheyAreOver) {
  verbs::AdvertTable table;
  verbs::Receive first, second;
  const uint32_t id = table.add(first);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(table.find(id), &first);
  table.remove(id);
  EXPECT_EQ(table.find(id), nullptr);
  const uint32_t next = table.add(second);
  EXPECT_NE(next, id) << "a late signal would end another receive";
  EXPECT_EQ(table.find(next), &second);
}

class VerbsBadInput : public OnSoftRoce {
 protected:
  static Status open(const VerbsOptions& options) {
    const auto loopback = net::local_address("lo");
    const auto lookup = [](int) -> Result<std::vector<std::byte>> {
      return error(Code::internal_error, "unused");
    };
    return VerbsTransport::create(0, 2, *loopback, lookup, options).status();
  }
  static void expect_said(const Status& status, std::initializer_list<const char*> words) {
    EXPECT_FALSE(status.ok());
    for (const char* word : words)
      EXPECT_NE(status.message().find(word), std::string::npos) << word << " is not in: " << status.message();
  }
};

TEST_F(VerbsBadInput, ADeviceThatIsNotThereIsNamedAsAskedFor) {
  VerbsOptions options;
  options.ports.devices = "mlx5_7";
  expect_said(open(options), {"no RDMA port can be used", "EPCCL_VERBS_DEVICES=mlx5_7", "4 devices"});
}

TEST_F(VerbsBadInput, AGidIndexThatIsEmptyIsNamed) {
  VerbsOptions options;
  options.ports.devices = "n0r0";
  options.ports.gid_index = 200;
  const Status status = open(options);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  expect_said(status, {"n0r0 port 1", "index 200", "EPCCL_VERBS_GID_INDEX"});
}

TEST_F(VerbsBadInput, PortsThatAreDownAreSaidToBe) {
  link("v0r0", "down");
  VerbsOptions options;
  options.ports.devices = "n0r0";
  expect_said(open(options), {"no RDMA port can be used", "n0r0 port 1: down"});
}

/// In a child that may lock `bytes` of memory and has no right to more; what it says.
std::string told_with_memlock(rlim_t bytes, const std::function<Status()>& what) {
  int ends[2];
  if (::pipe(ends) != 0) return "";
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{bytes, bytes};
    ::setrlimit(RLIMIT_MEMLOCK, &limit);
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    std::array<__user_cap_data_struct, 2> none{};
    ::syscall(SYS_capset, &header, none.data());
    const std::string said = what().message();
    (void)!::write(ends[1], said.data(), said.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said(4096, 0);
  size_t length = 0;
  for (ssize_t got = 0; (got = ::read(ends[0], said.data() + length, said.size() - length)) > 0;)
    length += static_cast<size_t>(got);
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  said.resize(length);
  return said;
}

TEST_F(VerbsBadInput, ALimitOnLockedMemoryIsNamedWithTheCommandThatRaisesIt) {
  const std::string said = told_with_memlock(64 << 10, [] { return open(Verbs::options(0)); });
  for (const char* word :
       {"n0r0 port 1", "registering", "65536 bytes", "RLIMIT_MEMLOCK", "ulimit -l unlimited"})
    EXPECT_NE(said.find(word), std::string::npos) << word << " is not in: " << said;
}

TEST_F(VerbsBadInput, ARegistrationThatFailsFailsItsMessageAndNoOther) {
  Fabric<Verbs> fabric(2);
  Message hello(0, 1, 0, 10);
  ASSERT_TRUE(hello.recv(fabric).ok());
  ASSERT_TRUE(hello.send(fabric).ok());
  ASSERT_TRUE(fabric.finish(hello.receiving));
  Completion receiving;
  void* nowhere = reinterpret_cast<void*>(uintptr_t{1} << 40);
  EXPECT_EQ(fabric[1].recv(0, 1, nowhere, 1 << 20, receiving).code(), Code::system_error);
  EXPECT_EQ(receiving.state, Completion::State::failed);
  EXPECT_NE(receiving.status.message().find("registering 1048576 bytes with n1r0 port 1"), std::string::npos)
      << receiving.status.message();
  Message next(0, 1, 2, 1 << 20);
  ASSERT_TRUE(next.recv(fabric).ok());
  ASSERT_TRUE(next.send(fabric).ok());
  ASSERT_TRUE(fabric.drive_until([&] { return next.finished(); }));
  next.expect_arrived();
}

TEST_F(VerbsBadInput, ARegistrationThatFailsOnceTheConnectionIsThereFailsItsMessageAndNoOther) {
  Fabric<Verbs> fabric(2);
  void* nowhere = reinterpret_cast<void*>(uintptr_t{1} << 40);
  Message before(0, 1, 1, 1 << 20), after(0, 1, 3, 1 << 20);
  Completion receiving;
  ASSERT_TRUE(before.recv(fabric).ok());
  ASSERT_TRUE(fabric[1].recv(0, 2, nowhere, 1 << 20, receiving).ok());
  ASSERT_TRUE(after.recv(fabric).ok());
  EXPECT_EQ(receiving.state, Completion::State::pending);
  for (Message* message : {&before, &after}) ASSERT_TRUE(message->send(fabric).ok());
  ASSERT_TRUE(fabric.drive_until([&] { return before.finished() && after.finished(); }));
  ASSERT_EQ(receiving.state, Completion::State::failed);
  expect_said(receiving.status, {"registering 1048576 bytes with n1r0 port 1"});
  before.expect_arrived();
  after.expect_arrived();
}

/// libibverbs, for a device that runs out of queue pairs.
struct FewPairs : Verbs {
  static inline int limited_rank = 0, left = 0, made = 0, destroyed = 0;

  static ibv_qp* create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
    if (left-- > 0) {
      ++made;
      return (*verbs::Library::get())->create_qp(domain, attributes);
    }
    errno = ENOMEM;
    return nullptr;
  }
  static int destroy_qp(ibv_qp* pair) {
    ++destroyed;
    return (*verbs::Library::get())->destroy_qp(pair);
  }
  static Result<std::unique_ptr<Transport>> create(int rank, int ranks, AddressLookup lookup) {
    static verbs::Library few;
    few = **verbs::Library::get();
    few.create_qp = create_qp;
    few.destroy_qp = destroy_qp;
    VerbsOptions limited = options(rank);
    if (rank == limited_rank) limited.library = &few;
    return create_with(limited, rank, ranks, std::move(lookup));
  }
};

TEST_F(VerbsBadInput, ADeviceWithoutMoreQueuePairsFailsTheMessagesOfBothRanksAndKeepsNone) {
  for (const int limited : {0, 1}) {  // who dials, and who is dialled
    SCOPED_TRACE(limited);
    FewPairs::limited_rank = limited;
    FewPairs::left = 1;  // the second rail gets none
    FewPairs::made = FewPairs::destroyed = 0;
    Fabric<FewPairs> fabric(2);
    Message message(0, 1, 1, 100);
    (void)message.recv(fabric);
    (void)message.send(fabric);
    ASSERT_TRUE(fabric.drive_until([&] { return message.sending.finished(); }));
    expect_said(message.sending.status,
                {"rank 1", "creating a queue pair for rank ", limited == 0 ? "n0r1 port 1" : "n1r1 port 1",
                 "the device has ", "Cannot allocate memory"});
    if (limited == 1) {
      expect_said(message.sending.status, {"it refused the connection"});
      ASSERT_TRUE(fabric.finish(message.receiving));
      expect_said(message.receiving.status, {"rank 0", "creating a queue pair"});
    }
    EXPECT_EQ(FewPairs::made, 1);
    EXPECT_EQ(FewPairs::destroyed, 1);
  }
}

/// libibverbs, for a device that takes no bytes with a request: small messages need slots, too.
struct WithoutInline : Verbs {
  static ibv_qp* create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
    ibv_qp* pair = (*verbs::Library::get())->create_qp(domain, attributes);
    attributes->cap.max_inline_data = 0;
    return pair;
  }
  static Result<std::unique_ptr<Transport>> create(int rank, int ranks, AddressLookup lookup) {
    static verbs::Library library;
    library = **verbs::Library::get();
    library.create_qp = create_qp;
    VerbsOptions options = Verbs::options(rank);
    options.ports.most = 1;
    options.library = &library;
    return create_with(options, rank, ranks, std::move(lookup));
  }
};

TEST_F(VerbsBadInput, ADeviceThatTakesNoBytesWithARequestMakesThemWaitForASlot) {
  Fabric<WithoutInline> fabric(3);
  std::deque<Message> messages;
  const auto post = [&](int destination, size_t bytes) {
    messages.emplace_back(0, destination, messages.size(), bytes);
    ASSERT_TRUE(messages.back().recv(fabric).ok());
    ASSERT_TRUE(messages.back().send(fabric).ok());
  };
  for (const int destination : {1, 2}) post(destination, 10);  // connects
  ASSERT_TRUE(fabric.drive_until([&] { return std::ranges::all_of(messages, &Message::finished); }));
  for (int i = 0; i < 300; ++i) post(1, 3000);  // takes all slots of the rail
  ASSERT_FALSE(messages.back().sending.finished());
  // What rank 0 says now (where it wants a message) needs one, and the next send looks whether it can go.
  Message large(2, 0, 1000, 1 << 20);
  ASSERT_TRUE(large.recv(fabric).ok());
  ASSERT_TRUE(large.send(fabric).ok());
  post(2, 1 << 20);
  ASSERT_TRUE(fabric.drive_until(
      [&] { return large.finished() && std::ranges::all_of(messages, &Message::finished); }));
  large.expect_arrived();
  for (const Message& message : messages) message.expect_arrived();
}

/// libibverbs, for a device that takes nothing more from rank 1 once `refuses` is set.
struct Refusing : Verbs {
  static inline bool refuses = false;
  static inline int (*post)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;

  static int post_send(ibv_qp* pair, ibv_send_wr* work, ibv_send_wr** refused) {
    return refuses ? ENOMEM : post(pair, work, refused);
  }
  static ibv_qp* create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
    ibv_qp* pair = (*verbs::Library::get())->create_qp(domain, attributes);
    auto*& post_of_device = pair->context->ops.post_send;
    if (post_of_device != post_send) post = std::exchange(post_of_device, post_send);
    return pair;
  }
  static Result<std::unique_ptr<Transport>> create(int rank, int ranks, AddressLookup lookup) {
    static verbs::Library library;
    library = **verbs::Library::get();
    library.create_qp = create_qp;
    VerbsOptions options = Verbs::options(rank);
    if (rank == 1) options.library = &library;
    return create_with(options, rank, ranks, std::move(lookup));
  }
};

TEST_F(VerbsBadInput, ADeviceThatRefusesTheWordOfWhatWasTakenEndsEachReceiveOnce) {
  constexpr size_t bytes = 8000;
  for (const size_t room : {bytes, bytes / 2})  // the messages fit, or are too long
    for (const bool posted_first : {true, false}) {
      SCOPED_TRACE(testing::Message() << "room for " << room << ", posted first: " << posted_first);
      Fabric<Refusing> fabric(2);
      Message hello(0, 1, 1000, 1);
      ASSERT_TRUE(hello.recv(fabric).ok());
      ASSERT_TRUE(hello.send(fabric).ok());
      ASSERT_TRUE(fabric.finish(hello.receiving));
      Refusing::refuses = true;
      std::deque<Message>
          messages;  // more than half of what may wait at a receiver, which has to say so then
      for (MessageKey key = 0; key < 100; ++key) messages.emplace_back(0, 1, key, bytes);
      const auto receive = [&](Message& it) {
        (void)fabric[1].recv(0, it.key, it.received.data(), room, it.receiving);
      };
      if (posted_first) std::ranges::for_each(messages, receive);
      for (Message& message : messages) ASSERT_TRUE(message.send(fabric).ok());
      fabric.settle();
      if (!posted_first) std::ranges::for_each(messages, receive);
      ASSERT_TRUE(fabric.drive_until([&] {
        return std::ranges::all_of(messages, [](const Message& it) { return it.receiving.finished(); });
      }));
      const auto done = std::ranges::count_if(
          messages, [](const Message& it) { return it.receiving.state == Completion::State::done; });
      EXPECT_EQ(done > 50, room == bytes);
      EXPECT_EQ(fabric[1].counters().messages_received, static_cast<uint64_t>(done) + 1);
      Completion later;
      EXPECT_EQ(fabric[1].recv(0, 2000, nullptr, 0, later).code(), Code::system_error);
      Refusing::refuses = false;
    }
}

/// libibverbs, for a device with completion queues of 64.
struct FewCompletions : Verbs {
  static int query_device(ibv_context* context, ibv_device_attr* attributes) {
    const int failed = (*verbs::Library::get())->query_device(context, attributes);
    attributes->max_cqe = 64;
    return failed;
  }
  static Result<std::unique_ptr<Transport>> create(int rank, int ranks, AddressLookup lookup) {
    static verbs::Library library;
    library = **verbs::Library::get();
    library.query_device = query_device;
    VerbsOptions options = Verbs::options(rank);
    options.ports.most = 1;
    options.library = &library;
    return create_with(options, rank, ranks, std::move(lookup));
  }
};

TEST_F(VerbsBadInput, ADeviceWithSmallCompletionQueuesServesManyPeers) {
  // More requests than the queue has room for, and of no queue pair so many that one asked for its completion for that alone.
  Fabric<FewCompletions> fabric(5);
  std::deque<Message> messages;
  for (int destination = 1; destination < 5; ++destination)
    for (int i = 0; i < 20; ++i) messages.emplace_back(0, destination, messages.size(), 10);
  for (Message& message : messages) {
    ASSERT_TRUE(message.recv(fabric).ok());
    ASSERT_TRUE(message.send(fabric).ok());
  }
  ASSERT_TRUE(fabric.drive_until([&] { return std::ranges::all_of(messages, &Message::finished); }));
  for (const Message& message : messages) message.expect_arrived();
}

}  // namespace
}  // namespace epccl::transports
