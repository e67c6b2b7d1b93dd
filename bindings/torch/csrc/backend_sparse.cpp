// All-reduce of sparse tensors: everybody's entries go to everybody, who adds them up.
#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "backend.hpp"
#include "tensors.hpp"

namespace epccl_torch {
namespace {

constexpr size_t most_dimensions = 16;

/// What a rank tells of its tensor: plain numbers, as many on every rank.
struct Shape {
  int64_t entries = 0, sparse_dimensions = 0, dtype = 0, dimensions = 0;
  std::array<int64_t, most_dimensions> sizes{};

  bool same_but_for_entries(const Shape& other) const {
    return sparse_dimensions == other.sparse_dimensions && dtype == other.dtype &&
           dimensions == other.dimensions && sizes == other.sizes;
  }
};

Shape shape_of(const at::Tensor& tensor, int64_t entries) {
  Shape shape{entries, tensor.sparse_dim(), static_cast<int64_t>(tensor.scalar_type()), tensor.dim(), {}};
  std::ranges::copy(tensor.sizes(), shape.sizes.begin());
  return shape;
}

/// Sends this rank's rows to all and gets all ranks' rows, rank by rank. `rows`: of each rank.
at::Tensor gather_rows(const at::Tensor& mine, const std::vector<int64_t>& rows, int rank, const Line& line) {
  std::vector<int64_t> sizes = mine.sizes().vec();
  sizes[0] = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const at::Tensor all = at::empty(sizes, mine.options());
  const Unit unit = unit_of(mine);
  const size_t of_row =
      static_cast<size_t>(std::accumulate(sizes.begin() + 1, sizes.end(), int64_t{1}, std::multiplies<>())) *
      unit.count;
  Parts received(std::vector<size_t>(rows.begin(), rows.end()));
  received.scale(of_row);
  const std::vector<size_t> sent(rows.size(), received.counts[static_cast<size_t>(rank)]),
      from_begin(rows.size(), 0);
  check(epcclAlltoallv(line.place(mine.const_data_ptr()), sent.data(), from_begin.data(),
                       line.place(all.mutable_data_ptr()), received.counts.data(), received.places.data(),
                       unit.datatype, line.comm, line.stream),
        "all_reduce of sparse tensors");
  return all;
}

}  // namespace

std::vector<int64_t> EpcclBackend::entries_of_all(const at::Tensor& tensor, int64_t entries,
                                                  const Line& line) const {
  const Shape mine = shape_of(tensor, entries);
  std::vector<Shape> all(static_cast<size_t>(size_));
  ok(epcclAllGather(&mine, all.data(), sizeof mine, epcclUint8, line.comm, line.stream),
     "all_reduce of sparse tensors");
  std::vector<int64_t> each;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    TORCH_CHECK(all[rank].same_but_for_entries(mine), "epccl: all_reduce of sparse tensors: rank ", rank,
                "'s has another shape, dtype or number of sparse dimensions than rank ", rank_, "'s");
    each.push_back(all[rank].entries);
  }
  return each;
}

EpcclBackend::WorkPtr EpcclBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  TORCH_CHECK(tensors.size() == 1, "epccl: all_reduce of sparse tensors: of one at a time");
  const at::Tensor& tensor = tensors[0];
  TORCH_CHECK(tensor.layout() == at::kSparse && tensor.device().is_cpu(),
              "epccl: all_reduce of sparse tensors: they must be COO tensors of the CPU");
  TORCH_CHECK(opts.reduceOp == c10d::ReduceOp::SUM,
              "epccl: all_reduce of sparse tensors: there is a sum, and nothing else");
  TORCH_CHECK(tensor.dim() <= static_cast<int64_t>(most_dimensions),
              "epccl: all_reduce of sparse tensors: one of ", tensor.dim(), " dimensions, where at most ",
              most_dimensions, " are possible");
  const auto body = [this, tensor](const Line& line) {
    const at::Tensor given = tensor.coalesce();
    const std::vector<int64_t> entries = entries_of_all(given, given._nnz(), line);
    // Rows of indices, so that what ranks have lies one behind the other.
    const at::Tensor indices = gather_rows(given.indices().t().contiguous(), entries, rank_, line);
    const at::Tensor values = gather_rows(packed(given.values()), entries, rank_, line);
    tensor.copy_(at::_sparse_coo_tensor_unsafe(indices.t(), values, given.sizes()).coalesce());
  };
  return issue(c10d::OpType::_ALLREDUCE_SPARSE, "epccl:all_reduce_sparse", tensors, tensors, opts, body);
}

}  // namespace epccl_torch
