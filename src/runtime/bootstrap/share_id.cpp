// Chooses how the id of rank 0 reaches the other ranks; see launch_env.hpp.
#include <fcntl.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <variant>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/settings.hpp"
#include "runtime/bootstrap/handshake.hpp"
#include "runtime/bootstrap/id_exchange.hpp"
#include "runtime/bootstrap/launch_env.hpp"
#include "runtime/bootstrap/launcher_job.hpp"
#include "runtime/bootstrap/old_stores.hpp"

namespace epccl::runtime {
namespace {

using Way = std::variant<IdStore, IdHandOut>;
constexpr int ports_tried = 8;

std::string short_hash(const std::string& text) {
  std::array<unsigned char, 16> hash;
  crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(text.data()),
                     text.size(), nullptr, 0);
  std::string out;
  for (const unsigned char byte : hash) out += fmt::format("{:02x}", byte);
  return out;
}

std::string temporary_folder() {
  const char* named = std::getenv("TMPDIR");
  return named && *named ? named : "/tmp";
}

Result<Way> hand_out_near(const std::string& address, const char* variable, const LaunchEnv& env,
                          int attempt) {
  auto parsed = net::parse_host_port(address);
  if (!parsed.ok()) return std::move(parsed).take_status().with_context(variable);
  IdHandOut way;
  way.host = parsed->host;
  way.identity = fmt::format("{}, at {}, attempt {}", job_identity(env), address, attempt);
  if (settings::get_explicit("EPCCL_MASTER_PORT")) {
    EPCCL_ASSIGN(const int64_t port, settings::get_integer("EPCCL_MASTER_PORT"));
    if (port < 1 || port > 65535)
      return error(Code::invalid_argument, "EPCCL_MASTER_PORT={} is not a port", port);
    way.ports.push_back(static_cast<uint16_t>(port));
    return Way(std::move(way));
  }
  for (int i = 1; i <= ports_tried && parsed->port != 0 && parsed->port + i <= 65535; ++i)
    way.ports.push_back(static_cast<uint16_t>(parsed->port + i));
  if (way.ports.empty())
    return error(Code::invalid_argument, "{}={} leaves no port to hand out the id", variable, address);
  return Way(std::move(way));
}

/// What a user of several nodes can do. A pair of MASTER_ADDR and MASTER_PORT serves several jobs; a store does where something
/// tells them apart; EPCCL_COMM_ID's port is one job's.
Status no_place_to_meet(const LaunchEnv& env) {
  const bool is_slurm = env.launcher == "slurm";
  return error(Code::invalid_usage,
               "rank {}: {} started {} ranks on several nodes and names no place to meet: set MASTER_ADDR to "
               "the host of rank 0 and MASTER_PORT to a port there{}, or EPCCL_STORE to a private directory "
               "that all nodes share, one for each {}, or EPCCL_COMM_ID to host:port of rank 0, a port for "
               "each job",
               env.rank, env.launcher, env.ranks,
               is_slurm ? " (before srun: export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | "
                          "head -1) MASTER_PORT=29500)"
                        : "",
               is_slurm ? "srun" : "job");
}

Result<Way> choose(const LaunchEnv& env, int attempt) {
  if (auto directory = settings::get_explicit("EPCCL_STORE"))
    return Way(IdStore{*std::move(directory), false,
                       is_told_apart(env) ? short_hash(job_identity(env)) : std::string()});
  if (auto address = settings::get_explicit("EPCCL_COMM_ID"))
    return hand_out_near(*address, "EPCCL_COMM_ID", env, attempt);
  if (!env.rendezvous.empty()) return hand_out_near(env.rendezvous, "MASTER_ADDR:MASTER_PORT", env, attempt);
  if (!on_one_node(env)) return no_place_to_meet(env);
  EPCCL_ASSIGN(const std::string identity, local_job_identity(env));
  return Way(IdStore{
      fmt::format("{}/{}{}", temporary_folder(), start_of_private_names(), short_hash(identity)), true, ""});
}

/// A wrong guess about either is seen only by who is told of it.
std::string what_to_doubt(const LaunchEnv& env) {
  const std::string step = step_of_job(env);
  return fmt::format("{}{}{}{}", step.empty() ? "" : "; taken for a job of ", step,
                     env.contradiction.empty() ? "" : "; ", env.contradiction);
}

// What rank 0 gives that has none.
constexpr UniqueId no_id{};
constexpr double longest_bad_news = 5;  // seconds that it waits for others to come for that

Result<UniqueId> share(const LaunchEnv& env, const Way& way, double timeout, int attempt) {
  const auto* store = std::get_if<IdStore>(&way);
  const auto* hand_out = std::get_if<IdHandOut>(&way);
  log::info(log::init, env.rank, "rank {} of {} by {}: id through {}", env.rank, env.ranks, env.launcher,
            store ? store->directory : hand_out->host);
  if (env.rank != 0) {
    EPCCL_ASSIGN(const UniqueId taken,
                 store ? store->take(env.rank, attempt, timeout) : hand_out->take(env.rank, timeout));
    if (taken.bytes != no_id.bytes) return taken;
    return error(Code::remote_error, "rank {}: rank 0 could not make an id for the communicator", env.rank);
  }
  const auto give = [&](const UniqueId& id, double patience) {
    return store ? store->give(id, env.ranks, attempt, patience) : hand_out->give(id, env.ranks, patience);
  };
  Result<UniqueId> id = create_unique_id();
  if (!id.ok()) {
    // The others need not wait until their time is up.
    static_cast<void>(give(no_id, std::min(timeout, longest_bad_news)));
    return id;
  }
  const Status given = give(*id, timeout);
  if (store && store->create && attempt == 0) remove_old_stores(temporary_folder());
  if (given.ok()) return id;
  discard_unique_id(*id, given.message());
  return given;
}

}  // namespace

Result<UniqueId> share_unique_id(const LaunchEnv& env, double timeout, int attempt) {
  EPCCL_TRY(start_crypto());
  if (env.ranks == 1) {
    // It may be so: a torchrun of one, in a task of several.
    if (!env.contradiction.empty())
      log::warn(log::init, env.rank, "this process is a job of one rank: {}", env.contradiction);
    return create_unique_id();
  }
  EPCCL_ASSIGN(const Way way, choose(env, attempt));
  if (!env.contradiction.empty()) log::info(log::init, env.rank, "rank {}: {}", env.rank, env.contradiction);
  Result<UniqueId> id = share(env, way, timeout, attempt);
  const Status& why = id.status();
  if (id.ok() || why.reason() != Reason::timeout) return id;
  return error(why.code(), why.reason(), "{}{}", why.message(), what_to_doubt(env));
}

Result<MeetingPlace> meeting_place(const LaunchEnv& env) {
  EPCCL_TRY(start_crypto());
  if (env.ranks == 1) return MeetingPlace{"nowhere: this process is alone", ""};
  EPCCL_ASSIGN(const Way way, choose(env, 0));
  if (const auto* store = std::get_if<IdStore>(&way)) {
    if (!store->create) EPCCL_TRY(store->look());
    const std::string folder = temporary_folder();
    if (store->create && faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
      return system_error(errno, fmt::format("making a directory in {} (TMPDIR)", folder));
    return MeetingPlace{"directory " + store->directory, ""};
  }
  const auto& hand_out = std::get<IdHandOut>(way);
  EPCCL_TRY(net::resolve(hand_out.host, 0).status());
  return MeetingPlace{fmt::format("port {} of {}{}", hand_out.ports.front(), hand_out.host,
                                  hand_out.ports.size() > 1 ? ", or one of the next" : ""),
                      env.rank == 0 ? hand_out.doubt_about_host() : ""};
}

}  // namespace epccl::runtime
