// The processes above this one, as /proc tells of them.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace epccl::runtime {

struct Ancestor {
  pid_t pid = 0;
  std::string name;        // what the kernel keeps of it: 15 characters
  std::string start_time;  // clock ticks since boot
};

/// From the parent on, as far as they can be seen from this process's PID namespace.
std::vector<Ancestor> ancestors();

/// Whether /proc has the numbers that processes have here: it may be that of the PID namespace around this one.
bool proc_has_our_numbers();

/// What a process shows as its first argument: some write there what they do. "" where that cannot be read.
std::string title_of(pid_t pid);

}  // namespace epccl::runtime
