// Which job this process belongs to, among all jobs of this machine and of others that share its disks and
// ports.
#pragma once

#include <string>

#include "base/status.hpp"
#include "runtime/bootstrap/launch_env.hpp"

namespace epccl::runtime {

/// Text that is equal on all ranks of one job of one machine and different for every other job, also for one
/// that ended: what job_identity() has, and what the launcher gives to one job only: an id in the environment, or its process
/// above this rank, by number, start time and PID namespace. Who has neither must not guess: an error says what was looked
/// for. A parent that is no launcher (a shell, a daemon, the first process of a container) may have started several jobs.
Result<std::string> local_job_identity(const LaunchEnv& env);

/// Text that is equal on all ranks of one job on any number of machines: user, number of ranks, launcher, EPCCL_JOB_KEY, and those ids
/// of the job that its launcher gives to every rank alike. What only some ranks inherit is not in it.
std::string job_identity(const LaunchEnv& env);

/// The step of Slurm's that is among these ids, for messages; "" where none is.
std::string step_of_job(const LaunchEnv& env);

/// Whether such an id, or the key, is there: else job_identity() is that of any job of this user by that launcher and with as many ranks.
bool is_told_apart(const LaunchEnv& env);

/// Whether the launcher's environment says or implies that all ranks are on this node. Unknown counts as yes
/// when nothing points to several.
bool on_one_node(const LaunchEnv& env);

}  // namespace epccl::runtime
