#include "base/interrupt.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>

namespace epccl {

Result<std::shared_ptr<Interrupt>> Interrupt::create() {
  UniqueFd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return system_error(errno, "eventfd of an interrupt");
  return std::shared_ptr<Interrupt>(new Interrupt(std::move(event)));  // private constructor
}

void Interrupt::fire() {
  eventfd_write(event_.get(), 1);
}

bool Interrupt::fired() const {
  pollfd entry{event_.get(), POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

}  // namespace epccl
