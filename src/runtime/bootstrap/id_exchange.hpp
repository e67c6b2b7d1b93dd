// Ways to bring the id of rank 0 to the other ranks of a job. All are collective, leave nothing behind, and
// cannot be misled by what an earlier job left.
#pragma once

#include <string>
#include <vector>

#include "base/net.hpp"
#include "base/status.hpp"
#include "runtime/bootstrap/unique_id.hpp"

namespace epccl::runtime {

/// Mailbox files in a directory that the ranks share and nobody else writes to:
///
///   rank r: writes ask.<attempt>.<r> with a fresh nonce
///   rank 0: answers with id.<attempt>.<r>: that nonce, then the id
///   rank r: takes an answer to its own nonce only (an older one is a dead job's), and removes it
///   rank 0: is done when every answer was taken
///
/// Where `job` is not empty the names have it behind "ask." and "id.": jobs with one directory do not meet. Whoever may read the
/// directory sees these names.
/// Files appear by rename, whole, readable by the user only.
struct IdStore {
  std::string directory;
  bool create = false;   // make it (0700) if it is not there, and remove it when it is empty afterwards
  std::string job = {};  // letters and digits that mark this job, the same on all its ranks; or ""

  /// Whether there is such a directory, and only this user writes there.
  Status look() const;
  Status give(const UniqueId& id, int ranks, int attempt, double timeout) const;
  Result<UniqueId> take(int rank, int attempt, double timeout) const;
};

/// Rank 0 listens; each rank is sent the id, encrypted with a key that is derived from what only ranks of
/// this job and attempt know in common (`identity`), and answers with its number under the same key:
///
///   rank r                         rank 0
///     | connects to the first port that answers so
///     |<--- magic, nonce, box(id) ----|
///     |---- nonce, box(r) ----------->|
///
/// The key is no better than the identity is hard to guess: EPCCL_JOB_KEY makes it strong.
struct IdHandOut {
  std::string host;             // of rank 0
  std::vector<uint16_t> ports;  // tried in this order
  std::string identity;

  Status give(const UniqueId& id, int ranks, double timeout) const;
  Result<UniqueId> take(int rank, double timeout) const;

  /// Why nobody may find rank 0, where it is this process: no address of that host is this machine's. It need not be wrong (addresses
  /// are translated). "" where there is no such doubt.
  std::string doubt_about_host() const;
};

}  // namespace epccl::runtime
