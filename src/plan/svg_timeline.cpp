// The picture of a simulated run.
//
//   rank 0 |[copy][copy]      [copy]     |   upper lane: copies; lower lane: sends, ticks where messages are
//   received
//          |   [send........] |   |      |   bottom edge: waits
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>

#include "plan/printer.hpp"

namespace epccl::plan {
namespace {

constexpr int margin_left = 70, margin_right = 20, header = 54, axis = 40;

struct Mark {
  const char* css_class;
  const char* label;
  const char* colour;
};

constexpr std::array<Mark, 6> marks = {{{"c0", "copy before the network", "#4e79a7"},
                                        {"c1", "copy, network stage", "#b07aa1"},
                                        {"c2", "copy after the network", "#59a14f"},
                                        {"s", "send", "#f28e2b"},
                                        {"r", "received", "#e15759"},
                                        {"w", "wait", "#bab0ac"}}};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// The unit in which a duration has one to three digits before the point.
struct Unit {
  const char* name;
  double seconds;
};

Unit unit_for(double seconds) {
  if (seconds >= 1) return {"s", 1};
  if (seconds >= 1e-3) return {"ms", 1e-3};
  if (seconds >= 1e-6) return {"us", 1e-6};
  return {"ns", 1e-9};
}

std::string duration(double seconds) {
  const Unit unit = unit_for(seconds);
  return fmt::format("{:.4g} {}", seconds / unit.seconds, unit.name);
}

/// 1, 2 or 5 times a power of ten, so that the axis has at most about ten ticks.
double tick_distance(double total) {
  const double power = std::pow(10, std::floor(std::log10(total / 10)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (total / (factor * power) <= 10) return factor * power;
  return 10 * power;
}

class Picture {
 public:
  Picture(const Timeline& timeline, const Plan& plan, const SvgOptions& options)
      : timeline_(timeline),
        plan_(plan),
        width_(std::max(options.width, 300)),
        ranks_(static_cast<int>(
            std::min(plan.ranks.size(), static_cast<size_t>(std::max(options.max_ranks, 1))))),
        row_(std::clamp(640 / std::max(ranks_, 1), 10, 28)),
        scale_((width_ - margin_left - margin_right) / std::max(timeline.total, 1e-12)) {}

  std::string draw() {
    open();
    legend();
    rows();
    ticks();
    put("</svg>\n");
    return std::move(out_);
  }

 private:
  template <typename... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  double x(double seconds) const { return margin_left + seconds * scale_; }
  int top(int rank) const { return header + rank * row_; }

  void open() {
    const int height = top(ranks_) + axis;
    put("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n<style>",
        width_, height);
    for (const Mark& mark : marks) put(".{}{{fill:{}}}", mark.css_class, mark.colour);
    put(".s{{fill-opacity:.45;stroke:#f28e2b;stroke-width:.4}}</style>\n");
    put("<rect width=\"{}\" height=\"{}\" fill=\"white\"/>\n", width_, height);
    put("<text x=\"{}\" y=\"18\" font-size=\"14\">{}: {} ranks on {} nodes, {}{}</text>\n", margin_left,
        escaped(plan_.algorithm), plan_.ranks.size(), plan_.cluster.nodes(), duration(timeline_.total),
        plan_.ranks.size() > static_cast<size_t>(ranks_) ? fmt::format(" (first {} ranks shown)", ranks_)
                                                         : "");
  }

  void legend() {
    int at = margin_left;
    for (const Mark& mark : marks) {
      put("<rect class=\"{}\" x=\"{}\" y=\"30\" width=\"12\" height=\"10\"/><text x=\"{}\" "
          "y=\"39\">{}</text>\n",
          mark.css_class, at, at + 16, mark.label);
      at += 34 + 6 * static_cast<int>(std::string_view(mark.label).size());
    }
  }

  void rows() {
    for (int rank = 0; rank < ranks_; ++rank) {
      const int node = plan_.cluster.node_of(rank);
      put("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>", margin_left, top(rank),
          width_ - margin_left - margin_right, row_, node % 2 == 0 ? "#f7f7f7" : "#ececec");
      put("<text x=\"{}\" y=\"{}\" text-anchor=\"end\" font-size=\"{}\">{} (n{})</text>\n", margin_left - 6,
          top(rank) + row_ / 2 + 4, std::min(11, row_), rank, node);
      const RankPlan& steps = plan_.ranks[static_cast<size_t>(rank)];
      const std::vector<StepTime>& times = timeline_.ranks[static_cast<size_t>(rank)];
      for (uint32_t index = 0; index < steps.steps.size(); ++index) step(steps, index, times[index]);
    }
  }

  void step(const RankPlan& plan, uint32_t index, const StepTime& time) {
    const double lane = (row_ - 3) / 2.0;
    const double upper = top(plan.rank) + 0.5, lower = upper + lane;
    switch (plan.steps[index].kind) {
      case Kind::copy:
      case Kind::move_rows:
      case Kind::reduce_rows:
      case Kind::reduce: {
        const size_t stage = std::min<size_t>(plan.steps[index].stage, 2);
        return bar(marks[stage], upper, lane, time.start, time.end, plan, index, time);
      }
      case Kind::send:
        return bar(marks[3], lower, lane, time.start, time.end, plan, index, time);
      case Kind::recv: {
        const double tick = 1.5 / scale_;
        return bar(marks[4], lower, lane, std::max(time.end - tick, 0.0), time.end, plan, index, time);
      }
      case Kind::wait:
        return bar(marks[5], lower + lane, 1.5, time.start, time.end, plan, index, time);
      case Kind::post:
        return;
    }
  }

  void bar(const Mark& mark, double y, double height, double start, double end, const RankPlan& plan,
           uint32_t index, const StepTime& time) {
    // What took no time at all is not there to be seen.
    if (end <= start) return;
    put("<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\"><title>{}\n{} to {} "
        "({})</title>"
        "</rect>\n",
        mark.css_class, x(start), y, std::max((end - start) * scale_, 0.3), height,
        escaped(to_text(plan, index)), duration(time.start), duration(time.end),
        duration(time.end - time.start));
  }

  void ticks() {
    const int bottom = top(ranks_);
    if (timeline_.total <= 0) return;
    const double distance = tick_distance(timeline_.total);
    const Unit unit = unit_for(timeline_.total);
    for (int i = 0; i * distance <= timeline_.total * (1 + 1e-9); ++i) {
      const double at = x(i * distance);
      put("<line x1=\"{0:.2f}\" y1=\"{1}\" x2=\"{0:.2f}\" y2=\"{2}\" stroke=\"#999\" stroke-width=\".5\"/>"
          "<text x=\"{0:.2f}\" y=\"{3}\" text-anchor=\"middle\">{4:.4g}</text>\n",
          at, header, bottom + 5, bottom + 18, i * distance / unit.seconds);
    }
    put("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">time ({})</text>\n",
        (margin_left + width_ - margin_right) / 2, bottom + 34, unit.name);
  }

  const Timeline& timeline_;
  const Plan& plan_;
  int width_, ranks_, row_;
  double scale_;  // pixels per second
  std::string out_;
};

}  // namespace

std::string svg_timeline(const Timeline& timeline, const Plan& plan, const SvgOptions& options) {
  return Picture(timeline, plan, options).draw();
}

}  // namespace epccl::plan
