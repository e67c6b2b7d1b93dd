// A communicator of the C API that closes itself, and the API's errors as Status.
#pragma once

#include <string>

#include "base/status.hpp"
#include "epccl/epccl.h"

namespace epccl::perf {

/// A failing call as a Status: "epcclAlltoall: <what the code means>: <epcclGetLastError>". Ask at once, on
/// the thread that called.
Status api_status(const char* call, epcclResult_t result, epcclComm_t comm = nullptr);

/// Settings of Communicator::create().
struct CommunicatorSettings {
  std::string algorithm;  // "flat", "two_stage", "auto"
  double timeout = 0;     // seconds; 0: EPCCL_TIMEOUT
  std::string name;       // for log lines
};

/// Owns an epcclComm_t. Destroyed without close(), it aborts: the other ranks then hear of it at once.
class Communicator {
 public:
  static Result<Communicator> create(int ranks, const epcclUniqueId& id, int rank,
                                     const CommunicatorSettings& settings);

  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&& other) noexcept;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() { abort(); }

  epcclComm_t get() const { return comm_; }
  const std::string& algorithm() const { return algorithm_; }

  /// Who moves the data of the calls that follow; "": as the library's settings say.
  Status use_engine(const std::string& engine);

  /// A regular end: finalizes and destroys. Collective.
  Status close();
  void abort();

 private:
  Communicator(epcclComm_t comm, std::string algorithm) : comm_(comm), algorithm_(std::move(algorithm)) {}

  epcclComm_t comm_ = nullptr;
  std::string algorithm_;
};

class Gpu;

/// How calls of `comm` on a GPU's memory ended, which the GPU's stream does not tell.
Status outcome_on_gpu(epcclComm_t comm);

/// NULL, or a stream of the library that is destroyed with this, or a GPU's NULL stream.
class Stream {
 public:
  static Result<Stream> create();
  Stream() = default;
  explicit Stream(Gpu* gpu) : gpu_(gpu) {}
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)), gpu_(other.gpu_) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(gpu_, other.gpu_);
    return *this;
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  epcclStream_t get() const { return stream_; }
  /// Whose NULL stream it is; null: none's.
  Gpu* gpu() const { return gpu_; }
  /// Whether calls return before they are over.
  bool goes_on() const { return stream_ != nullptr || gpu_ != nullptr; }
  /// Waits for the calls on it; `comm` explains errors.
  Status wait(epcclComm_t comm) const;

 private:
  epcclStream_t stream_ = nullptr;
  Gpu* gpu_ = nullptr;
};

}  // namespace epccl::perf
