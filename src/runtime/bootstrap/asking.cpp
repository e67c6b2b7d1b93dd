// What a rank asks the hub: who is missing, what the others do, who is lost.
#include <poll.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/clock.hpp"
#include "base/net.hpp"
#include "runtime/bootstrap/client.hpp"
#include "runtime/bootstrap/rank_list.hpp"

namespace epccl::runtime {

void Client::put_question() {
  question_ = ++requests_;
  answer_ = {};
  queue(wire::Writer(wire::Type::question).u32(question_).take());
}

Client::Answer Client::ask(double patience) {
  put_question();
  bool timed_out = false;
  static_cast<void>(pump(
      now_seconds() + patience, [&] { return answer_.heard; }, timed_out, false));
  return std::exchange(answer_, {});
}

/// Reads what the hub has said so far: what is asked now is answered behind that. Unlike ask(), also on a line with bad news.
Client::Answer Client::hear_all(double patience) {
  put_question();
  const double deadline = now_seconds() + patience;
  for (;;) {
    const short events = flush() ? POLLIN : POLLIN | POLLOUT;
    read_line();
    if (answer_.heard || state_ != Line::open) break;
    if (!net::wait_for(line_.get(), events, deadline)) break;
  }
  return std::exchange(answer_, {});
}

void Client::take_answer(wire::Reader& body) {
  if (body.u32() != question_) return;
  Answer& answer = answer_;
  answer.heard = true;
  answer.joined = body.i32();
  RankList missing;
  const int count = body.i32();
  for (const int rank : body.ranks(RankList::max_listed)) {
    const auto index = static_cast<size_t>(rank);
    if (index < options_.ranks_of_parent.size())
      missing.add(rank, options_.ranks_of_parent[index]);
    else
      missing.add(rank);
  }
  missing.add_more(std::max(count - missing.count(), 0));
  answer.missing = missing.text();
  answer.doing = body.text();
  answer.lost = body.ranks(static_cast<size_t>(ranks_));
}

std::string Client::describe_others(bool briefly) {
  const std::unique_lock lock(reading_, std::try_to_lock);
  if (!lock.owns_lock()) return "";
  if (state_ == Line::closed_regularly) return calls_.others(rank_);
  Answer answer = ask(briefly ? brief_patience : question_patience);
  // Its process is a rank's, and may be the one that all wait for.
  if (!briefly && !answer.heard && state_ == Line::open && !first_notice_)
    return fmt::format("the process of the rendezvous ({}) has not answered for {:g} s", hub_,
                       question_patience);
  return std::move(answer.doing);
}

std::vector<int> Client::lost_ranks() {
  const std::unique_lock lock(reading_, std::try_to_lock);
  if (!lock.owns_lock()) return {};
  if (left_) return calls_.all_left();
  const std::vector<int> told = hear_all(brief_patience).lost, left = calls_.all_left();
  std::set<int> lost(told.begin(), told.end());
  lost.insert(left.begin(), left.end());
  return {lost.begin(), lost.end()};
}

}  // namespace epccl::runtime
