// Threads of the library.
#pragma once

#include <functional>
#include <thread>

namespace epccl {

/// Signals of the program are handled on its own threads, never on this one; only what this thread does wrong itself (SIGSEGV and
/// the like) reaches the program's handlers here. Throws std::system_error where the system gives no thread.
std::thread start_thread(std::function<void()> run);

}  // namespace epccl
