// Symbolic execution of a plan: which input bytes every written byte holds, and whether that is so in every
// schedule.
//
// Steps are run once, in one possible order. Wherever two steps touch the same bytes and one of them writes,
// the earlier one must be complete before the later one starts in every schedule; then all schedules leave
// the same bytes, and the one order stands for all of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "plan/happens_before.hpp"
#include "plan/interval_map.hpp"
#include "plan/plan.hpp"
#include "plan/rows.hpp"
#include "plan/step_graph.hpp"
#include "plan/sum_table.hpp"

namespace epccl::plan {

class DataFlow {
 public:
  /// `graph` (of a well-formed plan) and `order` must outlive this.
  DataFlow(const StepGraph& graph, const StepOrder& order);

  /// Before run(): the output of `rank` holds its own input from `offset` on, as in a call in place. That may be overwritten,
  /// once, after everybody has read it.
  void begin_in_place(int rank, uint64_t offset, uint64_t bytes);

  /// Runs all steps. Errors: bytes read that are not written before, an output byte written twice, a pair of
  /// steps that race for the same bytes.
  Status run();

  /// After run(): what ranks do with the input or output of another is complete before that one is through, and may use these for
  /// something else.
  Status check_ends();

  /// After run(): every output holds exactly what is expected, and nothing else was written.
  Status check_outputs(std::span<const Transfer> expected, std::span<const RowSum> sums);

 private:
  /// `length` consecutive bytes of the input of `rank` from `offset`, or of what SumTable says.
  struct Fragment {
    uint64_t length = 0, offset = 0;
    int32_t rank = 0;
  };
  /// Fragments to write, front to back.
  class Supply {
   public:
    explicit Supply(std::span<const Fragment> data) : data_(data) {}
    /// The next bytes, `most` at most; never none.
    Fragment take(uint64_t most);

   private:
    std::span<const Fragment> data_;
    size_t next_ = 0;
    uint64_t used_ = 0;  // bytes of data_[next_]
  };
  /// What bytes of an output must be: the transfer, or the sum where there is one.
  struct Wanted {
    Transfer transfer;
    const RowSum* sum = nullptr;
  };
  /// The fragments of one message in flight.
  struct Message {
    size_t first = 0, count = 0;
  };
  /// A step that has read bytes of a piece; a linked list per piece, newest first.
  struct Reader {
    uint64_t begin = 0, end = 0;
    uint32_t step = 0, next = Piece::no_readers;
  };
  /// A step of another rank that reads or writes the input or output of `owner`.
  struct Use {
    int32_t owner = 0;
    Buffer buffer = Buffer::input;
    bool writes = false;
    uint32_t step = 0;
    friend bool operator==(const Use&, const Use&) = default;
  };
  enum class Hazard : uint8_t { reads_written, overwrites_read, overwrites_written };
  /// An ordering that the current step relies on.
  struct Reliance {
    Hazard hazard = Hazard::reads_written;
    Buffer buffer = Buffer::scratch;
    int32_t rank = 0;
    uint32_t earlier = 0;
    uint64_t begin = 0, end = 0;
  };

  Status execute(uint32_t id);
  Status read(const Location& from, uint64_t bytes, uint32_t rows, uint64_t stride);
  Status read_range(const Location& from, uint64_t bytes);
  Status write(const Location& to, uint64_t bytes, uint32_t rows, uint64_t stride,
               std::span<const Fragment> data);
  Status write_range(const Location& to, uint64_t bytes, Supply& data);
  Status clear_for_write(const Location& to, uint64_t bytes);
  void note_use(const Location& at, bool writes);
  void append(const Fragment& fragment);
  void rely(Hazard hazard, uint32_t earlier, const Location& at, uint64_t begin, uint64_t end);
  Status check_reliances();

  /// Checks that a step that reads bytes of the region is ordered before the current one, which overwrites them.
  Status await_readers(const Piece& piece, const Location& to, uint64_t begin, uint64_t end);

  Status move_rows(const RankPlan& plan, const Step& step);
  Status reduce_rows(const RankPlan& plan, const Step& step);
  Status read_term(const RankPlan& plan, const Step& step, uint32_t sum, const RowTerm& term);
  Status reduce(const RankPlan& plan, const Step& step);
  Status check_overlap(const Step& step, const Location& source) const;
  Status read_source(const Location& source, uint64_t bytes, size_t number);
  Status add_terms(const Fragment& fragment, uint64_t at, bool raw, size_t number);
  Status write_rows(const StepRows& rows, uint32_t count, std::span<const Fragment> data);

  Status unwritten(const Location& at, uint64_t begin, uint64_t end) const;
  Status race(const Reliance& reliance) const;
  Status check_output(int rank, std::span<const Wanted> wanted);
  Status check_nothing_more(int rank, std::span<const Wanted> wanted, std::span<const Piece> written) const;
  bool holds(const Piece& piece, uint64_t at, const Wanted& wanted) const;
  Status wrong_output(int rank, const Piece& piece, uint64_t begin, uint64_t end, const Wanted& wanted) const;
  Status missing_output(int rank, uint64_t begin, uint64_t end, const Wanted& wanted) const;
  Status extra_output(int rank, const Piece& piece, uint64_t begin, uint64_t end) const;
  std::string describe(const Fragment& fragment) const;
  static std::string describe(const Wanted& wanted, uint64_t begin, uint64_t end);
  Status failure(uint32_t id, const std::string& what) const;
  std::string name(uint32_t id) const;

  IntervalMap& content(int rank, Buffer buffer);

  const StepGraph& graph_;
  const StepOrder& order_;
  HappensBefore before_;
  std::vector<IntervalMap> outputs_, scratches_;  // per rank
  std::vector<Reader> readers_;                   // of what may be overwritten: scratch, inputs in place
  bool in_place_ = false;
  std::vector<Use> uses_;
  std::vector<Fragment> in_flight_;  // contents of messages, captured when the send runs
  std::vector<Message> messages_;    // per step id of a send
  uint32_t current_ = 0;             // the step being run
  std::vector<Fragment> data_;       // what it has read
  std::vector<Reliance> reliances_;
  SumTable sums_;
  std::vector<Fragment> made_;                  // reduce_rows: the sums that the current step has made
  std::vector<RowSum::Term> sum_;               // the terms of the next
  std::vector<std::vector<Fragment>> sources_;  // reduce: what each source holds
};

}  // namespace epccl::plan
