// Proof that both ends of a control line hold the secret of the id, without sending it.
//
//   rank                                hub
//    | hello: nonce a                    |
//    |---------------------------------->|
//    |   challenge: nonce b, HMAC(secret, "hub" a b)       the rank knows the hub
//    |<----------------------------------|
//    | join: HMAC(secret, "rank" a b claims), claims       the hub knows the rank, and what it claims to be
//    |---------------------------------->|
//
// The nonces are fresh, so nothing recorded can be replayed. Later frames are neither encrypted nor signed:
// whoever can alter TCP connections of the cluster's network is outside of what this protects against.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "base/status.hpp"

namespace epccl::runtime {

using Secret = std::array<std::byte, 32>;
using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;

/// Must succeed once before anything else here is used; cheap to call again.
Status start_crypto();

/// Fills with random bytes.
void randomize(std::span<std::byte> bytes);

Proof hub_proof(const Secret& secret, const Nonce& of_rank, const Nonce& of_hub);
Proof rank_proof(const Secret& secret, const Nonce& of_rank, const Nonce& of_hub,
                 std::span<const std::byte> claims);

/// Takes the same time wherever the difference is.
bool same_proof(const Proof& a, const Proof& b);

}  // namespace epccl::runtime
