// MPI's collectives, for Open MPI and MPICH; see bench.hpp.
#include <mpi.h>
#include <unistd.h>

#include <cstring>

#include "bench.hpp"

namespace {

class MpiPeer : public peers::Peer {
 public:
  MpiPeer() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    int local_rank = 0;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node_);
    MPI_Comm_rank(node_, &local_rank);
    MPI_Comm_size(node_, &local_);
    MPI_Comm_split(MPI_COMM_WORLD, local_rank, rank_, &rail_);
    nodes_ = ranks_ / local_;
    int rail_size = 0, equal = 0;
    MPI_Comm_size(rail_, &rail_size);
    const int here = rank_ == rank_of(rank_ / local_, local_rank) && rail_size == nodes_ ? 1 : 0;
    MPI_Allreduce(&here, &equal, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    can_twostage_ = equal == 1 && nodes_ * local_ == ranks_;
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  std::vector<double> maximum(std::vector<double> values) override {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
    return values;
  }
  void alltoall(const char* send, char* recv, int bytes) override {
    MPI_Alltoall(send, bytes, MPI_BYTE, recv, bytes, MPI_BYTE, MPI_COMM_WORLD);
  }
  void alltoallv(const char* send, char* recv, const peers::Layout& layout) override {
    MPI_Alltoallv(send, layout.send_bytes.data(), layout.send_offsets.data(), MPI_BYTE, recv,
                  layout.recv_bytes.data(), layout.recv_offsets.data(), MPI_BYTE, MPI_COMM_WORLD);
  }

  /// What a user would write: along the rails, then inside the nodes. Ranks must be numbered node by node.
  bool twostage(const char* send, char* recv, int bytes) override {
    if (!can_twostage_) return false;
    const auto size = static_cast<size_t>(bytes);
    const auto nodes = static_cast<size_t>(nodes_), local = static_cast<size_t>(local_);
    staging_.resize(nodes * local * size);
    packed_.resize(nodes * local * size);
    // `send` is [node][local] by destination, so the blocks for a node are one message.
    MPI_Alltoall(send, local_ * bytes, MPI_BYTE, staging_.data(), local_ * bytes, MPI_BYTE, rail_);
    transpose(staging_.data(), packed_.data(), nodes, local,
              size);  // [source node][local] to [local][source node]
    MPI_Alltoall(packed_.data(), nodes_ * bytes, MPI_BYTE, staging_.data(), nodes_ * bytes, MPI_BYTE, node_);
    transpose(staging_.data(), recv, local, nodes, size);  // [source local][source node] to source order
    return true;
  }

  bool collective(peers::Collective which, const float* send, float* recv, int count) override {
    using peers::Collective;
    const MPI_Comm world = MPI_COMM_WORLD;
    switch (which) {
      case Collective::allgather:
        return MPI_Allgather(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, world) == MPI_SUCCESS;
      case Collective::reduce_scatter:
        return MPI_Reduce_scatter_block(send, recv, count, MPI_FLOAT, MPI_SUM, world) == MPI_SUCCESS;
      case Collective::allreduce:
        return MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, world) == MPI_SUCCESS;
      case Collective::broadcast:
        return MPI_Bcast(recv, count, MPI_FLOAT, 0, world) == MPI_SUCCESS;
      case Collective::reduce:
        return MPI_Reduce(send, recv, count, MPI_FLOAT, MPI_SUM, 0, world) == MPI_SUCCESS;
      case Collective::gather:
        return MPI_Gather(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, 0, world) == MPI_SUCCESS;
      case Collective::scatter:
        return MPI_Scatter(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, 0, world) == MPI_SUCCESS;
    }
    return false;
  }

 private:
  int rank_of(int node, int local_rank) const { return node * local_ + local_rank; }
  static void transpose(const char* from, char* to, size_t rows, size_t columns, size_t size) {
    for (size_t row = 0; row < rows; row++)
      for (size_t column = 0; column < columns; column++)
        std::memcpy(to + (column * rows + row) * size, from + (row * columns + column) * size, size);
  }

  int rank_ = 0, ranks_ = 1, local_ = 1, nodes_ = 1;
  bool can_twostage_ = false;
  MPI_Comm node_ = MPI_COMM_NULL, rail_ = MPI_COMM_NULL;
  std::vector<char> staging_, packed_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int code = 0;
  {
    MpiPeer peer;
    code = peers::run_benchmark(peer, argc, argv);
  }
  if (std::getenv("PEER_NO_FINALIZE")) {  // MPICH 4.0.2 over UCX and TCP can hang in MPI_Finalize
    usleep(100000);
    _exit(code);
  }
  MPI_Finalize();
  return code;
}
