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

std::vector<double> rates_of(const std::vector<Link>& links) {
  std::vector<double> rates;
  for (const Link& link : links) rates.push_back(link.rate);
  return rates;
}

double median(std::vector<double> values) {
  return values.empty() ? 0 : summarize(std::move(values)).median;
}

/// By nearest rank.
double upper_quartile(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[(3 * values.size() + 3) / 4 - 1];
}

/// Finds the ends that explain slow links: those of which every link is slow, if they lead to several others.
class Explainer {
 public:
  Explainer(const std::vector<Link>& links, const std::function<bool(const Link&)>& is_slow) : links_(links) {
    std::ranges::copy_if(links, std::back_inserter(slow_), is_slow);
    left_ = slow_;
  }

  using End = std::function<int(const Link&)>;

  /// `own`: the end in question of a link, a rank or its node; `other`: what it leads to.
  void explain(What what, const End& own, const End& other, std::vector<Finding>& found) {
    std::map<int, std::vector<Link>> slow;
    for (const Link& link : slow_) slow[own(link)].push_back(link);
    for (const auto& [end, its] : slow) {
      const auto is_its = [&, end = end](const Link& link) { return own(link) == end; };
      std::set<int> others;
      for (const Link& link : its) others.insert(other(link));
      const auto all = static_cast<size_t>(std::ranges::count_if(links_, is_its));
      if (its.size() < all || others.size() < 2 || std::ranges::none_of(left_, is_its)) continue;
      const bool sends = what == What::node_sends || what == What::rank_sends;
      found.push_back({what, sends ? end : -1, sends ? -1 : end, median(rates_of(its))});
      std::erase_if(left_, is_its);
    }
  }

  /// That no end explains.
  const std::vector<Link>& left() const { return left_; }

 private:
  const std::vector<Link>& links_;
  std::vector<Link> slow_, left_;
};

}  // namespace

Diagnosis diagnose(const std::vector<Link>& links, const std::vector<int>& node_of, double threshold) {
  Diagnosis found;
  found.usual_rate = upper_quartile(rates_of(links));
  found.median_rate = median(rates_of(links));
  std::vector<double> latencies;
  for (const Link& link : links) latencies.push_back(link.latency);
  found.median_latency = median(std::move(latencies));
  Explainer explainer(links, [&](const Link& link) { return link.rate < threshold * found.usual_rate; });
  const auto node = [&](int rank) { return node_of[static_cast<size_t>(rank)]; };
  const auto from = [](const Link& link) { return link.from; };
  const auto to = [](const Link& link) { return link.to; };
  const auto node_from = [&](const Link& link) { return node(link.from); };
  const auto node_to = [&](const Link& link) { return node(link.to); };
  explainer.explain(What::node_sends, node_from, node_to, found.slow);
  explainer.explain(What::node_receives, node_to, node_from, found.slow);
  explainer.explain(What::rank_sends, from, to, found.slow);
  explainer.explain(What::rank_receives, to, from, found.slow);
  for (const Link& link : explainer.left()) found.slow.push_back({What::link, link.from, link.to, link.rate});
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
  return fmt::format("{} at {:.3g} GB/s, {:.2f} of what is usual", who(), finding.rate / 1e9,
                     finding.rate / diagnosis.usual_rate);
}

}  // namespace epccl::perf::links
