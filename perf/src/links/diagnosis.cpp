#include "perf/src/links/diagnosis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include "perf/src/statistics.hpp"

namespace epccl::perf::links {
namespace {

using What = Finding::What;

template <typename Value>
double median(const std::vector<Link>& links, Value value) {
  std::vector<double> values;
  values.reserve(links.size());
  for (const Link& link : links) values.push_back(value(link));
  return values.empty() ? 0 : summarize(std::move(values)).median;
}

/// Takes out of `slow` what whole ends explain: those of which every link is slow, if they lead to several others.
class Explainer {
 public:
  Explainer(const std::vector<Link>& links, const std::vector<int>& node_of, std::vector<Link>& slow,
            std::vector<Finding>& found)
      : links_(links), node_of_(node_of), slow_(slow), found_(found) {}

  using End = std::function<int(const Link&)>;

  /// `own`: the end in question of a link, a rank or its node; `other`: what it leads to.
  void explain(What what, const End& own, const End& other) {
    std::map<int, std::vector<Link>> all, slow;
    for (const Link& link : links_) all[own(link)].push_back(link);
    for (const Link& link : slow_) slow[own(link)].push_back(link);
    for (const auto& [end, its] : slow) {
      std::set<int> others;
      for (const Link& link : its) others.insert(other(link));
      if (its.size() < all[end].size() || others.size() < 2) continue;
      const bool sends = what == What::node_sends || what == What::rank_sends;
      found_.push_back({what, sends ? end : -1, sends ? -1 : end,
                        median(its, [](const Link& link) { return link.rate; })});
      std::erase_if(slow_, [&, end = end](const Link& link) { return own(link) == end; });
    }
  }

  int node(int rank) const { return node_of_[static_cast<size_t>(rank)]; }

 private:
  const std::vector<Link>& links_;
  const std::vector<int>& node_of_;
  std::vector<Link>& slow_;
  std::vector<Finding>& found_;
};

}  // namespace

Diagnosis diagnose(const std::vector<Link>& links, const std::vector<int>& node_of, double threshold) {
  Diagnosis found;
  found.median_rate = median(links, [](const Link& link) { return link.rate; });
  found.median_latency = median(links, [](const Link& link) { return link.latency; });
  std::vector<Link> slow;
  std::ranges::copy_if(links, std::back_inserter(slow),
                       [&](const Link& link) { return link.rate < threshold * found.median_rate; });
  Explainer explainer(links, node_of, slow, found.slow);
  const auto from = [](const Link& link) { return link.from; };
  const auto to = [](const Link& link) { return link.to; };
  const auto node_from = [&](const Link& link) { return explainer.node(link.from); };
  const auto node_to = [&](const Link& link) { return explainer.node(link.to); };
  explainer.explain(What::node_sends, node_from, node_to);
  explainer.explain(What::node_receives, node_to, node_from);
  explainer.explain(What::rank_sends, from, to);
  explainer.explain(What::rank_receives, to, from);
  for (const Link& link : slow) found.slow.push_back({What::link, link.from, link.to, link.rate});
  std::ranges::stable_sort(found.slow, {}, &Finding::rate);
  return found;
}

std::string to_string(const Finding& finding, const Diagnosis& diagnosis, const std::vector<int>& node_of) {
  const auto rank = [&](int number) {
    return fmt::format("rank {} (node {})", number, node_of[static_cast<size_t>(number)]);
  };
  const auto who = [&]() -> std::string {
    switch (finding.what) {
      case What::node_sends:
        return fmt::format("node {} sends", finding.from);
      case What::node_receives:
        return fmt::format("node {} receives", finding.to);
      case What::rank_sends:
        return rank(finding.from) + " sends";
      case What::rank_receives:
        return rank(finding.to) + " receives";
      case What::link:
        return rank(finding.from) + " sends to " + rank(finding.to);
    }
    return "?";
  };
  return fmt::format("{} at {:.3g} GB/s, {:.2f} of the median", who(), finding.rate / 1e9,
                     finding.rate / diagnosis.median_rate);
}

}  // namespace epccl::perf::links
