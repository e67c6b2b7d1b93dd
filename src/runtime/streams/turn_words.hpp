// Words that streams of a device wait for, used again and again: a word only grows, and each use waits for more than the one
// before. They are never given back to the system, since a stream may still be on its way past one.
#pragma once

#include <mutex>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"

namespace epccl::runtime {

class TurnWords {
 public:
  /// Of the device, for the process.
  static TurnWords& of(device::Device& device);

  struct Word {
    device::SignalWord* word = nullptr;
    device::SignalWord* come = nullptr;  // raised by the stream before it waits
    uint64_t value = 0;                  // of both
  };
  Result<Word> take();
  /// Lets through who waits for the word. `is_coming`: a stream was given `come` to raise. It may not have got there yet, and would set back
  /// what another use has raised: till then the pair is not used again.
  void end(const Word& word, bool is_coming);

  explicit TurnWords(device::Device& device) : device_(device) {}

 private:
  Result<std::vector<Word>> make_words();

  device::Device& device_;
  std::mutex mutex_;
  std::vector<Word> free_, coming_;
};

}  // namespace epccl::runtime
