#include "runtime/queues/device_messages.hpp"

#include <algorithm>
#include <utility>

#include "runtime/executor/message_key.hpp"

namespace epccl::runtime {

DeviceMessages::DeviceMessages(device::Device& device, transports::MessageTransport& network,
                               uint64_t stage_bytes, int ranks)
    : device_(device),
      network_(network),
      stage_bytes_(stage_bytes),
      ranks_(ranks),
      pieces_(network, piece_of_stage(stage_bytes, ranks)) {}

Status DeviceMessages::prepare() {
  EPCCL_ASSIGN(stage_, PinnedStage::make(device_, stage_bytes_, piece_bytes(), ranks_));
  return {};
}

void DeviceMessages::begin(const QueueCall& call, const DeviceProgram& program, const Buffers& buffers) {
  sequence_ = call.sequence;
  meaning_ = call.meaning;
  done_.clear();
  pieces_.begin(stage_.get(), program.largest_piece, program.peers, call.by_cores, call.movers.blocks);
  find_direct(program, buffers);
}

// To be asked anew for each call: memory may have been freed and allocated since.
void DeviceMessages::find_direct(const DeviceProgram& program, const Buffers& buffers) {
  const CompiledPlan& plan = program.plan;
  const std::array bytes{plan.input_bytes, plan.output_bytes, plan.scratch_bytes};
  direct_ = {};
  why_not_direct_.clear();
  for (size_t buffer = 0; buffer < buffers.size(); ++buffer) {
    if (!program.in_messages[buffer] || bytes[buffer] == 0) continue;
    auto memory = network_.device_memory(device_, buffers[buffer], bytes[buffer]);
    if (memory.ok()) {
      direct_[buffer] = std::move(memory).value();
    } else if (why_not_direct_.empty()) {
      why_not_direct_ = memory.status().message();
    }
  }
}

std::string DeviceMessages::way() const {
  const bool some = std::ranges::any_of(direct_, [](const auto& memory) { return memory != nullptr; });
  if (why_not_direct_.empty()) return some ? "as they lie in GPU memory" : "(none)";
  return fmt::format("{}by way of pinned memory, {} bytes at once at most ({})",
                     some ? "as they lie in GPU memory, and " : "", piece_bytes(), why_not_direct_);
}

void DeviceMessages::add(const Message& message, bool is_send) {
  using Way = MessagePieces::Message::Way;
  const transports::DeviceMemory* lies_in = direct_[static_cast<size_t>(message.buffer)].get();
  pieces_.add({message.step, message.peer, pieces_of(message.bytes, piece_bytes()),
               message_key(sequence_, meaning_, message.first_piece),
               message_key(sequence_, meaning_, message.first_piece + 1), message.memory, message.bytes,
               lies_in != nullptr ? Way::direct : Way::staged, lies_in, is_send});
}

Result<bool> DeviceMessages::move() {
  EPCCL_ASSIGN(const bool moved, pieces_.move());
  while (auto ended = pieces_.ended()) {
    if (!ended->status.ok()) return std::move(ended->status);
    if (ended->bytes != ended->message.bytes)
      return error(Code::invalid_usage, "rank {} sent {} bytes where {} are expected", ended->message.peer,
                   ended->bytes, ended->message.bytes);
    done_.push_back(static_cast<uint32_t>(ended->message.token));
  }
  return moved;
}

std::optional<uint32_t> DeviceMessages::done() {
  if (done_.empty()) return std::nullopt;
  const uint32_t step = done_.front();
  done_.pop_front();
  return step;
}

std::string DeviceMessages::waiting_for() const {
  if (const auto* message = pieces_.waiting_for(); message != nullptr)
    return fmt::format("rank {}: step {} {} of {} bytes over {}", message->peer, message->token,
                       message->is_send ? "send" : "recv", message->bytes, network_.name());
  return drained() ? "" : "the network to take what was sent";
}

}  // namespace epccl::runtime
