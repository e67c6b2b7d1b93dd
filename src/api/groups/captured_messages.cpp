// Sends and receives of streams that are being captured into graphs.
#include <algorithm>
#include <memory>

#include "api/groups/capturing.hpp"
#include "api/groups/message_moves.hpp"

namespace epccl::api {
namespace {

using runtime::GpuEnd;
using runtime::P2pOperation;

/// Of one communicator in one group.
struct Messages {
  CommPtr communicator;
  std::vector<P2pOperation> operations;
  Replaying replaying = {};  // prepared

  std::string text() const {
    if (operations.size() == 1) return operations.front().text();
    return fmt::format("group of {} sends and receives", operations.size());
  }
};

/// The part of a group that becomes part of one graph: its streams wait for each other before and after.
struct Part {
  uint64_t capture = 0;
  std::vector<std::shared_ptr<const GpuEnd>> ends;  // one of each stream
  std::vector<Messages> messages;
  std::unique_ptr<device::QueueEvent> event = {};  // prepared
};

const P2pOperation* captured_message(const Item& item) {
  const auto* operation = std::get_if<P2pOperation>(&item.what);
  return operation != nullptr && operation->gpu != nullptr && operation->gpu->capture != nullptr ? operation
                                                                                                 : nullptr;
}

Status add(std::vector<Part>& parts, const Item& item, const P2pOperation& operation) {
  EPCCL_ASSIGN(const uint64_t capture, operation.gpu->capture->capture());
  if (capture == 0)
    return not_capturable(operation.text(), "the capture has ended before the group of the call has");
  auto part = std::ranges::find(parts, capture, &Part::capture);
  if (part == parts.end()) part = parts.insert(parts.end(), Part{capture, {}, {}, {}});
  if (std::ranges::find(part->ends, operation.gpu->stream, [](const auto& end) { return end->stream; }) ==
      part->ends.end())
    part->ends.push_back(operation.gpu);
  auto messages = std::ranges::find(part->messages, item.communicator, &Messages::communicator);
  if (messages == part->messages.end())
    messages = part->messages.insert(part->messages.end(), Messages{item.communicator, {}, {}});
  messages->operations.push_back(operation);
  return {};
}

// They would move together outside of a graph, and a message's number would not be what its peer counts.
Status check_all_captured(const std::vector<Item>& items, const std::vector<Part>& parts) {
  const auto holds = [](const Part& part, const CommPtr& communicator) {
    return std::ranges::find(part.messages, communicator, &Messages::communicator) != part.messages.end();
  };
  for (const Item& item : items) {
    const auto* operation = std::get_if<P2pOperation>(&item.what);
    if (operation == nullptr) continue;
    const auto count =
        std::ranges::count_if(parts, [&](const Part& part) { return holds(part, item.communicator); });
    if (count > 1)
      return not_capturable(operation->text(), "the group has calls of this communicator in another graph");
    if (count == 1 && captured_message(item) == nullptr)
      return not_capturable(operation->text(),
                            "it is not captured, and other sends and receives of its group are");
  }
  return {};
}

Status after(device::Queue& later, device::Queue& earlier, device::QueueEvent& event) {
  EPCCL_TRY(earlier.record(event));
  return later.wait(event);
}

// What can be missing, so that a group of which one call cannot be captured leaves nothing in a graph.
Status prepare(Part& part) {
  const GpuEnd& first = *part.ends.front();
  device::Device& device = first.worker->device();
  for (Messages& messages : part.messages) {
    EPCCL_ASSIGN(runtime::OnDevice * on, messages.communicator->on_device(device));
    EPCCL_ASSIGN(messages.replaying,
                 prepare_replays(device, *messages.communicator, *on, messages.text(), first.stream));
  }
  EPCCL_ASSIGN(part.event, device.make_event());
  return {};
}

// All have come before the first is waited for: a driver may run branches of a graph one after the other.
Status write(Part& part) {
  const GpuEnd& first = *part.ends.front();
  for (const auto& end : part.ends)
    if (end.get() != &first) EPCCL_TRY(after(*first.capture, *end->capture, *part.event));
  std::vector<std::shared_ptr<const runtime::ReplayedCall>> begun;
  for (Messages& messages : part.messages) {
    const std::string text = messages.text();
    auto work = [target = messages.communicator.get(), operations = std::move(messages.operations)] {
      return run_messages(*target, operations);
    };
    const Replaying& replaying = messages.replaying;
    EPCCL_ASSIGN(auto call, replaying.calls->begin(text, std::move(work), *replaying.stream));
    begun.push_back(std::move(call));
  }
  for (size_t i = 0; i < begun.size(); ++i) {
    const Replaying& replaying = part.messages[i].replaying;
    EPCCL_TRY(replaying.calls->end(std::move(begun[i]), *replaying.stream));
  }
  for (const auto& end : part.ends)
    if (end.get() != &first) EPCCL_TRY(after(*end->capture, *first.capture, *part.event));
  return {};
}

}  // namespace

Status capture_messages(std::vector<Item>& items) {
  if (std::ranges::none_of(items, captured_message)) return {};
  std::vector<Part> parts;
  for (const Item& item : items)
    if (const P2pOperation* operation = captured_message(item)) EPCCL_TRY(add(parts, item, *operation));
  EPCCL_TRY(check_all_captured(items, parts));
  std::erase_if(items, captured_message);
  for (Part& part : parts) EPCCL_TRY(prepare(part));
  for (Part& part : parts) EPCCL_TRY(write(part));
  return {};
}

}  // namespace epccl::api
