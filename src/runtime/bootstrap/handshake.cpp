#include "runtime/bootstrap/handshake.hpp"

#include <sodium.h>

#include <string_view>

namespace epccl::runtime {
namespace {

static_assert(sizeof(Secret) == crypto_auth_hmacsha512256_KEYBYTES);
static_assert(sizeof(Proof) == crypto_auth_hmacsha512256_BYTES);

const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

Proof prove(const Secret& secret, std::string_view role, const Nonce& of_rank, const Nonce& of_hub,
            std::span<const std::byte> claims) {
  crypto_auth_hmacsha512256_state state;
  crypto_auth_hmacsha512256_init(&state, raw(secret.data()), secret.size());
  // The role keeps a proof of one side from being reflected as that of the other.
  crypto_auth_hmacsha512256_update(&state, reinterpret_cast<const unsigned char*>(role.data()), role.size());
  crypto_auth_hmacsha512256_update(&state, raw(of_rank.data()), of_rank.size());
  crypto_auth_hmacsha512256_update(&state, raw(of_hub.data()), of_hub.size());
  crypto_auth_hmacsha512256_update(&state, raw(claims.data()), claims.size());
  Proof proof;
  crypto_auth_hmacsha512256_final(&state, reinterpret_cast<unsigned char*>(proof.data()));
  return proof;
}

}  // namespace

Status start_crypto() {
  static const int result = sodium_init();
  if (result < 0)
    return error(Code::system_error, "libsodium cannot start: the system gives no random numbers");
  return {};
}

void randomize(std::span<std::byte> bytes) {
  randombytes_buf(bytes.data(), bytes.size());
}

Proof hub_proof(const Secret& secret, const Nonce& of_rank, const Nonce& of_hub) {
  return prove(secret, "epccl-hub", of_rank, of_hub, {});
}

Proof rank_proof(const Secret& secret, const Nonce& of_rank, const Nonce& of_hub,
                 std::span<const std::byte> claims) {
  return prove(secret, "epccl-rank", of_rank, of_hub, claims);
}

bool same_proof(const Proof& a, const Proof& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace epccl::runtime
