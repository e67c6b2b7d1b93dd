// What ranks show each other when they connect, and whose connection stays when both connect at once.
//
//   dialler                                         acceptor
//     ---- Hello: acceptor's cookie, who, to whom --->   a wrong one: closed, logged, no effect
//     <--- verdict, if the dialler is the higher rank    (the lower rank's connection always stays)
//
// Each pair of ranks shares one connection. When both dial at once, the one that the lower rank dialled stays: the lower
// rank declines the other, the higher takes it and drops its own. So a lower rank may send data right behind its Hello,
// while a higher one waits for the verdict. A lane is a connection of its own, and always waits.
#pragma once

#include <array>
#include <cstdint>

#include "transports/peer_address.hpp"

namespace epccl::transports::tcp {

using Address = PeerAddress;

struct Hello {
  static constexpr std::array<char, 8> expected_magic{'E', 'P', 'C', 'C', 'L', 'T', 'C', '2'};
  std::array<char, 8> magic = expected_magic;
  Cookie cookie{};
  int32_t from = -1, to = -1;
  int32_t lane = 0;  // 1: a lane (lane.hpp), not the pair's connection
};

enum class Verdict : char { welcome = 'y', declined = 'n' };

}  // namespace epccl::transports::tcp
