#include "algorithms/alltoall/exchange.hpp"

#include <utility>

namespace epccl::algorithms {

Exchange Exchange::uniform(int ranks, uint64_t block_bytes) {
  Exchange exchange;
  exchange.ranks_ = ranks;
  exchange.uniform_ = true;
  exchange.block_ = block_bytes;
  return exchange;
}

Exchange Exchange::packed(int ranks, std::vector<uint64_t> bytes, uint64_t gap) {
  const auto count = static_cast<size_t>(ranks);
  Exchange exchange;
  exchange.ranks_ = ranks;
  for (size_t rank = 0; rank < count; ++rank) {
    exchange.row_of_.push_back(static_cast<int>(rank));
    std::vector<uint64_t> row(count), column(count), inputs(count), outputs(count);
    uint64_t input = 0, output = 0;
    for (size_t peer = 0; peer < count; ++peer) {
      row[peer] = bytes[rank * count + peer];
      column[peer] = bytes[peer * count + rank];
      inputs[peer] = std::exchange(input, input + row[peer] + gap);
      outputs[peer] = std::exchange(output, output + column[peer] + gap);
    }
    exchange.rows_.push_back(std::move(row));
    exchange.columns_.push_back(std::move(column));
    exchange.input_offsets_.push_back(std::move(inputs));
    exchange.output_offsets_.push_back(std::move(outputs));
  }
  return exchange;
}

Exchange Exchange::of_node(int ranks, const std::vector<int>& locals, std::vector<std::vector<uint64_t>> rows,
                           std::vector<std::vector<uint64_t>> input_offsets,
                           std::vector<std::vector<uint64_t>> columns,
                           std::vector<std::vector<uint64_t>> output_offsets) {
  Exchange exchange;
  exchange.ranks_ = ranks;
  exchange.row_of_.assign(static_cast<size_t>(ranks), -1);
  for (size_t i = 0; i < locals.size(); ++i)
    exchange.row_of_[static_cast<size_t>(locals[i])] = static_cast<int>(i);
  exchange.rows_ = std::move(rows);
  exchange.input_offsets_ = std::move(input_offsets);
  exchange.columns_ = std::move(columns);
  exchange.output_offsets_ = std::move(output_offsets);
  return exchange;
}

std::vector<plan::Transfer> Exchange::transfers() const {
  std::vector<plan::Transfer> list;
  for (int source = 0; source < ranks_; ++source)
    for (int destination = 0; destination < ranks_; ++destination)
      if (const uint64_t length = bytes(source, destination); length > 0)
        list.push_back({source, input_offset(source, destination), destination,
                        output_offset(destination, source), length});
  return list;
}

}  // namespace epccl::algorithms
