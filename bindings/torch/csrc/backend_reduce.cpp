// Allreduce, reduce, reduce-scatter.
#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "backend.hpp"
#include "reduction.hpp"
#include "tensors.hpp"

namespace epccl_torch {
namespace {

/// All ranks' tensors, bit by bit, into `memory`.
void reduce_bits(const at::Tensor& memory, const c10d::ReduceOp& op, int ranks, const Line& line) {
  const Unit unit = unit_of(memory);
  const at::Tensor all = at::empty({ranks, memory.numel()}, memory.options());
  check(
      epcclAllGather(line.place(memory.const_data_ptr()), line.place(all.mutable_data_ptr()),
                     static_cast<size_t>(memory.numel()) * unit.count, unit.datatype, line.comm, line.stream),
      "reduction of bits");
  at::Tensor result = all[0];
  for (int rank = 1; rank < ranks; ++rank) fold_bits(result, all[rank], op);
  memory.view({-1}).copy_(result);
}

}  // namespace

EpcclBackend::WorkPtr EpcclBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (!tensors.empty() && tensors[0].is_sparse()) return allreduce_sparse(tensors, opts);
  (void)single("all_reduce", tensors);
  c10d::AllreduceCoalescedOptions same;
  static_cast<c10d::AllreduceOptions&>(same) = opts;
  return allreduce_coalesced(tensors, same);
}

EpcclBackend::WorkPtr EpcclBackend::allreduce_coalesced(Tensors& tensors,
                                                        const c10d::AllreduceCoalescedOptions& opts) {
  TORCH_CHECK(!tensors.empty(), "epccl: all_reduce of no tensor");
  for (const at::Tensor& tensor : tensors) {
    check_tensor("tensor of all_reduce", tensor);
    check_same_dtype("all_reduce", tensors[0], tensor);
  }
  const Tensors reals = as_reals("all_reduce", tensors, opts.reduceOp);
  check_reduction("all_reduce", reals[0], opts.reduceOp);
  const auto body = [this, reals, op = opts.reduceOp](const Line& line) {
    // Several tensors go as one: the library's calls cost more than the copy, where they are small.
    const bool one = reals.size() == 1;
    Blocks blocks(reals);
    std::optional<Target> target;
    if (one) target.emplace(reals[0], true);
    if (!one) blocks.load();
    size_t count = 0;
    for (const size_t part : blocks.counts()) count += part;
    void* data = line.place(one ? target->data() : blocks.data());
    if (is_bitwise(op)) {
      reduce_bits(one ? target->memory() : blocks.flat(), op, size_, line);
    } else {
      const Reduction reduction("all_reduce", reals[0], op, line.comm);
      ok(epcclAllReduce(data, data, count, reduction.datatype, reduction.op, line.comm, line.stream),
         "all_reduce");
    }
    one ? target->finish() : blocks.store();
  };
  const auto type = tensors.size() == 1 ? c10d::OpType::ALLREDUCE : c10d::OpType::ALLREDUCE_COALESCED;
  return issue(type, "epccl:all_reduce", tensors, tensors, opts, body);
}

EpcclBackend::WorkPtr EpcclBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const at::Tensor tensor = as_reals("reduce", single("reduce", tensors), opts.reduceOp);
  check_root("reduce", opts.rootRank);
  check_reduction("reduce", tensor, opts.reduceOp);
  const auto body = [this, tensor, op = opts.reduceOp,
                     root = static_cast<int>(opts.rootRank)](const Line& line) {
    // Only the root's tensor changes.
    Target target(tensor, true);
    if (is_bitwise(op)) {
      const at::Tensor result = rank_ == root ? target.memory() : target.memory().clone();
      reduce_bits(result, op, size_, line);
    } else {
      const Reduction reduction("reduce", tensor, op, line.comm);
      ok(epcclReduce(line.place(target.data()), rank_ == root ? line.place(target.data()) : nullptr,
                     static_cast<size_t>(tensor.numel()), reduction.datatype, reduction.op, root, line.comm,
                     line.stream),
         "reduce");
    }
    if (rank_ == root) target.finish();
  };
  return issue(c10d::OpType::REDUCE, "epccl:reduce", tensors, tensors, opts, body);
}

EpcclBackend::WorkPtr EpcclBackend::reduce_scatter(Tensors& outputs, Lists& inputs,
                                                   const c10d::ReduceScatterOptions& opts) {
  const at::Tensor output = as_reals("reduce_scatter", single("reduce_scatter", outputs), opts.reduceOp);
  TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size_),
              "epccl: reduce_scatter: ", inputs.empty() ? 0 : inputs[0].size(), " inputs for ", size_,
              " ranks");
  check_same_dtype("reduce_scatter", inputs[0][0], outputs[0]);
  check_reduction("reduce_scatter", output, opts.reduceOp);
  Blocks blocks(as_reals("reduce_scatter", inputs[0], opts.reduceOp));
  const auto mine = static_cast<size_t>(rank_);
  TORCH_CHECK(blocks.counts()[mine] == static_cast<size_t>(output.numel()),
              "epccl: reduce_scatter: output of ", output.numel(), " elements, input of this rank of ",
              blocks.counts()[mine]);
  const auto body = [this, output, blocks, op = opts.reduceOp](const Line& line) mutable {
    Target target(output);
    blocks.load();
    scatter_reduced(blocks.flat(), blocks.counts(), target.memory(), op, line);
    target.finish();
  };
  return issue(c10d::OpType::REDUCE_SCATTER, "epccl:reduce_scatter", inputs[0], outputs, opts, body);
}

// `input`: blocks of `counts` elements, one a rank, of the output's dtype.
void EpcclBackend::scatter_reduced(const at::Tensor& input, const std::vector<size_t>& counts,
                                   const at::Tensor& output, const c10d::ReduceOp& op,
                                   const Line& line) const {
  const auto mine = static_cast<size_t>(rank_);
  const auto element = static_cast<size_t>(output.element_size());
  const auto before = std::accumulate(counts.begin(), counts.begin() + rank_, size_t{0});
  if (is_bitwise(op)) {
    const at::Tensor all = input.clone();
    reduce_bits(all, op, size_, line);
    output.view({-1}).copy_(all.view({-1}).narrow(0, static_cast<int64_t>(before), output.numel()));
    return;
  }
  const Reduction reduction("reduce_scatter", output, op, line.comm);
  const at::Tensor source = clash(output, input, before) ? input.clone() : input;
  const void* const whole = line.place(source.const_data_ptr());
  void* const to = line.place(output.mutable_data_ptr());
  if (std::ranges::adjacent_find(counts, std::not_equal_to<>()) == counts.end()) {
    ok(epcclReduceScatter(whole, to, counts[mine], reduction.datatype, reduction.op, line.comm, line.stream),
       "reduce_scatter");
    return;
  }
  // Blocks of different sizes: one reduction for each rank.
  const auto* from = static_cast<const char*>(whole);
  for (int root = 0; root < size_; ++root) {
    const size_t count = counts[static_cast<size_t>(root)];
    ok(epcclReduce(from, root == rank_ ? to : nullptr, count, reduction.datatype, reduction.op, root,
                   line.comm, line.stream),
       "reduce_scatter");
    from += count * element;
  }
}

EpcclBackend::WorkPtr EpcclBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                         const c10d::ReduceScatterOptions& opts) {
  Tensors outputs{output}, inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

EpcclBackend::WorkPtr EpcclBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                    const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(), "epccl: reduce_scatter_tensor: ", inputs.size(), " inputs, ",
              outputs.size(), " outputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_tensor("output of reduce_scatter_tensor", outputs[i]);
    check_tensor("input of reduce_scatter_tensor", inputs[i]);
    check_same_dtype("reduce_scatter_tensor", outputs[i], inputs[i]);
    check_reduction("reduce_scatter_tensor", as_reals("reduce_scatter_tensor", inputs[i], opts.reduceOp),
                    opts.reduceOp);
    TORCH_CHECK(inputs[i].numel() == size_ * outputs[i].numel(), "epccl: reduce_scatter_tensor: input of ",
                inputs[i].numel(), " elements, output of ", outputs[i].numel(), " on ", size_, " ranks");
  }
  const auto body = [this, to = as_reals("reduce_scatter_tensor", outputs, opts.reduceOp),
                     from = as_reals("reduce_scatter_tensor", inputs, opts.reduceOp),
                     op = opts.reduceOp](const Line& line) {
    for (size_t i = 0; i < from.size(); ++i) {
      const at::Tensor source = packed(from[i]);
      Target target(to[i]);
      const std::vector<size_t> counts(static_cast<size_t>(size_), static_cast<size_t>(to[i].numel()));
      scatter_reduced(source, counts, target.memory(), op, line);
      target.finish();
    }
  };
  const bool one = inputs.size() == 1;
  return issue(one ? c10d::OpType::_REDUCE_SCATTER_BASE : reduce_scatter_of_tensors,
               "epccl:reduce_scatter_tensor", inputs, outputs, opts, body);
}

}  // namespace epccl_torch
