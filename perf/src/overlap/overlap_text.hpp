// How the tables of overlapped operations write their figures.
#pragma once

#include <string>

namespace epccl::perf {

/// Microseconds, as wide as a column of times.
std::string time_text(double seconds);
/// With two digits: 0.0312 is "3.12".
std::string percent_text(double fraction);

}  // namespace epccl::perf
