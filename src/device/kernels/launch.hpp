// The CUDA kernels as those who launch them see them: no CUDA types.
//
//   const auto launch = reduce_launch(reduction, sources, final, destination, elements, grid);
//   void* argument = &launch.parameters;
//   cuLaunchKernel(function of launch.kernel, launch.blocks, 1, 1, launch.threads, 1, 1, 0, stream, &argument, nullptr)
//
// The function is the one called kernel->name in the module that image(kernel->image) is loaded as; modules are loaded once a context.
// Kernels use no shared memory, and nothing of the device but what their parameters point to. What a parameter points to, lists and
// counts too, is read when the kernel runs: it must be memory that the device can read, and may be written by work queued before.
// Where a launch has no blocks there is nothing to do: it must be left out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "device/host/reduction.hpp"
#include "device/host/row_type.hpp"
#include "device/kernels/layout_parameters.hpp"
#include "device/kernels/parameters.hpp"
#include "device/kernels/signal_parameters.hpp"
#include "device/kernels/token_stream_parameters.hpp"

namespace epccl::device::kernels {

/// A fatbin: code for sm_80, sm_90 and sm_100, and PTX for what comes after.
enum class Image : uint8_t { reduce, rows, sums, layout, copies, signals };
inline constexpr Image all_images[] = {Image::reduce, Image::rows,   Image::sums,
                                       Image::layout, Image::copies, Image::signals};
const char* to_string(Image image);

/// Its bytes, for cuModuleLoadData. Empty where the library was built without a CUDA toolkit.
std::span<const std::byte> bytes_of(Image image);

struct Kernel {
  const char* name = nullptr;
  Image image = Image::reduce;
};
/// Every kernel that a launch can name.
std::span<const Kernel> all_kernels();

inline constexpr uint32_t block_threads = 256;

/// How many blocks of each kernel a multiprocessor of some device runs at once.
class Residency {
 public:
  void set(const Kernel& kernel, uint32_t blocks) { blocks_[kernel.name] = blocks; }
  /// 0: not known.
  uint32_t of(const Kernel& kernel) const;

 private:
  std::map<std::string, uint32_t, std::less<>> blocks_;
};

/// How many blocks a launch may use.
struct Grid {
  uint32_t most_blocks = 0;              // 0: as many as are fastest
  uint32_t multiprocessors = 132;        // of the device
  const Residency* residency = nullptr;  // of the device; null: not known

  /// As many as there is work for, within these bounds.
  uint32_t blocks(uint64_t wanted) const;
  /// The same for a kernel whose warps take pieces of work in turn: few enough that a warp prepares once for several of them. `least_bytes`: of the launch.
  uint32_t blocks_in_turn(const Kernel& kernel, uint64_t wanted, uint64_t least_bytes = 0) const;
};

template <class Parameters>
struct Launch {
  Kernel kernel;
  uint32_t blocks = 0;  // 0: nothing to do
  uint32_t threads = block_threads;
  Parameters parameters;
  /// What has to be read and written, each byte once: divided by the device's bandwidth the least time this can take.
  uint64_t least_bytes = 0;
};

/// One call of device::reduce(), with the same bits: at least one source, at most max_reduce_sources; any alignment; `destination`
/// may be exactly one of the sources. `device_scalar`: of premul_sum, an element that is read when the kernel runs, instead of
/// reduction.scalar_bits; aligned to its size. `also`: places that get the result, too, as ReduceWork's; at most max_reduce_sources.
Launch<ReduceParameters> reduce_launch(const Reduction& reduction, std::span<const ReduceSource> sources,
                                       bool final, std::byte* destination, uint64_t elements,
                                       const Grid& grid, const void* device_scalar = nullptr,
                                       std::span<std::byte* const> also = {});

// Of the following, parameters.hpp says what the parameters mean; those of a launch are the given ones, completed. least_bytes counts
// all rows, places and terms that there may be.

/// Copies rows by list: gather, scatter, permute where a row goes to one place.
Launch<MoveParameters> move_launch(const MoveParameters& parameters, const Grid& grid);

/// The same, while part 0 becomes elements of `type`: device::dequantise_e4m3().
Launch<MoveParameters> dequantise_launch(RowType type, const MoveParameters& parameters, const Grid& grid);

/// Clears rows: row i of the destinations' arrays where sources.list[i] is no_row, which is all that is looked at of the sources.
Launch<MoveParameters> clear_launch(const MoveParameters& parameters, const Grid& grid);

/// Copies every row to all its places: permute, dispatch.
Launch<SpreadParameters> spread_launch(const SpreadParameters& parameters, const Grid& grid);

/// The same, while part 0 becomes float8: device::quantise_e4m3().
Launch<SpreadParameters> quantise_launch(RowType type, const SpreadParameters& parameters, const Grid& grid);

enum class Operands : uint8_t { plain, float8 };

/// Sums of rows: unpermute, combine. `terms`: of all sums, at most. Operands of float8 are first made elements of `type`, as
/// dequantise_launch() would; plain ones may be overwritten by the sum.
Launch<SumParameters> sum_launch(RowType type, Operands operands, const SumParameters& parameters,
                                 uint64_t terms, const Grid& grid);

/// A layout from routing tables, as ep::Routing and ep::NodeSlots make it: to be launched one after the other. The last finds the rows
/// of single entries; where only totals are wanted it can be left out.
std::array<Launch<LayoutParameters>, 4> layout_launches(const LayoutParameters& parameters, const Grid& grid);
Launch<TermsParameters> terms_launch(const TermsParameters& parameters, const Grid& grid);
/// The lists of plans of several nodes; then, behind terms_launch(), the sums of what comes back.
Launch<TokenStreamParameters> lists_launch(const TokenStreamParameters& parameters, const Grid& grid);
Launch<TokenStreamParameters> final_sums_launch(const TokenStreamParameters& parameters, const Grid& grid);
Launch<WeightsParameters> weights_launch(const WeightsParameters& parameters, const Grid& grid);
Launch<CountersParameters> counters_launch(const CountersParameters& parameters, const Grid& grid);
Launch<TopkParameters> topk_launch(const TopkParameters& parameters, const Grid& grid);

/// Small copies by one kernel, where to start each on a copy engine costs more than to copy; then signals. At most max_small_copies and
/// max_signals. `arrived` as in CopiesParameters.
Launch<CopiesParameters> copies_launch(std::span<const SmallCopy> copies, std::span<const Signal> signals,
                                       uint32_t* arrived, const Grid& grid);

/// Posts and waits of a graph's run. A launch that waits takes a warp's place until other ranks have posted.
Launch<SignalParameters> signals_launch(const SignalParameters& parameters);
/// Waits and posts of a call. As there.
Launch<WordParameters> words_launch(const WordParameters& parameters);
/// A call of a graph's run that the host makes. Where it waits it takes a warp's place until then.
Launch<HostCallParameters> host_call_launch(const HostCallParameters& parameters);

}  // namespace epccl::device::kernels
