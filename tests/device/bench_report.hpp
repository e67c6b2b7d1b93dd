// What a benchmark has measured so far, in its file after every case, however the program ends.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace epccl::device::test {

class BenchReport {
 public:
  using Json = nlohmann::ordered_json;

  /// `file`: null: none is written.
  explicit BenchReport(const char* file) : file_(file == nullptr ? "" : file) {}

  /// What every case is seen by: rates of copies, say.
  Json& facts() { return json_; }
  /// A case of `list`, which `naming` says the name of first: `work` gives its figures. One that throws has failed, and is told with why; the others go on.
  template <typename Work>
  void add(const char* list, Json naming, const Work& work) {
    naming.update(figures_of(naming.begin()->get<std::string>(), work));
    json_[list].push_back(std::move(naming));
    write();
  }
  /// The same of a report that has each case under its name.
  template <typename Work>
  void set(const std::string& name, const Work& work) {
    json_[name] = figures_of(name, work);
    write();
  }
  bool has_failures() const { return has_failures_; }

 private:
  template <typename Work>
  Json figures_of(const std::string& name, const Work& work) {
    try {
      return work();
    } catch (const std::exception& failure) {
      has_failures_ = true;
      fmt::print("{}: failed: {}\n", name, failure.what());
      return {{"failed", failure.what()}};
    }
  }
  /// All of it, or what was there before: this program may be ended at any time.
  void write() const {
    std::fflush(stdout);
    if (file_.empty()) return;
    const std::string written = file_ + ".new";
    std::ofstream(written) << json_.dump(2) << '\n';
    if (std::rename(written.c_str(), file_.c_str()) != 0)
      throw std::runtime_error(fmt::format("{} cannot be written", file_));
  }

  const std::string file_;
  Json json_;
  bool has_failures_ = false;
};

}  // namespace epccl::device::test
