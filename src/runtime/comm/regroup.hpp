// A new communicator out of ranks of an old one: who belongs to it, and where they meet.
//
// They meet at the meeting point of the first of them, never through what first brought the old communicator together: its
// process may be among the dead.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "runtime/bootstrap/bootstrap.hpp"
#include "runtime/bootstrap/meeting_point.hpp"
#include "topology/cluster.hpp"

namespace epccl::runtime {

inline constexpr int32_t no_color = -1;

/// What a rank says in a split.
struct SplitChoice {
  int32_t color = no_color;
  int32_t key = 0;
};

/// The old ranks with the colour of `rank`, in the order of their new ranks: by key, then by old rank. Empty without a colour.
std::vector<int> split_members(std::span<const SplitChoice> choices, int rank);

/// The ranks [0, ranks) that are not excluded, in order.
std::vector<int> shrink_members(int ranks, std::span<const int> excluded);

/// Where ranks come together to make a communicator, and as what.
struct Gathering {
  UniqueId id;
  uint64_t session = 0;
  int rank = 0, ranks = 1;
  uint64_t ids = 0;  // digest() of all ids that were given, where these were several: alike on all ranks
  std::string where = {};  // for messages
  /// Asked while ranks come together: an error ends it (JoinOptions::check).
  std::function<Status(bool last)> check = {};
  /// Told when they have not come together; may be empty.
  std::function<void()> in_vain = {};
  // JoinOptions':
  std::vector<int> ranks_of_parent = {};
  std::function<void(bool at_loopback)> nobody_there = {};
};

/// What keeps ranks of the old communicator from a meeting.
enum class Absence : uint8_t {
  gone,       // their process has ended
  or_failed,  // or they have given the old communicator up
};

/// Any thread.
class Regroup {
 public:
  /// Why one of `members` (old ranks) will not come; "": nothing is known.
  using Lost = std::function<std::string(const std::vector<int>& members, Absence absence)>;
  using NobodyThere = std::function<void(int rank, bool at_loopback)>;

  /// `own` may be null: then nobody can meet here. `line`: of the old communicator.
  /// `nobody_there` is told of a rank at whose address nobody is any more, and whether that is a loopback address.
  Regroup(int rank, MeetingPoint* own, const std::vector<UniqueId>& meeting_points, Bootstrap& line,
          Lost lost, NobodyThere nobody_there, double timeout_seconds)
      : rank_(rank),
        ranks_(static_cast<int>(meeting_points.size())),
        own_(own),
        meeting_points_(meeting_points),
        line_(line),
        lost_(std::move(lost)),
        nobody_there_(std::move(nobody_there)),
        timeout_seconds_(timeout_seconds) {}

  /// Where `members` meet, this rank among them; opens the door where it is here. Every member asks equally often for the
  /// same members, beside the times when they did not come together: each time is another gathering. It must not outlive this. It ends
  /// when a member is known not to come.
  Result<Gathering> gather(const std::vector<int>& members, Absence absence);
  /// As gather(), of the ranks that are not excluded. Ranks that exclude others learn so while they wait, where the process that
  /// holds the old communicator's control line lives.
  Result<Gathering> gather_shrunk(std::span<const int> excluded, Absence absence);
  /// Every rank's choice, by rank, where the old communicator can run nothing any more: its ranks meet anew for it.
  Result<std::vector<SplitChoice>> exchange_choices_anew(const SplitChoice& mine,
                                                         const std::shared_ptr<Interrupt>& interrupt);

 private:
  /// Which of the gatherings of the same members one is. Members that waited in vain may have been alone in it: whoever comes
  /// later, and who tries again, take the same number.
  struct Numbers {
    uint64_t last = 0;
    std::set<uint64_t> in_vain;
    uint64_t take();
  };

  /// Ranks disagreed who the members of a gathering are. Those that any of them kept will all hear so before they meet again among
  /// themselves: they count such disagreements, not what each of them asked for.
  void disagreed(std::vector<int> kept);
  std::function<Status(bool last)> until_lost(const std::vector<int>& members, Absence absence);

  const int rank_, ranks_;
  MeetingPoint* const own_;
  const std::vector<UniqueId>& meeting_points_;  // by rank
  Bootstrap& line_;
  const Lost lost_;
  const NobodyThere nobody_there_;
  const double timeout_seconds_;
  std::mutex mutex_;
  std::map<std::vector<int>, Numbers> gatherings_;  // by members
  std::vector<std::vector<int>> disagreements_;     // who was kept, ascending
};

}  // namespace epccl::runtime
