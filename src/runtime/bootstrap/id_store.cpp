#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/clock.hpp"
#include "base/file_size.hpp"
#include "base/unique_fd.hpp"
#include "runtime/bootstrap/handshake.hpp"
#include "runtime/bootstrap/id_exchange.hpp"
#include "runtime/bootstrap/old_stores.hpp"
#include "runtime/bootstrap/overdue.hpp"

namespace epccl::runtime {
namespace {

constexpr double first_pause = 0.001, longest_pause = 0.02;  // seconds between looks
constexpr double renewal_pause = 0.25;                       // seconds between looks past what is cached

using Ask = Nonce;
struct Reply {
  Nonce nonce;
  UniqueId id;
};
static_assert(sizeof(Reply) == 160);

/// What the files of one job and attempt are called.
class Names {
 public:
  Names(const IdStore& store, int attempt)
      : tail_(fmt::format("{}{}{}.", store.job, store.job.empty() ? "" : ".", attempt)) {}

  std::string ask(int rank) const { return fmt::format("ask.{}{}", tail_, rank); }
  std::string id(int rank) const { return fmt::format("id.{}{}", tail_, rank); }

 private:
  std::string tail_;
};

/// Opens the directory, after making it if asked to. It must be the user's own, and writable by nobody else:
/// otherwise whoever writes there could send the ranks to a rendezvous of his own.
Result<UniqueFd> open_once(const IdStore& store) {
  if (store.create && mkdir(store.directory.c_str(), 0700) != 0 && errno != EEXIST)
    return system_error(errno, "making " + store.directory);
  const int no_links = store.create ? O_NOFOLLOW : 0;
  UniqueFd fd(open(store.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | no_links));
  if (!fd)
    return system_error(errno, fmt::format("opening directory {} to exchange the id", store.directory));
  struct stat about {};
  if (fstat(fd.get(), &about) != 0) return system_error(errno, "looking at " + store.directory);
  if (about.st_uid != geteuid())
    return error(Code::invalid_usage,
                 "directory {} belongs to user {}, not to {}: not used to exchange the id", store.directory,
                 about.st_uid, geteuid());
  if ((about.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return error(Code::invalid_usage, "directory {} (mode {:o}) is writable by others: chmod go-w it",
                 store.directory, about.st_mode & 07777u);
  return fd;
}

/// The same, and keeps a private one from being cleared away while it is open (old_stores.hpp).
Result<UniqueFd> open_directory(const IdStore& store) {
  constexpr int tries = 3;  // once removed it is made anew; no file system's idea of links may end that never
  for (int left = tries;; --left) {
    EPCCL_ASSIGN(UniqueFd fd, open_once(store));
    if (!store.create || hold_private_directory(fd.get()) || left == 0) return fd;
  }
}

Status write_new_file(int directory, const std::string& name, const void* data, size_t bytes) {
  const UniqueFd fd(
      openat(directory, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return system_error(errno, "creating file " + name);
  const NoFileSizeSignal none;
  const ssize_t written = ::write(fd.get(), data, bytes);
  if (written < 0) return system_error(errno, "writing file " + name);
  if (written != static_cast<ssize_t>(bytes))
    return error(Code::system_error, "writing file {}: {} of {} bytes, the file system is full", name,
                 written, bytes);
  return {};
}

/// Whole or not at all.
Status write_file(int directory, const std::string& name, const void* data, size_t bytes) {
  const std::string temporary = fmt::format(".{}.{}", name, getpid());
  unlinkat(directory, temporary.c_str(), 0);
  Status status = write_new_file(directory, temporary, data, bytes);
  if (status.ok() && renameat(directory, temporary.c_str(), directory, name.c_str()) != 0)
    status = system_error(errno, "renaming file " + temporary);
  if (!status.ok()) unlinkat(directory, temporary.c_str(), 0);
  return status;
}

/// A file of exactly this size, else nothing.
template <typename T>
std::optional<T> read_file(int directory, const std::string& name) {
  const UniqueFd fd(openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  std::array<std::byte, sizeof(T) + 1> bytes;
  if (!fd || ::read(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(sizeof(T)))
    return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

bool exists(int directory, const std::string& name) {
  return faccessat(directory, name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/// A network file system remembers what a directory has and has not, NFS for 30 seconds and more (acdirmin): as long as ranks look.
/// Who asks for the directory's attributes as the server has them now has those memories dropped, if it has changed.
class Renewal {
 public:
  void renew(int directory) {
    if (now_seconds() < next_) return;
    next_ = now_seconds() + renewal_pause;
    struct statx about {};
    static_cast<void>(statx(directory, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &about));
  }

 private:
  double next_ = 0;
};

void pause(double& seconds) {
  poll(nullptr, 0, static_cast<int>(std::ceil(seconds * 1e3)));
  seconds = std::min(longest_pause, seconds * 1.5);
}

/// What rank 0 knows of one other rank.
struct Served {
  std::optional<Nonce> answered;
  bool taken = false;
};

/// One look at a rank's mailbox.
Status serve(int directory, const UniqueId& id, const Names& names, int rank, Served& served) {
  const auto ask = read_file<Ask>(directory, names.ask(rank));
  if (ask && ask != served.answered) {
    const Reply reply{*ask, id};
    EPCCL_TRY(write_file(directory, names.id(rank), &reply, sizeof reply));
    served.answered = ask;
  } else if (served.answered && !exists(directory, names.id(rank))) {
    served.taken = true;
  }
  return {};
}

/// What else is asked for there, for a rank that nobody met: the youngest, since what a killed job leaves in a store stays. How old a
/// file may be to count is not said: clocks of servers differ.
std::string others_in(const IdStore& store, const Names& names) {
  std::error_code ended;
  const std::string own = names.ask(0);
  const std::string ours = own.substr(0, own.rfind('.') + 1);
  std::string youngest;
  std::filesystem::file_time_type its_time;
  for (std::filesystem::directory_iterator each(store.directory, ended), end; !ended && each != end;
       each.increment(ended)) {
    const std::string name = each->path().filename();
    if (!name.starts_with("ask.") || name.starts_with(ours)) continue;
    std::error_code gone;
    const auto time = each->last_write_time(gone);
    if (gone || (!youngest.empty() && time <= its_time)) continue;
    youngest = name;
    its_time = time;
  }
  if (youngest.empty()) return "";
  return fmt::format(
      "; {} is there, and not one of {}*: of another job (perhaps left by one that was killed), or of ranks "
      "that count communicators otherwise",
      youngest, ours);
}

std::string missing_in(const std::vector<Served>& served) {
  std::string missing;
  for (size_t rank = 1; rank < served.size(); ++rank) {
    if (!served[rank].taken) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
  }
  return missing;
}

}  // namespace

Status IdStore::look() const {
  return open_directory(*this).status();
}

Status IdStore::give(const UniqueId& id, int ranks, int attempt, double timeout) const {
  EPCCL_ASSIGN(const UniqueFd fd, open_directory(*this));
  const Names names(*this, attempt);
  const double deadline = now_seconds() + timeout;
  std::vector<Served> served(static_cast<size_t>(ranks));
  served[0].taken = true;
  int left = ranks - 1;
  Renewal renewal;
  Overdue overdue(0, timeout);
  for (double wait = first_pause; left > 0;) {
    renewal.renew(fd.get());
    for (int rank = 1; rank < ranks; ++rank) {
      Served& each = served[static_cast<size_t>(rank)];
      if (each.taken) continue;
      EPCCL_TRY(serve(fd.get(), id, names, rank, each).with_context("rank 0: " + directory));
      if (each.taken) --left, wait = first_pause;
    }
    if (left == 0 || now_seconds() >= deadline) break;
    overdue.look([&] {
      return fmt::format("for ranks to come for the id in {}; missing: {}", directory, missing_in(served));
    });
    pause(wait);
  }
  // Answers that nobody took: whoever asked has given up, or does.
  for (int rank = 1; rank < ranks; ++rank)
    if (const Served& each = served[static_cast<size_t>(rank)]; each.answered && !each.taken)
      for (const std::string& name : {names.ask(rank), names.id(rank)}) unlinkat(fd.get(), name.c_str(), 0);
  if (create) rmdir(directory.c_str());  // fails while ranks exchange the next id: then they remove it
  if (left == 0) return {};
  return error(Code::remote_error, Reason::timeout,
               "rank 0: {} of {} ranks came for the id in {} within {} s; missing: {}{}", ranks - left, ranks,
               directory, timeout, missing_in(served), others_in(*this, names));
}

Result<UniqueId> IdStore::take(int rank, int attempt, double timeout) const {
  const double deadline = now_seconds() + timeout;
  const Names names(*this, attempt);
  const std::string ask = names.ask(rank), answer = names.id(rank);
  Nonce nonce;
  randomize(nonce);
  Status asked;
  Renewal renewal;
  Overdue overdue(rank, timeout);
  const auto waits_for = [&] { return fmt::format("for rank 0 to leave the id in {}", directory); };
  for (double wait = first_pause; now_seconds() < deadline; pause(wait)) {
    // Rank 0 removes a directory it has finished with, perhaps just before this rank comes for the next id:
    // hence the loop, and the question that is written again when it is gone.
    EPCCL_ASSIGN(const UniqueFd fd, open_directory(*this));
    overdue.look(waits_for);
    asked = write_file(fd.get(), ask, nonce.data(), nonce.size())
                .with_context(fmt::format("rank {}: {}", rank, directory));
    if (!asked.ok() && !create) return asked;
    for (; now_seconds() < deadline && exists(fd.get(), ask); pause(wait)) {
      renewal.renew(fd.get());
      overdue.look(waits_for);
      const auto reply = read_file<Reply>(fd.get(), answer);
      if (!reply || reply->nonce != nonce) continue;
      unlinkat(fd.get(), ask.c_str(), 0);
      unlinkat(fd.get(), answer.c_str(), 0);
      return reply->id;
    }
    if (now_seconds() >= deadline) unlinkat(fd.get(), ask.c_str(), 0);
  }
  if (create) rmdir(directory.c_str());
  const std::string reason = asked.ok() ? "" : " (" + asked.message() + ")";
  return error(Code::remote_error, Reason::timeout, "rank {}: rank 0 left no id in {} within {} s{}", rank,
               directory, timeout, reason);
}

}  // namespace epccl::runtime
