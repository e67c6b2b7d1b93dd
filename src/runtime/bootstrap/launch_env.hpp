// Who am I, according to the launcher that started this process.
#pragma once

#include <optional>
#include <string>

#include "base/status.hpp"
#include "runtime/bootstrap/unique_id.hpp"

namespace epccl::runtime {

struct LaunchEnv {
  std::string launcher;  // "epccl-run", "torchrun", "slurm", "openmpi", "mpich", "pmi", "pmix"
  int rank = 0;
  int ranks = 1;
  int local_rank = -1;        // -1: not told
  std::string rendezvous;     // "host:port" where the launcher names one (MASTER_ADDR:MASTER_PORT), else ""
  int local_ranks = -1;       // ranks on this node; -1: not told
  int nodes = -1;             // nodes of the job; -1: not told
  std::string contradiction;  // what speaks against all this, where it may still be right; else ""
};

/// Reads the environment of epccl-run, torchrun, Open MPI, MPICH, Slurm and PMI/PMIx, in this order. Empty optional
/// when none is there; an error when one is there and contradictory (rank without size, rank >= size, no number). Of torchrun's names,
/// which are anybody's, one without the other says nothing where another launcher's are complete; Slurm's say nothing to a batch script.
Result<std::optional<LaunchEnv>> launch_environment();

/// How ranks that only know their environment share the id of rank 0. The first of these that applies:
///   EPCCL_STORE                    mailbox files in that directory (epccl-run sets it), with the job's mark where its launcher tells
///                                  it from others
///   EPCCL_COMM_ID=host:port        rank 0 hands the id out over TCP at one of the eight ports after it
///   MASTER_ADDR and MASTER_PORT    as above; EPCCL_MASTER_PORT, where set, in place of the eight
///   one node                       mailbox files in a private directory under TMPDIR, named after the job; only where
///                                  something tells it from others (launcher_job.hpp)
/// Otherwise an error says what to set. Collective over env.ranks processes, within `timeout` seconds. `attempt`
/// distinguishes several communicators of one job: equal on all ranks, different for each call.
Result<UniqueId> share_unique_id(const LaunchEnv& env, double timeout, int attempt = 0);

struct MeetingPlace {
  std::string where;  // "directory D", "port P of HOST"
  std::string doubt;  // why others may not find rank 0, where this is it; else ""
};

/// Where that would be, as far as can be seen without the others; an error is one that all this would end with (the directory that
/// ranks of one node make is not made: only whether its folder lets this user). For those who want to
/// know beforehand.
Result<MeetingPlace> meeting_place(const LaunchEnv& env);

}  // namespace epccl::runtime
