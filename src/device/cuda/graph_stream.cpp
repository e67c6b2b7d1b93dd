#include "device/graph_stream.hpp"

#include "device/cuda/context.hpp"

namespace epccl::device {
namespace {

using namespace cuda;

class CudaGraphStream : public GraphStream {
 public:
  explicit CudaGraphStream(const Context& context) : context_(context) {}
  CudaGraphStream(const CudaGraphStream&) = delete;
  CudaGraphStream& operator=(const CudaGraphStream&) = delete;
  ~CudaGraphStream() override {
    const CurrentContext current(context_);
    if (stream_ != nullptr) driver().stream_synchronize(stream_);
    forget_graph();
    if (stream_ != nullptr) driver().stream_destroy(stream_);
  }

  Status open() {
    EPCCL_CURRENT(context_);
    return context_.call(driver().stream_create, &stream_, static_cast<unsigned>(CU_STREAM_NON_BLOCKING), 0);
  }

  void* handle() const override { return stream_; }

  // As programs do, in the strictest mode.
  Status begin_capture() override {
    EPCCL_CURRENT(context_);
    return context_.call(driver().begin_capture, stream_, CU_STREAM_CAPTURE_MODE_GLOBAL);
  }

  Status end_capture() override {
    EPCCL_CURRENT(context_);
    forget_graph();
    CUgraph graph = nullptr;
    EPCCL_TRY(context_.call(driver().end_capture, stream_, &graph));
    Status status = context_.call(driver().graph_instantiate, &executable_, graph, 0ULL);
    driver().graph_destroy(graph);
    return status;
  }

  Status launch() override {
    EPCCL_CURRENT(context_);
    return context_.call(driver().graph_launch, executable_, stream_);
  }

  Status synchronize() override {
    EPCCL_CURRENT(context_);
    return context_.call(driver().stream_synchronize, stream_);
  }

 private:
  const Driver& driver() const { return context_.driver(); }
  void forget_graph() {
    if (executable_ != nullptr) driver().graph_executable_destroy(executable_);
    executable_ = nullptr;
  }

  const Context context_;
  CUstream stream_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<GraphStream>> GraphStream::make(int ordinal) {
  EPCCL_ASSIGN(const Driver* driver, cuda::driver());
  EPCCL_ASSIGN(const Context context, Context::retain(*driver, ordinal));
  auto stream = std::make_unique<CudaGraphStream>(context);
  EPCCL_TRY(stream->open());
  return std::unique_ptr<GraphStream>(std::move(stream));
}

}  // namespace epccl::device
