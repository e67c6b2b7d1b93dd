#include "perf/src/measure.hpp"

#include <utility>

#include "base/clock.hpp"
#include "perf/src/over_ranks.hpp"
#include "perf/src/overlap/bare_copies.hpp"
#include "perf/src/overlap/overlap_meter.hpp"
#include "perf/src/split_meter.hpp"

namespace epccl::perf {

Status Meter::issue(const Subject& subject) {
  EPCCL_TRY(start(subject, stream_.get()));
  return stream_.wait(subject.communicator.get());
}

Status Meter::issue_group(const Subject& subject) {
  if (options_.group_calls == 1) return issue(subject);
  const epcclComm_t comm = subject.communicator.get();
  EPCCL_TRY(api_status("epcclGroupStart", epcclGroupStart(), comm));
  Status started;
  for (int i = 0; i < options_.group_calls && started.ok(); ++i) started = start(subject, stream_.get());
  const Status ended = api_status("epcclGroupEnd", epcclGroupEnd(), comm);
  EPCCL_TRY(std::move(started));
  EPCCL_TRY(ended);
  return stream_.wait(comm);
}

Status Meter::start(const Subject& subject, epcclStream_t stream) {
  Operands given = subject.operands;
  const auto contains = [](const Buffer& buffer, const std::byte* place) {
    return place >= buffer.bytes().data() && place <= buffer.bytes().data() + buffer.bytes().size();
  };
  // In place both lie in the output.
  const Buffer& from = contains(output_, given.input.data()) ? output_ : input_;
  given.input = {from.there(given.input.data()), given.input.size()};
  given.output = {output_.there(given.output.data()), given.output.size()};
  return subject.call.issue(subject.communicator, given, stream);
}

Status Meter::prepare(const Subject& subject) {
  subject.call.prepare(subject.operands, ++exchanges_);
  EPCCL_TRY(input_.upload());
  return output_.upload();
}

Result<uint64_t> Meter::check(const Subject& subject, const std::string& when) {
  EPCCL_TRY(output_.download());
  return subject.call.check(subject.operands, exchanges_, when);
}

template <typename Work>
Status Meter::time_in_step(const Work& work, double* seconds) {
  EPCCL_TRY(coordinator_.barrier());
  const double start = now_seconds();
  EPCCL_TRY(work());
  if (seconds != nullptr) *seconds = now_seconds() - start;
  return {};
}

Status Meter::issue_in_step(const Subject& subject, double* seconds) {
  EPCCL_TRY(time_in_step([&] { return issue_group(subject); }, seconds));
  if (seconds != nullptr) *seconds /= options_.group_calls;
  return {};
}

// Time that is not measured would be time in which a network recovers from what was.
Status Meter::issue_in_a_row(const Subject& subject, int calls, std::span<double> seconds) {
  EPCCL_TRY(coordinator_.barrier());
  double start = now_seconds();
  for (double& of_one : seconds) {
    for (int i = 0; i < calls; ++i) EPCCL_TRY(issue_group(subject));
    // Who sends may be through before anybody has received, and who comes late finds all there.
    EPCCL_TRY(coordinator_.barrier());
    const double end = now_seconds();
    of_one = (end - std::exchange(start, end)) / calls / options_.group_calls;
  }
  return {};
}

/// A call with fresh data; the number of wrong elements.
Result<uint64_t> Meter::compare(const Subject& subject, const std::string& when, double* seconds) {
  EPCCL_TRY(prepare(subject));
  EPCCL_TRY(time_in_step([&] { return issue(subject); }, seconds));
  return check(subject, when);
}

/// Seconds of one group (without -m: of one call), with those of all ranks.
Result<double> Meter::probe(const Subject& subject) {
  if (!options_.budget) return 0;
  constexpr int probes = 3;
  EPCCL_TRY(coordinator_.barrier());
  const double start = now_seconds();
  for (int i = 0; i < probes; ++i) EPCCL_TRY(issue_group(subject));
  EPCCL_TRY(coordinator_.barrier());
  return (now_seconds() - start) / probes;
}

Result<Measurement> Meter::run(Communicator& communicator, const Call& call, bool in_place) {
  const Subject subject{communicator, call, call.place(input_, output_, in_place)};
  const std::string title =
      fmt::format("{} {} {} {} bytes{}", to_string(call.key().operation), communicator.algorithm(),
                  call.key().type.name, call.key().size, in_place ? " in place" : "");
  if (options_.graph_launches > 0) return run_graph(subject, title);
  uint64_t wrong = 0;
  if (options_.check) {
    EPCCL_ASSIGN(wrong, compare(subject, title + ", first call"));
  }
  for (int i = 0; i < options_.warmup; ++i) EPCCL_TRY(issue_in_step(subject));
  EPCCL_ASSIGN(const double probed, probe(subject));
  Measurement measured;
  EPCCL_ASSIGN(measured.iterations, choose_iterations(coordinator_, options_, probed * options_.in_a_row));

  std::vector<double> seconds(static_cast<size_t>(measured.iterations));
  const bool in_a_row = options_.in_a_row > 1;
  const bool alone = !in_a_row && options_.group_calls == 1;  // then the last one is compared, too
  const int timed = measured.iterations - (options_.check && alone ? 1 : 0);
  if (in_a_row) EPCCL_TRY(issue_in_a_row(subject, options_.in_a_row, seconds));
  for (int i = 0; !in_a_row && i < timed; ++i)
    EPCCL_TRY(issue_in_step(subject, &seconds[static_cast<size_t>(i)]));
  if (options_.check) {
    EPCCL_ASSIGN(const uint64_t last, compare(subject, fmt::format("{}, iteration {}", title, timed),
                                              alone ? &seconds.back() : nullptr));
    wrong += last;
  }
  EPCCL_ASSIGN(measured.seconds, summary_of(coordinator_, options_, seconds));
  EPCCL_ASSIGN(measured.wrong, total_of(coordinator_, options_, wrong));
  if (!options_.split) return measured;
  EPCCL_ASSIGN(measured.split, measure_split(coordinator_, communicator.get(), measured.iterations,
                                             [&] { return issue(subject); }));
  return measured;
}

/// What an overlap computes beneath.
class Meter::Calls : public Overlapped {
 public:
  Calls(Meter& meter, const Subject& subject) : meter_(meter), subject_(subject) {}

  Status call() override { return meter_.issue(subject_); }
  Status start() override { return meter_.start(subject_, meter_.stream_.get()); }
  Status finish() override { return meter_.stream_.wait(subject_.communicator.get()); }
  bool queues() const override { return meter_.stream_.gpu() != nullptr; }

 private:
  Meter& meter_;
  const Subject& subject_;
};

Result<Meter::Overlaps> Meter::run_overlap(Communicator& communicator, const Call& call, bool in_place,
                                           double alone, std::optional<uint64_t>& wrong) {
  const Subject subject{communicator, call, call.place(input_, output_, in_place)};
  Calls calls(*this, subject);
  EPCCL_ASSIGN(const std::unique_ptr<MatrixProducts> products,
               MatrixProducts::make(options_.device, options_.overlap->gemm_size));
  OverlapMeter meter(coordinator_, options_, *products);
  std::vector<Overlapped*> subjects{&calls};
  std::unique_ptr<BareCopies> copies;
  if (options_.beside_copies) {
    EPCCL_ASSIGN(copies, BareCopies::make(subject.operands.input, subject.operands.output));
    subjects.push_back(copies.get());
  }
  EPCCL_ASSIGN(const std::vector<Overlap> all, meter.run(subjects, alone));
  Overlaps measured{all.front(), {}};
  if (copies != nullptr) measured.copies = all.back();
  if (!options_.check) return measured;
  EPCCL_TRY(prepare(subject));
  EPCCL_TRY(meter.run_once(calls));
  EPCCL_ASSIGN(const uint64_t here, check(subject, "overlapped"));
  EPCCL_ASSIGN(const std::optional<uint64_t> total, total_of(coordinator_, options_, here));
  if (wrong) *wrong += total.value_or(0);
  return measured;
}

}  // namespace epccl::perf
