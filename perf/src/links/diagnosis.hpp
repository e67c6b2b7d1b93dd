// Which links are slow, and whether that is one rank's or one node's doing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace epccl::perf::links {

/// From one rank to another.
struct Link {
  int from = 0, to = 0;
  double rate = 0;     // bytes/s
  double latency = 0;  // seconds, half of a round trip
};

/// Of the links of one group.
struct Finding {
  enum class What : uint8_t {
    node_sends,     // every link out of a node is slow
    node_receives,  // every link into it
    rank_sends,     // every link out of a rank, of several
    rank_receives,
    link,
  };
  What what = What::link;
  int from = -1;    // a node, a rank; of node_receives and rank_receives: -1
  int to = -1;      // likewise; of node_sends and rank_sends: -1
  double rate = 0;  // the median of these links
};

struct Diagnosis {
  double usual_rate =
      0;  // the upper quartile: that of a good link, also where one node of three is slow both ways
  double median_rate = 0, median_latency = 0;
  std::vector<Finding> slow;  // the slowest first
};

/// A link is slow below `threshold` times the usual rate. What a node explains is not said of its ranks, and what a rank explains not of its
/// links. Of a node or rank that is said where all its links one way are slow and lead to more than one other; of the two ends of a
/// single one nobody knows which it is. Where more than three quarters are slow, that is what is usual.
Diagnosis diagnose(const std::vector<Link>& links, const std::vector<int>& node_of, double threshold);

/// "rank 3 (node 1) sends at 0.21 GB/s, 0.22 of what is usual".
std::string to_string(const Finding& finding, const Diagnosis& diagnosis, const std::vector<int>& node_of);

}  // namespace epccl::perf::links
