// The other side of peer_process.hpp: ucx_peer RANK RANKS answer|half_message
#include <sys/prctl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "peer_process.hpp"
#include "transports/ucx/ucx_transport.hpp"

using namespace epccl;
using namespace epccl::transports;

namespace {

void finish(UcxTransport& transport, const Completion& completion) {
  while (!completion.finished()) transport.progress();
}

void asleep_until_killed() {
  for (;;) ::pause();
}

}  // namespace

int main(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that dies leaves nothing behind
  if (argc != 4) return 2;
  std::vector<std::byte> other;
  auto created = UcxTransport::create(std::atoi(argv[1]), std::atoi(argv[2]),
                                      [&](int) -> Result<std::vector<std::byte>> { return other; });
  if (!created.ok()) {
    std::fprintf(stderr, "%s\n", created.status().message().c_str());
    return 1;
  }
  UcxTransport& transport = **created;
  write_blob(STDOUT_FILENO, transport.address());
  other = read_blob(STDIN_FILENO);

  char greeting[16] = {};
  Completion hello, farewell, answer;
  if (!transport.recv(0, PeerProcess::hello_key, greeting, sizeof greeting, hello).ok()) return 1;
  finish(transport, hello);
  if (std::strcmp(argv[3], "half_message") == 0) {
    const std::vector<char> large(64 << 20, 'x');
    (void)transport.send(0, PeerProcess::answer_key, large.data(), large.size(), answer);
    for (;;) transport.progress();
  }
  if (!transport.send(0, PeerProcess::farewell_key, greeting, 8, farewell).ok()) return 1;
  if (!transport.send(0, PeerProcess::answer_key, greeting, sizeof greeting, answer).ok()) return 1;
  finish(transport, farewell);
  finish(transport, answer);
  asleep_until_killed();
}
