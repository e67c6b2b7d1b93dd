// Broadcast, allgather, gather, scatter.
#include <c10/util/Exception.h>

#include <optional>
#include <utility>

#include "backend.hpp"
#include "tensors.hpp"

namespace epccl_torch {

EpcclBackend::WorkPtr EpcclBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  at::Tensor& tensor = single("broadcast", tensors);
  check_root("broadcast", opts.rootRank);
  const auto body = [this, tensor, root = static_cast<int>(opts.rootRank)](const Line& line) {
    const Unit unit = unit_of(tensor);
    Target target(tensor, rank_ == root);
    const auto count = static_cast<size_t>(tensor.numel()) * unit.count;
    ok(epcclBroadcast(line.place(target.data()), line.place(target.data()), count, unit.datatype, root,
                      line.comm, line.stream),
       "broadcast");
    if (rank_ != root) target.finish();
  };
  return issue(c10d::OpType::BROADCAST, "epccl:broadcast", {tensor}, {tensor}, opts, body);
}

EpcclBackend::WorkPtr EpcclBackend::allgather(Lists& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& opts) {
  at::Tensor& input = single("all_gather", inputs);
  TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(size_),
              "epccl: all_gather: ", outputs.empty() ? 0 : outputs[0].size(), " outputs for ", size_,
              " ranks");
  check_same_dtype("all_gather", outputs[0][0], input);
  Blocks blocks(outputs[0]);
  TORCH_CHECK(blocks.counts()[static_cast<size_t>(rank_)] == static_cast<size_t>(input.numel()),
              "epccl: all_gather: input of ", input.numel(), " elements, output of this rank of ",
              blocks.counts()[static_cast<size_t>(rank_)]);
  const auto body = [this, input, blocks](const Line& line) mutable {
    const Unit unit = unit_of(input);
    at::Tensor source = packed(input);
    const auto count = static_cast<size_t>(input.numel()) * unit.count;
    if (blocks.equal()) {
      source = apart(source, blocks.flat(), static_cast<size_t>(rank_ * input.numel()));
      ok(epcclAllGather(line.place(source.const_data_ptr()), line.place(blocks.data()), count, unit.datatype,
                        line.comm, line.stream),
         "all_gather");
    } else {  // tensors of different sizes: everybody sends the same to everybody
      const std::vector<size_t> mine(static_cast<size_t>(size_), count),
          at_zero(static_cast<size_t>(size_), 0);
      Parts to_here(blocks.counts());
      to_here.scale(unit.count);
      if (overlap(source, blocks.flat())) source = source.clone();
      ok(epcclAlltoallv(line.place(source.const_data_ptr()), mine.data(), at_zero.data(),
                        line.place(blocks.data()), to_here.counts.data(), to_here.places.data(),
                        unit.datatype, line.comm, line.stream),
         "all_gather");
    }
    blocks.store();
  };
  return issue(c10d::OpType::ALLGATHER, "epccl:all_gather", {input}, outputs[0], opts, body);
}

EpcclBackend::WorkPtr EpcclBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                    const c10d::AllgatherOptions& opts) {
  Tensors outputs{output}, inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, opts);
}

EpcclBackend::WorkPtr EpcclBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                    const c10d::AllgatherOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(), "epccl: all_gather_into_tensor: ", inputs.size(), " inputs, ",
              outputs.size(), " outputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_tensor("output of all_gather_into_tensor", outputs[i]);
    check_tensor("input of all_gather_into_tensor", inputs[i]);
    check_same_dtype("all_gather_into_tensor", outputs[i], inputs[i]);
    TORCH_CHECK(outputs[i].numel() == size_ * inputs[i].numel(), "epccl: all_gather_into_tensor: input of ",
                inputs[i].numel(), " elements on ", size_, " ranks, output of ", outputs[i].numel());
  }
  const auto body = [this, outputs, inputs](const Line& line) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Unit unit = unit_of(inputs[i]);
      Target target(outputs[i]);
      const at::Tensor source =
          apart(packed(inputs[i]), target.memory(), static_cast<size_t>(rank_ * inputs[i].numel()));
      const auto count = static_cast<size_t>(source.numel()) * unit.count;
      ok(epcclAllGather(line.place(source.const_data_ptr()), line.place(target.data()), count, unit.datatype,
                        line.comm, line.stream),
         "all_gather_into_tensor");
      target.finish();
    }
  };
  const bool one = inputs.size() == 1;
  return issue(one ? c10d::OpType::_ALLGATHER_BASE : gather_of_tensors, "epccl:all_gather_into_tensor",
               inputs, outputs, opts, body);
}

EpcclBackend::WorkPtr EpcclBackend::allgather_coalesced(Lists& outputs, Tensors& inputs,
                                                        const c10d::AllgatherOptions& opts) {
  // [rank][tensor] here; a call for each tensor.
  TORCH_CHECK(outputs.size() == static_cast<size_t>(size_), "epccl: all_gather_coalesced: ", outputs.size(),
              " lists of outputs for ", size_, " ranks");
  std::vector<Blocks> blocks;
  Tensors flat;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors of_tensor;
    for (const Tensors& of_rank : outputs) {
      TORCH_CHECK(of_rank.size() == inputs.size(), "epccl: all_gather_coalesced: ", inputs.size(),
                  " inputs, ", of_rank.size(), " outputs of a rank");
      check_same_dtype("all_gather_coalesced", of_rank[i], inputs[i]);
      TORCH_CHECK(of_rank[i].numel() == inputs[i].numel(), "epccl: all_gather_coalesced: input of ",
                  inputs[i].numel(), " elements, output of ", of_rank[i].numel());
      of_tensor.push_back(of_rank[i]);
      flat.push_back(of_rank[i]);
    }
    check_tensor("input of all_gather_coalesced", inputs[i]);
    blocks.emplace_back(of_tensor);
  }
  const auto body = [this, inputs, blocks](const Line& line) mutable {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Unit unit = unit_of(inputs[i]);
      const at::Tensor source =
          apart(packed(inputs[i]), blocks[i].flat(), static_cast<size_t>(rank_ * inputs[i].numel()));
      const auto count = static_cast<size_t>(source.numel()) * unit.count;
      ok(epcclAllGather(line.place(source.const_data_ptr()), line.place(blocks[i].data()), count,
                        unit.datatype, line.comm, line.stream),
         "all_gather_coalesced");
      blocks[i].store();
    }
  };
  return issue(c10d::OpType::ALLGATHER_COALESCED, "epccl:all_gather_coalesced", inputs, flat, opts, body);
}

EpcclBackend::WorkPtr EpcclBackend::gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  at::Tensor& input = single("gather", inputs);
  check_root("gather", opts.rootRank);
  const bool root = rank_ == opts.rootRank;
  TORCH_CHECK(!root || (outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(size_)),
              "epccl: gather: ", outputs.empty() ? 0 : outputs[0].size(), " outputs for ", size_, " ranks");
  TORCH_CHECK(root || outputs.empty() || outputs[0].empty(), "epccl: gather: outputs on rank ", rank_,
              ", which is not the root");
  std::vector<Blocks> blocks;
  if (root) {
    check_same_dtype("gather", outputs[0][0], input);
    blocks.emplace_back(outputs[0]);
    TORCH_CHECK(blocks[0].equal() && blocks[0].counts()[0] == static_cast<size_t>(input.numel()),
                "epccl: gather: every output must have the input's ", input.numel(), " elements");
  }
  const auto body = [this, input, blocks, to = static_cast<int>(opts.rootRank)](const Line& line) mutable {
    const Unit unit = unit_of(input);
    at::Tensor source = packed(input);
    if (!blocks.empty()) source = apart(source, blocks[0].flat(), static_cast<size_t>(rank_ * input.numel()));
    const auto count = static_cast<size_t>(input.numel()) * unit.count;
    ok(epcclGather(line.place(source.const_data_ptr()),
                   blocks.empty() ? nullptr : line.place(blocks[0].data()), count, unit.datatype, to,
                   line.comm, line.stream),
       "gather");
    if (!blocks.empty()) blocks[0].store();
  };
  return issue(c10d::OpType::GATHER, "epccl:gather", {input}, root ? outputs[0] : Tensors{}, opts, body);
}

EpcclBackend::WorkPtr EpcclBackend::gather_single(at::Tensor& output, at::Tensor& input,
                                                  const c10d::GatherOptions& opts) {
  check_tensor("input of gather_single", input);
  check_root("gather_single", opts.rootRank);
  const bool root = rank_ == opts.rootRank;
  if (root) {  // elsewhere the output is not used
    check_tensor("output of gather_single", output);
    check_same_dtype("gather_single", output, input);
    TORCH_CHECK(output.numel() == size_ * input.numel(), "epccl: gather_single: input of ", input.numel(),
                " elements on ", size_, " ranks, output of ", output.numel());
  }
  const auto body = [this, input, output, root, to = static_cast<int>(opts.rootRank)](const Line& line) {
    const Unit unit = unit_of(input);
    at::Tensor source = packed(input);
    const auto count = static_cast<size_t>(source.numel()) * unit.count;
    std::optional<Target> target;
    if (root) target.emplace(output);
    if (root) source = apart(source, target->memory(), static_cast<size_t>(rank_ * source.numel()));
    ok(epcclGather(line.place(source.const_data_ptr()), root ? line.place(target->data()) : nullptr, count,
                   unit.datatype, to, line.comm, line.stream),
       "gather_single");
    if (root) target->finish();
  };
  return issue(c10d::OpType::GATHER, "epccl:gather_single", {input}, root ? Tensors{output} : Tensors{}, opts,
               body);
}

EpcclBackend::WorkPtr EpcclBackend::scatter(Tensors& outputs, Lists& inputs,
                                            const c10d::ScatterOptions& opts) {
  at::Tensor& output = single("scatter", outputs);
  check_root("scatter", opts.rootRank);
  const bool root = rank_ == opts.rootRank;
  TORCH_CHECK(!root || (inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size_)),
              "epccl: scatter: ", inputs.empty() ? 0 : inputs[0].size(), " inputs for ", size_, " ranks");
  TORCH_CHECK(root || inputs.empty() || inputs[0].empty(), "epccl: scatter: inputs on rank ", rank_,
              ", which is not the root");
  std::vector<Blocks> blocks;
  if (root) {
    check_same_dtype("scatter", inputs[0][0], output);
    blocks.emplace_back(inputs[0]);
    TORCH_CHECK(blocks[0].equal() && blocks[0].counts()[0] == static_cast<size_t>(output.numel()),
                "epccl: scatter: every input must have the output's ", output.numel(), " elements");
  }
  const auto body = [this, output, blocks, from = static_cast<int>(opts.rootRank)](const Line& line) mutable {
    const Unit unit = unit_of(output);
    Target target(output);
    at::Tensor parts;
    if (!blocks.empty()) {
      blocks[0].load();
      parts = blocks[0].flat();
      if (clash(target.memory(), parts, static_cast<size_t>(rank_ * output.numel()))) parts = parts.clone();
    }
    const auto count = static_cast<size_t>(output.numel()) * unit.count;
    ok(epcclScatter(blocks.empty() ? nullptr : line.place(parts.const_data_ptr()), line.place(target.data()),
                    count, unit.datatype, from, line.comm, line.stream),
       "scatter");
    target.finish();
  };
  return issue(c10d::OpType::SCATTER, "epccl:scatter", root ? inputs[0] : Tensors{}, {output}, opts, body);
}

}  // namespace epccl_torch
