// epcclCommSetCopyEngine: who moves the data of the calls that follow.
#include "api/handles.hpp"
#include "api/last_error.hpp"

using namespace epccl::api;

epcclResult_t epcclCommSetCopyEngine(epcclComm_t comm, const char* copyEngine) {
  return guarded([&]() -> epccl::Status {
    EPCCL_ASSIGN(const CommPtr communicator, find_usable_communicator(comm));
    epccl::runtime::EngineUse use = communicator->config().engines.use;
    if (copyEngine != nullptr) {
      EPCCL_ASSIGN(use, epccl::runtime::parse_engine_use(copyEngine));
    }
    communicator->set_engine_use(use);
    return {};
  });
}
