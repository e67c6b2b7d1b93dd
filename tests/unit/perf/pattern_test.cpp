#include "perf/src/pattern.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>

namespace epccl::perf {
namespace {

CountMatrix matrix_of(const std::vector<std::vector<uint64_t>>& rows) {
  CountMatrix matrix(static_cast<int>(rows.size()));
  for (size_t s = 0; s < rows.size(); ++s) {
    for (size_t d = 0; d < rows.size(); ++d) matrix.at(static_cast<int>(s), static_cast<int>(d)) = rows[s][d];
  }
  return matrix;
}

/// The error of parsing `text` for `ranks` ranks; fails the test where there is none.
std::string parse_error(std::string_view text, int ranks) {
  const auto counts = parse_counts(text, "counts.csv", ranks);
  EXPECT_FALSE(counts.ok());
  return counts.ok() ? "" : counts.status().message();
}

TEST(CountMatrix, TotalsGoAlongLinesForSendersAndColumnsForReceivers) {
  const CountMatrix matrix = matrix_of({{1, 2}, {30, 40}});
  EXPECT_EQ(matrix.sent_by(0), 3u);
  EXPECT_EQ(matrix.received_by(0), 31u);
  EXPECT_EQ(matrix.largest_sent(), 70u);
}

TEST(ZipfCounts, EveryRankSendsExactlyTheTotal) {
  for (const int ranks : {1, 2, 3, 7, 8, 32, 129}) {
    for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{5}, uint64_t{1000}, uint64_t{1} << 33}) {
      for (const double exponent : {0.0, 0.5, 0.8, 1.0, 3.7, 10.0}) {
        const CountMatrix matrix = zipf_counts(ranks, count, exponent);
        for (int s = 0; s < ranks; ++s) {
          ASSERT_EQ(matrix.sent_by(s), static_cast<uint64_t>(ranks) * count)
              << ranks << " ranks, " << count << " a pair, exponent " << exponent;
        }
      }
    }
  }
}

TEST(ZipfCounts, AreInProportionToThePowerLaw) {
  constexpr int ranks = 8;
  constexpr uint64_t count = 1'000'000;
  double weights = 0;
  for (int d = 0; d < ranks; ++d) weights += std::pow(1.0 / (1 + d), 0.8);
  const CountMatrix matrix = zipf_counts(ranks, count, 0.8);
  for (int d = 0; d < ranks; ++d) {
    const double want = static_cast<double>(ranks * count) * std::pow(1.0 / (1 + d), 0.8) / weights;
    EXPECT_NEAR(static_cast<double>(matrix.at(3, d)), want, 2) << "destination " << d;
  }
}

TEST(ZipfCounts, NeverGrowFromOneDestinationToTheNext) {
  const CountMatrix matrix = zipf_counts(13, 17, 1.1);
  for (int d = 1; d < 13; ++d) EXPECT_LE(matrix.at(0, d), matrix.at(0, d - 1));
}

TEST(ZipfCounts, AreTheSameForEverySenderAndAtEveryCall) {
  const CountMatrix matrix = zipf_counts(9, 1001, 0.9);
  EXPECT_EQ(matrix, zipf_counts(9, 1001, 0.9));
  for (int s = 1; s < 9; ++s) {
    for (int d = 0; d < 9; ++d) EXPECT_EQ(matrix.at(s, d), matrix.at(0, d));
  }
}

TEST(ZipfCounts, AreUniformForExponentZero) {
  EXPECT_EQ(zipf_counts(6, 11, 0), uniform_counts(6, 11));
}

TEST(ScaledCounts, KeepProportionsAndTheLargestSender) {
  EXPECT_EQ(scaled_counts(matrix_of({{1, 3}, {0, 2}}), 400), matrix_of({{100, 300}, {0, 200}}));
  EXPECT_EQ(scaled_counts(matrix_of({{100, 300}, {7, 200}}), 4), matrix_of({{1, 3}, {0, 2}}));
  EXPECT_EQ(scaled_counts(matrix_of({{0, 0}, {0, 0}}), 4), matrix_of({{0, 0}, {0, 0}}));
}

TEST(ScaledCounts, DoNotOverflow) {
  constexpr uint64_t huge = uint64_t{1} << 40;
  EXPECT_EQ(scaled_counts(matrix_of({{huge, huge}, {0, huge}}), huge),
            matrix_of({{huge / 2, huge / 2}, {0, huge / 2}}));
}

TEST(ParseCounts, TakesSpacesCommasSemicolonsCommentsAndEmptyLines) {
  const CountMatrix want = matrix_of({{1, 2, 3}, {40, 50, 60}, {0, 0, 7}});
  for (const char* text : {"1 2 3\n40 50 60\n0 0 7\n", "1,2,3\n40,50,60\n0,0,7",
                           "# counts\n\n 1, 2 ,3 # first\r\n40;50;60\n\n\t0 0\t7\n\n"}) {
    const auto counts = parse_counts(text, "counts.csv", 3);
    ASSERT_TRUE(counts.ok()) << counts.status().message();
    EXPECT_EQ(*counts, want) << text;
  }
}

TEST(ParseCounts, PassesOverAByteOrderMarkAtTheBeginning) {
  const auto counts = parse_counts(
      "\xEF\xBB\xBF"
      "10,20\r\n30,40\r\n",
      "counts.csv", 2);
  ASSERT_TRUE(counts.ok()) << counts.status().message();
  EXPECT_EQ(*counts, matrix_of({{10, 20}, {30, 40}}));
  EXPECT_NE(parse_error("10,20\n\xEF\xBB\xBF"
                        "30,40\n",
                        2)
                .find("line 2: column 1: "),
            std::string::npos);
}

TEST(ParseCounts, NamesLineAndColumnOfWhatIsNoCount) {
  EXPECT_EQ(parse_error("1 2\n# comment\n3 x4\n", 2),
            "counts.csv: line 3: column 2: \"x4\" is not a count of elements (0, 1, 2, ...)");
  for (const char* bad :
       {"-1 2\n3 4", "1.5 2\n3 4", "0x10 2\n3 4", "1e3 2\n3 4", "+1 2\n3 4", "\xff 2\n3 4"}) {
    EXPECT_NE(parse_error(bad, 2).find("line 1: column 1: "), std::string::npos) << bad;
  }
}

TEST(ParseCounts, NamesAnEmptyField) {
  EXPECT_EQ(parse_error("1,,2\n", 3), "counts.csv: line 1: column 2: empty, want a count of elements");
  EXPECT_EQ(parse_error("1,2,\n", 3), "counts.csv: line 1: column 3: empty, want a count of elements");
  EXPECT_EQ(parse_error("1,2,\n3,4,\n", 2),
            "counts.csv: line 1: column 3: empty behind the last separator, want 2 counts (one per rank)");
  EXPECT_EQ(parse_error(",1,2\n", 3), "counts.csv: line 1: column 1: empty, want a count of elements");
}

TEST(ParseCounts, NamesLinesThatAreTooShortOrTooLong) {
  EXPECT_EQ(parse_error("1 2\n3\n", 2),
            "counts.csv: line 2: column 2: the line ends, want 2 counts (one per rank)");
  EXPECT_EQ(parse_error("1 2 3\n4 5\n", 2),
            "counts.csv: line 1: column 3: one count too many, want 2 (one per rank)");
}

TEST(ParseCounts, NamesAFileWithTooFewOrTooManyLines) {
  EXPECT_EQ(parse_error("1 2\n", 2),
            "counts.csv: ends at line 1 with 1 line of counts, want 2 (one per rank)");
  EXPECT_EQ(parse_error("", 2), "counts.csv: ends at line 0 with 0 lines of counts, want 2 (one per rank)");
  EXPECT_EQ(parse_error("1 2\n3 4\n\n5 6\n", 2),
            "counts.csv: line 4: one line of counts too many, want 2 (one per rank)");
}

TEST(ParseCounts, RefusesCountsThatCouldOverflow) {
  EXPECT_NE(parse_error("1 1099511627777\n1 1\n", 2).find("column 2: 1099511627777 is more than"),
            std::string::npos);
  EXPECT_NE(parse_error("99999999999999999999999 1\n1 1\n", 2).find("column 1"), std::string::npos);
}

TEST(LoadCounts, ReadsAFileAndNamesOneThatIsNotThere) {
  const std::string path = testing::TempDir() + "epccl_perf_counts" + std::to_string(getpid());
  std::ofstream(path) << "1 2\n3 4\n";
  const auto counts = load_counts(path, 2);
  std::remove(path.c_str());
  ASSERT_TRUE(counts.ok()) << counts.status().message();
  EXPECT_EQ(*counts, matrix_of({{1, 2}, {3, 4}}));

  const auto missing = load_counts(path, 2);
  ASSERT_FALSE(missing.ok());
  EXPECT_TRUE(missing.status().message().starts_with("count matrix " + path + ": No such file"));
}

TEST(LoadCounts, RefusesADirectory) {
  EXPECT_FALSE(load_counts(testing::TempDir(), 2).ok());
}

TEST(ParsePattern, KnowsUniformZipfAndFile) {
  EXPECT_EQ(parse_pattern("uniform")->kind, Pattern::Kind::uniform);
  const auto zipf = parse_pattern("zipf:0.8");
  ASSERT_TRUE(zipf.ok());
  EXPECT_EQ(zipf->kind, Pattern::Kind::zipf);
  EXPECT_DOUBLE_EQ(zipf->exponent, 0.8);
  const auto file = parse_pattern("file:a:b.csv");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->path, "a:b.csv");
}

TEST(ParsePattern, RefusesTheRest) {
  for (const char* bad : {"", "zipf", "zipf:", "zipf:x", "zipf:0.8x", "zipf:-1", "zipf:nan", "zipf:11",
                          "file:", "file", "even"}) {
    EXPECT_FALSE(parse_pattern(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace epccl::perf
