// Processes that a job leaves when its ranks are gone: what they started and did not end.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

namespace epccl::launcher {

/// Children of this process that live.
std::vector<pid_t> children();

/// Processes of a job: those with "EPCCL_STORE=<store>" in their environment, and children of this process
/// (orphans come to it when it is a subreaper); without /proc only those are found. Without this process itself and `except`.
std::vector<pid_t> job_processes(const std::string& store, std::span<const pid_t> except);

/// Sends the signal to each; returns how many there were. The check and the signal cannot hit different
/// processes.
int signal_job_processes(const std::string& store, std::span<const pid_t> except, int signal);

}  // namespace epccl::launcher
