// The other side of peer_process.hpp: message_peer tcp|ucx|verbs RANK RANKS answer|half_message
#include <sys/prctl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "makers.hpp"
#include "peer_process.hpp"

using namespace epccl;
using namespace epccl::transports;

namespace {

void finish(MessageTransport& transport, const Completion& completion) {
  while (!completion.finished()) transport.progress();
}

void asleep_until_killed() {
  for (;;) ::pause();
}

template <typename Maker>
int run(int rank, int ranks, const char* behaviour) {
  std::vector<std::byte> other;
  auto created = Maker::create(rank, ranks, [&](int) -> Result<std::vector<std::byte>> { return other; });
  if (!created.ok()) {
    std::fprintf(stderr, "%s\n", created.status().message().c_str());
    return 1;
  }
  auto& transport = **created;
  write_blob(STDOUT_FILENO, transport.address());
  other = read_blob(STDIN_FILENO);

  char greeting[16] = {};
  Completion hello, farewell, answer;
  if (!transport.recv(0, PeerProcess::hello_key, greeting, sizeof greeting, hello).ok()) return 1;
  finish(transport, hello);
  if (std::strcmp(behaviour, "half_message") == 0) {
    const std::vector<char> large(64 << 20, 'x');
    (void)transport.send(0, PeerProcess::answer_key, large.data(), large.size(), answer);
    for (;;) transport.progress();
  }
  if (!transport.send(0, PeerProcess::farewell_key, greeting, 8, farewell).ok()) return 1;
  if (!transport.send(0, PeerProcess::answer_key, greeting, sizeof greeting, answer).ok()) return 1;
  finish(transport, farewell);
  finish(transport, answer);
  asleep_until_killed();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that dies leaves nothing behind
  if (argc != 5) return 2;
  const std::string transport = argv[1];
  const int rank = std::atoi(argv[2]), ranks = std::atoi(argv[3]);
#ifdef EPCCL_WITH_UCX
  if (transport == Ucx::name) return run<Ucx>(rank, ranks, argv[4]);
#endif
#ifdef EPCCL_WITH_VERBS
  if (transport == Verbs::name) return run<Verbs>(rank, ranks, argv[4]);
#endif
  if (transport == Tcp::name) return run<Tcp>(rank, ranks, argv[4]);
  return 2;
}
