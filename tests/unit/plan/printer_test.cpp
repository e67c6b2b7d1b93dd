// The printer: golden text, and pictures that are well-formed.
#include "plan/printer.hpp"

#include <gtest/gtest.h>

#include <pugixml.hpp>

#include "plan/simulator.hpp"
#include "small_plans.hpp"

namespace epccl::plan::testing {
namespace {

Plan every_kind() {
  SmallPlan plan({2, 1});
  for (uint64_t row = 0; row < 2; ++row)
    plan[0].copy(0, plan[0].input(16 * row), plan[0].scratch(8 * row), 8);
  plan[0].post(0, 3, 1, After{0});
  const uint32_t wait = plan[1].wait(0, 0, 3, 1);
  const uint32_t copy = plan[1].copy(1, {0, Buffer::scratch, 0}, plan[1].scratch(0), 16, After{wait});
  plan[1].send(2, 7, plan[1].scratch(0), 16, After{wait, copy});
  plan[2].recv(1, 7, plan[2].output(4), 16);
  return plan.take();
}

TEST(Text, OneLineAStep) {
  EXPECT_EQ(to_text(every_kind()),
            "plan small: 3 ranks on 2 nodes\n"
            "rank 0: 2 steps, input 24 B, output 0 B, scratch 16 B\n"
            "rank 0 step 0 stage 0 copy 0.input+0 -> 0.scratch+0 bytes=8 rows=2 strides=16/8\n"
            "rank 0 step 1 stage 0 post slot=3 value=1 after=0\n"
            "rank 1: 3 steps, input 0 B, output 0 B, scratch 16 B\n"
            "rank 1 step 0 stage 0 wait peer=0 slot=3 value=1\n"
            "rank 1 step 1 stage 1 copy 0.scratch+0 -> 1.scratch+0 bytes=16 after=0\n"
            "rank 1 step 2 stage 1 send to=2 tag=7 1.scratch+0 bytes=16 after=0,1\n"
            "rank 2: 1 steps, input 0 B, output 20 B, scratch 0 B\n"
            "rank 2 step 0 stage 1 recv from=1 tag=7 -> 2.output+4 bytes=16\n");
}

/// Parses the picture of a plan; fails the test when it is not XML.
pugi::xml_document picture(const Plan& plan, const SvgOptions& options = {}) {
  const auto timeline = simulate(plan);
  EXPECT_TRUE(timeline.ok()) << timeline.status().message();
  const std::string svg = svg_timeline(*timeline, plan, options);
  pugi::xml_document document;
  const auto result = document.load_string(svg.c_str(), pugi::parse_default | pugi::parse_escapes);
  EXPECT_TRUE(result) << result.description() << " in "
                      << svg.substr(static_cast<size_t>(result.offset), 100);
  return document;
}

size_t count(const pugi::xml_document& document, const std::string& xpath) {
  return document.select_nodes(xpath.c_str()).size();
}

TEST(Picture, HasAMarkWithTooltipForEveryStepThatTakesTime) {
  const auto document = picture(every_kind());
  EXPECT_EQ(count(document, "/svg/rect[title]"), 5u) << "copy, wait, copy, send, recv; no post";
  const auto send = document.select_node("/svg/rect[@class='s'][title]").node();
  EXPECT_NE(std::string(send.child_value("title")).find("rank 1 step 2 stage 1 send to=2 tag=7"),
            std::string::npos);
  EXPECT_NE(std::string(document.select_node("/svg/rect[@class='c0']/title").node().child_value())
                .find("0.input+0 -> 0."),
            std::string::npos)
      << "the arrow is escaped";
}

TEST(Picture, NamesThePlanTheRanksAndTheUnitOfTime) {
  Plan plan = every_kind();
  plan.algorithm = "a<b & \"c\"";
  const auto document = picture(plan);
  const std::string title =
      document.select_node("/svg/text[contains(., '3 ranks on 2 nodes')]").node().child_value();
  EXPECT_EQ(title.find("a<b & \"c\": 3 ranks"), 0u) << title;
  EXPECT_EQ(count(document, "/svg/text[contains(., '(n1)')]"), 1u);
  EXPECT_EQ(count(document, "/svg/text[.='time (us)']"), 1u);
}

TEST(Picture, MarksLieWithinTheirRowsAndTheAxis) {
  const Plan plan = two_stage(4, 8, 64, 2);
  const auto document = picture(plan);
  const double width = document.child("svg").attribute("width").as_double();
  const double height = document.child("svg").attribute("height").as_double();
  EXPECT_GT(count(document, "/svg/rect[title]"), 32u * 8);
  for (const auto& found : document.select_nodes("/svg/rect[title]")) {
    const pugi::xml_node mark = found.node();
    EXPECT_GE(mark.attribute("x").as_double(), 69);
    EXPECT_LE(mark.attribute("x").as_double() + mark.attribute("width").as_double(), width - 19);
    EXPECT_LE(mark.attribute("y").as_double() + mark.attribute("height").as_double(), height - 39);
  }
}

TEST(Picture, LeavesOutRanksBeyondTheLimitAndSaysSo) {
  const auto document = picture(two_stage(2, 4, 8, 1), {800, 3});
  EXPECT_EQ(count(document, "/svg/text[contains(., 'first 3 ranks shown')]"), 1u);
  EXPECT_EQ(count(document, "/svg/text[contains(., '(n1)')]"), 0u);
}

TEST(Picture, OfAPlanThatDoesNothing) {
  EXPECT_EQ(count(picture(SmallPlan({1}).take()), "/svg/rect[title]"), 0u);
}

}  // namespace
}  // namespace epccl::plan::testing
