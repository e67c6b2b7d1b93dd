#include "api/groups/dropped_calls.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/log.hpp"

namespace epccl::api {
namespace {

/// Calls of one communicator.
struct CallsOf {
  const runtime::Communicator* communicator = nullptr;
  size_t calls = 0;
};

std::vector<CallsOf> by_communicator(const std::vector<Item>& items) {
  std::vector<CallsOf> all;
  for (const Item& item : items) {
    auto found = std::ranges::find(all, item.communicator.get(), &CallsOf::communicator);
    if (found == all.end()) found = all.insert(all.end(), {item.communicator.get(), 0});
    ++found->calls;
  }
  return all;
}

std::string what_was_dropped(const std::vector<Job>& jobs, const std::vector<Item>& items) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  for (const auto& [communicator, calls] : by_communicator(items))
    add(fmt::format("{} of rank {} of comm {}", calls, communicator->rank(), communicator->config().name));
  if (!jobs.empty()) add(fmt::format("{} that make or end communicators", jobs.size()));
  return text;
}

// Also what is made of it.
bool is_of(const Job& job, const HandlePtr& handle) {
  return job.handle == handle || job.parent == handle;
}

}  // namespace

size_t count_calls(const std::vector<Job>& jobs, const std::vector<Item>& items, const HandlePtr& handle) {
  const CommPtr made = handle->made();
  const auto of_items = std::ranges::count_if(
      items, [&](const Item& item) { return made != nullptr && item.communicator == made; });
  const auto of_jobs = std::ranges::count_if(jobs, [&](const Job& job) { return is_of(job, handle); });
  return static_cast<size_t>(of_items + of_jobs);
}

Status drop_calls(std::vector<Job>& jobs, std::vector<Item>& items, const HandlePtr& handle) {
  const size_t calls = count_calls(jobs, items, handle);
  if (calls == 0) return {};
  Status dropped =
      error(Code::invalid_usage,
            "a communicator was aborted that has {} calls in this group: they were never issued", calls);
  for (const Job& job : jobs) {
    if (job.handle == handle) job.drop(dropped);
    if (job.parent == handle) job.cancel();
  }
  std::erase_if(jobs, [&](const Job& job) { return is_of(job, handle); });
  const CommPtr made = handle->made();
  std::erase_if(items, [&](const Item& item) { return item.communicator == made; });
  return dropped;
}

void drop_unended(std::vector<Job>& jobs, std::vector<Item>& items) {
  if (jobs.empty() && items.empty()) return;
  const Status dropped = error(Code::invalid_usage,
                               "a thread ended with its group open (epcclGroupStart without epcclGroupEnd): "
                               "{} calls were never issued: {}",
                               jobs.size() + items.size(), what_was_dropped(jobs, items));
  log::warn(log::coll, -1, "{}", dropped.message());
  for (const Job& job : jobs) job.drop(dropped);
}

}  // namespace epccl::api
