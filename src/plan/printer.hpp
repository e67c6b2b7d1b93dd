// Plans as text and simulated runs as pictures.
//
//   rank 2 step 5 stage 2 copy 1.scratch+128 -> 2.output+0 bytes=64 rows=4 strides=256/64 after=3,4
//   rank 2 step 6 stage 0 move_rows 2.input+0[list 12] -> 1.scratch+0[list 44 from 8] rows=32 bytes=64
//   rank 2 step 7 stage 2 reduce_rows first_sum=0 sources=1 -> 2.output+0 rows=32 bytes=64 of 2.scratch+0
//
// [list 44 from 8]: the rows that the tables list from entry 44 on; row 8 is the one at the offset given.
//
// One line a step: `grep 'send to=7 '` finds who sends to rank 7, `grep '1.scratch'` who touches rank 1's
// scratch.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "plan/plan.hpp"
#include "plan/timeline.hpp"

namespace epccl::plan {

/// "2.output+64": rank, buffer and byte offset.
std::string to_text(const Location& location);

/// "1.input+64 weight=3 ends=rank,node".
std::string to_text(const RowSum::Term& term);

/// "(0.input+0 ends=rank + 1.input+64 ends=rank,node)"; of long sums the first terms only.
std::string to_text(std::span<const RowSum::Term> terms);

/// What a step does, without rank, index and dependencies: "send to=6 tag=3 2.input+0 bytes=64".
std::string to_text(const Step& step);

/// One line, without newline, of one step of a rank's plan.
std::string to_text(const RankPlan& plan, uint32_t index);

/// A header line ("rank 2: 6 steps ...") and one line a step.
std::string to_text(const RankPlan& plan);

/// A header line and every rank's text.
std::string to_text(const Plan& plan);

struct SvgOptions {
  int width = 1200;    // pixels
  int max_ranks = 64;  // ranks beyond are left out, and the picture says so
};

/// An SVG picture of a simulated run: a row a rank; copies in the upper lane, sends in the lower, receptions
/// as ticks, waits as thin grey bars; coloured by stage. Every mark has a tooltip with the step's text and
/// times. `timeline` must come from `plan`.
std::string svg_timeline(const Timeline& timeline, const Plan& plan, const SvgOptions& options = {});

}  // namespace epccl::plan
