#include "runtime/bootstrap/unique_id.hpp"

#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/settings.hpp"
#include "runtime/bootstrap/rendezvous.hpp"

namespace epccl::runtime {
namespace {

constexpr std::string_view id_magic = "EPCCL-ID";
constexpr std::byte id_version{1};
constexpr size_t version_at = 8, port_at = 10, scope_at = 12, address_at = 16, secret_at = 32,
                 checksum_at = 112;
static_assert(mark_of_bindings_at > version_at && mark_of_bindings_at < port_at);

std::array<std::byte, 16> checksum(const UniqueId& id) {
  std::array<std::byte, 16> sum{};
  crypto_generichash(reinterpret_cast<unsigned char*>(sum.data()), sum.size(),
                     reinterpret_cast<const unsigned char*>(id.bytes.data()), checksum_at, nullptr, 0);
  return sum;
}

}  // namespace

UniqueId encode(const Rendezvous& rendezvous) {
  UniqueId id;
  std::byte* bytes = id.bytes.data();
  const net::Endpoint& endpoint = rendezvous.endpoint;
  std::memcpy(bytes, id_magic.data(), id_magic.size());
  bytes[version_at] = id_version;
  for (size_t i = 0; i < 2; ++i) bytes[port_at + i] = static_cast<std::byte>(endpoint.port >> (8 * i));
  for (size_t i = 0; i < 4; ++i) bytes[scope_at + i] = static_cast<std::byte>(endpoint.scope >> (8 * i));
  std::memcpy(bytes + address_at, endpoint.address.data(), endpoint.address.size());
  std::memcpy(bytes + secret_at, rendezvous.secret.data(), rendezvous.secret.size());
  const auto sum = checksum(id);
  std::memcpy(bytes + checksum_at, sum.data(), sum.size());
  return id;
}

Result<Rendezvous> decode(const UniqueId& id) {
  const std::byte* bytes = id.bytes.data();
  if (std::memcmp(bytes, id_magic.data(), id_magic.size()) != 0) {
    const bool zeros =
        std::all_of(id.bytes.begin(), id.bytes.end(), [](std::byte b) { return b == std::byte{0}; });
    return error(
        Code::invalid_argument, "not a unique id: it {}",
        zeros ? "is all zeros (was it received from the rank that made it?)" : "does not start as one");
  }
  if (bytes[version_at] != id_version)
    return error(Code::invalid_argument, "a unique id of version {}, this library reads version {}",
                 static_cast<int>(bytes[version_at]), static_cast<int>(id_version));
  const auto sum = checksum(id);
  if (std::memcmp(bytes + checksum_at, sum.data(), sum.size()) != 0)
    return error(Code::invalid_argument, "a damaged unique id: its checksum does not match");
  Rendezvous out;
  for (size_t i = 0; i < 2; ++i)
    out.endpoint.port =
        static_cast<uint16_t>(out.endpoint.port | static_cast<unsigned>(bytes[port_at + i]) << (8 * i));
  for (size_t i = 0; i < 4; ++i) out.endpoint.scope |= static_cast<uint32_t>(bytes[scope_at + i]) << (8 * i);
  std::memcpy(out.endpoint.address.data(), bytes + address_at, out.endpoint.address.size());
  std::memcpy(out.secret.data(), bytes + secret_at, out.secret.size());
  return out;
}

Status check_unique_id(const UniqueId& id) {
  return decode(id).status();
}

uint64_t digest(std::span<const UniqueId> ids) {
  uint64_t number = 0;
  std::array<unsigned char, crypto_generichash_BYTES> sum{};
  crypto_generichash(sum.data(), sum.size(), reinterpret_cast<const unsigned char*>(ids.data()),
                     ids.size_bytes(), nullptr, 0);
  std::memcpy(&number, sum.data(), sizeof number);
  return number;
}

std::string this_host() {
  if (auto named = settings::get_explicit("EPCCL_HOSTID")) return *std::move(named);
  char buffer[256] = {};
  return gethostname(buffer, sizeof buffer - 1) == 0 ? buffer : "unknown";
}

}  // namespace epccl::runtime
