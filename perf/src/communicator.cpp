#include "perf/src/communicator.hpp"

#include <utility>

#include "perf/src/gpu.hpp"

namespace epccl::perf {

Status api_status(const char* call, epcclResult_t result, epcclComm_t comm) {
  if (result == epcclSuccess) return {};
  return error(static_cast<Code>(result), "{}: {}: {}", call, epcclGetErrorString(result),
               epcclGetLastError(comm));
}

Result<Communicator> Communicator::create(int ranks, const epcclUniqueId& id, int rank,
                                          const CommunicatorSettings& settings) {
  epcclConfig_t config = EPCCL_CONFIG_INITIALIZER;
  config.algorithm = settings.algorithm.c_str();
  config.timeout = settings.timeout;
  config.commName = settings.name.c_str();
  epcclComm_t comm = nullptr;
  EPCCL_TRY(api_status("epcclCommInitRankConfig", epcclCommInitRankConfig(&comm, ranks, id, rank, &config)));
  return Communicator(comm, settings.algorithm);
}

Communicator::Communicator(Communicator&& other) noexcept
    : comm_(std::exchange(other.comm_, nullptr)), algorithm_(std::move(other.algorithm_)) {}

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  std::swap(comm_, other.comm_);
  std::swap(algorithm_, other.algorithm_);
  return *this;
}

Status Communicator::use_engine(const std::string& engine) {
  return api_status("epcclCommSetCopyEngine",
                    epcclCommSetCopyEngine(comm_, engine.empty() ? nullptr : engine.c_str()), comm_);
}

Status Communicator::close() {
  if (comm_ == nullptr) return {};
  EPCCL_TRY(api_status("epcclCommFinalize", epcclCommFinalize(comm_), comm_));
  return api_status("epcclCommDestroy", epcclCommDestroy(std::exchange(comm_, nullptr)));
}

void Communicator::abort() {
  // Nothing can be done about an abort that fails, and whatever led here has been reported.
  if (comm_ != nullptr) static_cast<void>(epcclCommAbort(std::exchange(comm_, nullptr)));
}

Result<Stream> Stream::create() {
  Stream stream;
  EPCCL_TRY(api_status("epcclStreamCreate", epcclStreamCreate(&stream.stream_)));
  return stream;
}

Status Stream::wait(epcclComm_t comm) const {
  if (stream_ != nullptr) return api_status("epcclStreamSynchronize", epcclStreamSynchronize(stream_), comm);
  if (gpu_ == nullptr) return {};
  EPCCL_TRY(gpu_->wait());
  return outcome_on_gpu(comm);
}

Status outcome_on_gpu(epcclComm_t comm) {
  epcclResult_t failure = epcclSuccess;
  EPCCL_TRY(api_status("epcclCommGetAsyncError", epcclCommGetAsyncError(comm, &failure), comm));
  return api_status("a call on a GPU's memory", failure, comm);
}

Stream::~Stream() {
  if (stream_ != nullptr) static_cast<void>(epcclStreamDestroy(stream_));
}

}  // namespace epccl::perf
