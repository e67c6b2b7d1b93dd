// Which job this process belongs to, among all jobs of this machine and of others that share its disks and
// ports.
#pragma once

#include <string>

#include "runtime/bootstrap/launch_env.hpp"

namespace epccl::runtime {

/// Text that is equal on all ranks of one job of one machine and different for every other job, also for one
/// that ended: user, launcher's job ids, and process id and start time of the launcher's process above this
/// rank.
std::string local_job_identity(const LaunchEnv& env);

/// Text that is equal on all ranks of one job on any number of machines, from what launchers tell every rank:
/// user, launcher's job ids, number of ranks, and EPCCL_JOB_KEY.
std::string job_identity(const LaunchEnv& env);

/// Whether the launcher's environment says or implies that all ranks are on this node. Unknown counts as yes
/// when nothing points to several.
bool on_one_node(const LaunchEnv& env);

}  // namespace epccl::runtime
