// Gloo's alltoall and alltoallv; see bench.hpp. Ranks and meeting place from EPCCL_RANK,
// EPCCL_WORLD_SIZE and EPCCL_STORE, the network device from EPCCL_SOCKET_IFNAME (without it: loopback).
#include <gloo/allgather.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>

#include "bench.hpp"

namespace {

std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

class GlooPeer : public peers::Peer {
 public:
  GlooPeer() {
    gloo::transport::tcp::attr attributes;
    attributes.iface = environment("EPCCL_SOCKET_IFNAME", "");
    if (attributes.iface.empty()) attributes.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(environment("EPCCL_STORE", "."));
    context_ = std::make_shared<gloo::rendezvous::Context>(std::stoi(environment("EPCCL_RANK", "0")),
                                                           std::stoi(environment("EPCCL_WORLD_SIZE", "1")));
    context_->connectFullMesh(store, device);
  }

  int rank() const override { return context_->rank; }
  int ranks() const override { return context_->size; }
  void barrier() override {
    gloo::BarrierOptions options(context_);
    options.setTag(tag_++);
    gloo::barrier(options);
  }
  std::vector<double> maximum(std::vector<double> values) override {
    std::vector<double> all(values.size() * static_cast<size_t>(ranks()));
    gloo::AllgatherOptions options(context_);
    options.setInput(values.data(), values.size());
    options.setOutput(all.data(), all.size());
    options.setTag(tag_++);
    gloo::allgather(options);
    for (size_t i = 0; i < all.size(); i++)
      values[i % values.size()] = std::max(values[i % values.size()], all[i]);
    return values;
  }
  void alltoall(const char* send, char* recv, int bytes) override {
    const size_t total = static_cast<size_t>(bytes) * static_cast<size_t>(ranks());
    gloo::AlltoallOptions options(context_);
    options.setInput(const_cast<char*>(send), total);
    options.setOutput(recv, total);
    options.setTag(tag_++);
    gloo::alltoall(options);
  }
  void alltoallv(const char* send, char* recv, const peers::Layout& layout) override {
    gloo::AlltoallvOptions options(context_);
    options.setInput(const_cast<char*>(send), {layout.send_bytes.begin(), layout.send_bytes.end()});
    options.setOutput(recv, {layout.recv_bytes.begin(), layout.recv_bytes.end()});
    options.setTag(tag_++);
    gloo::alltoallv(options);
  }

 private:
  std::shared_ptr<gloo::rendezvous::Context> context_;
  uint32_t tag_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  GlooPeer peer;
  return peers::run_benchmark(peer, argc, argv);
}
