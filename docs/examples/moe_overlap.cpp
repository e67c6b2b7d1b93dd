// An MoE layer in two micro-batches whose tokens travel beneath matrix products:
//
//   network   [dispatch 0][dispatch 1]       [combine 0]        [combine 1]
//   compute   [shared 0 ] [experts 0        ][experts 1        ][shared 1 ] add up
//
// A stream for each micro-batch: its calls go on by themselves, and waiting for one does not wait for the
// other. The result is compared with that of the same layer one step after the other.
//
//   moe_overlap                    starts two ranks on this machine
//   moe_overlap RANK RANKS FILE    is one rank; FILE, which all can see and which is not there yet, takes the
//   id to the others
#include <cblas.h>
#include <epccl/ep.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr int experts = 8, topk = 2, tokens = 256, hidden = 512, inner = 1024, repetitions = 5;

void check(epcclResult_t result, const char* what) {
  if (result == epcclSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, epcclGetLastError(nullptr));
  std::exit(1);
}
#define CHECK(call) check(call, #call)

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

float noise(uint32_t seed) {  // -0.5 to 0.5
  seed = (seed ^ 61 ^ (seed >> 16)) * 9;
  seed = (seed ^ (seed >> 4)) * 0x27d4eb2d;
  return static_cast<float>((seed ^ (seed >> 15)) >> 8) / static_cast<float>(1 << 24) - 0.5F;
}

/// Rows of floats that the node's other ranks may write directly.
class Matrix {
 public:
  Matrix(size_t rows, size_t columns) : sizes_{rows, columns} {
    void* memory = nullptr;
    CHECK(epcclMemAlloc(&memory, (rows + 1) * columns * sizeof(float)));
    data_.reset(static_cast<float*>(memory));
  }
  float* row(size_t index) const { return data_.get() + index * sizes_[1]; }
  size_t elements() const { return sizes_[0] * sizes_[1]; }
  epcclEpTensor_t tensor() const {
    epcclEpTensor_t made = EPCCL_EP_TENSOR_INIT;
    made.ndim = 2;
    made.data = data_.get();
    made.sizes = sizes_.data();
    return made;
  }

 private:
  struct Free {
    void operator()(float* memory) const { CHECK(epcclMemFree(memory)); }
  };
  std::array<size_t, 2> sizes_;
  std::unique_ptr<float, Free> data_;
};

/// hidden -> inner -> hidden
class Expert {
 public:
  explicit Expert(uint32_t seed) : up_(hidden * inner), down_(inner * hidden) {
    for (size_t i = 0; i < up_.size(); ++i) up_[i] = noise(seed * 7919 + static_cast<uint32_t>(i)) / 16;
    for (size_t i = 0; i < down_.size(); ++i) down_[i] = noise(seed * 104729 + static_cast<uint32_t>(i)) / 16;
  }
  void run(const float* x, int rows, float* y) const {
    if (rows == 0) return;
    static std::vector<float> between;
    between.resize(static_cast<size_t>(rows) * inner);
    multiply(x, rows, hidden, up_, inner, between.data());
    for (float& value : between) value = std::max(value, 0.0F);
    multiply(between.data(), rows, inner, down_, hidden, y);
  }

 private:
  static void multiply(const float* a, int rows, int depth, const std::vector<float>& b, int columns,
                       float* c) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, columns, depth, 1, a, depth, b.data(),
                columns, 0, c, columns);
  }
  std::vector<float> up_, down_;
};

/// The experts of a rank, and the one that every token passes.
struct Layer {
  Layer(int rank, int ranks) : shared(experts) {
    for (int e = rank * experts / ranks; e < (rank + 1) * experts / ranks; ++e)
      own.emplace_back(static_cast<uint32_t>(e));
  }
  Expert shared;
  std::vector<Expert> own;
};

class MicroBatch {
 public:
  MicroBatch(epcclEpGroup_t group, const Layer& layer, uint32_t seed)
      : layer_(layer),
        counts_(layer.own.size()),
        offsets_(layer.own.size()),
        x_(tokens, hidden),
        shared_(tokens, hidden),
        combined_(tokens, hidden) {
    for (size_t i = 0; i < x_.elements(); ++i) x_.row(0)[i] = noise(seed + static_cast<uint32_t>(i));
    route(group, seed);
    received_ = std::make_unique<Matrix>(static_cast<size_t>(rows_), hidden);
    results_ = std::make_unique<Matrix>(static_cast<size_t>(rows_), hidden);
    CHECK(epcclStreamCreate(&stream_));
  }
  MicroBatch(const MicroBatch&) = delete;
  MicroBatch& operator=(const MicroBatch&) = delete;
  ~MicroBatch() {
    CHECK(epcclStreamDestroy(stream_));
    CHECK(epcclEpHandleDestroy(handle_));
  }

  void start_dispatch() const { dispatch(stream_); }
  void start_combine() const { combine(stream_); }
  void wait() const { CHECK(epcclStreamSynchronize(stream_)); }

  void dispatch(epcclStream_t stream) const {
    epcclEpTensor_t x = x_.tensor(), received = received_->tensor(), weights = weights_tensor();
    epcclEpDispatchInputs_t inputs = EPCCL_EP_DISPATCH_INPUTS_INIT;
    epcclEpDispatchOutputs_t outputs = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
    inputs.tokens = &x;
    inputs.topk_weights = &weights;
    outputs.tokens = &received;
    CHECK(epcclEpDispatch(handle_, &inputs, &outputs, nullptr, stream));
  }

  void combine(epcclStream_t stream) const {
    epcclEpTensor_t results = results_->tensor(), combined = combined_.tensor();
    epcclEpCombineInputs_t inputs = EPCCL_EP_COMBINE_INPUTS_INIT;
    epcclEpCombineOutputs_t outputs = EPCCL_EP_COMBINE_OUTPUTS_INIT;
    epcclEpCombineConfig_t config = EPCCL_EP_COMBINE_CONFIG_INIT;
    inputs.tokens = &results;
    outputs.tokens = &combined;
    config.weighted = 1;
    CHECK(epcclEpCombine(handle_, &inputs, &outputs, &config, stream));
  }

  void run_experts() const {
    for (size_t e = 0; e < counts_.size(); ++e) {
      const auto first = static_cast<size_t>(offsets_[e]);
      layer_.own[e].run(received_->row(first), counts_[e], results_->row(first));
    }
  }

  void run_shared_expert() const { layer_.shared.run(x_.row(0), tokens, shared_.row(0)); }

  std::vector<float> sum() const {
    std::vector<float> y(combined_.elements());
    for (size_t i = 0; i < y.size(); ++i) y[i] = combined_.row(0)[i] + shared_.row(0)[i];
    return y;
  }

 private:
  /// Two different experts for every token, and the layout that follows.
  void route(epcclEpGroup_t group, uint32_t seed) {
    std::vector<int32_t> chosen(tokens * topk);
    for (uint32_t t = 0; t < tokens; ++t) {
      const auto first = static_cast<int32_t>((noise(seed * 31 + t) + 0.5F) * experts);
      const auto step = 1 + static_cast<int32_t>((noise(seed * 37 + t) + 0.5F) * (experts - 1));
      chosen[t * topk] = first;
      chosen[t * topk + 1] = (first + step) % experts;
      weights_.insert(weights_.end(), {0.75F, 0.25F});
    }
    const std::array<size_t, 1> local{counts_.size()}, one{1};
    epcclEpTensor_t idx = EPCCL_EP_TENSOR_INIT, counts = EPCCL_EP_TENSOR_INIT;
    idx.datatype = counts.datatype = epcclInt32;
    idx.ndim = 2;
    idx.data = chosen.data();
    idx.sizes = table_.data();
    counts.ndim = 1;
    counts.data = counts_.data();
    counts.sizes = local.data();
    epcclEpTensor_t offsets = counts, total = counts;
    offsets.data = offsets_.data();
    total.data = &rows_;
    total.sizes = one.data();
    epcclEpLayoutInfo_t info = EPCCL_EP_LAYOUT_INFO_INIT;
    info.expert_counters = &counts;
    info.expert_offsets = &offsets;
    info.recv_total_counter = &total;
    CHECK(epcclEpCreateHandle(&handle_, group, EPCCL_EP_LAYOUT_EXPERT_MAJOR, &idx, &info, nullptr, nullptr));
  }

  epcclEpTensor_t weights_tensor() const {
    epcclEpTensor_t made = EPCCL_EP_TENSOR_INIT;
    made.ndim = 2;
    made.data = const_cast<float*>(weights_.data());  // only read
    made.sizes = table_.data();
    return made;
  }

  const Layer& layer_;
  const std::array<size_t, 2> table_{tokens, topk};
  epcclEpHandle_t handle_ = nullptr;
  epcclStream_t stream_ = nullptr;
  std::vector<float> weights_;
  std::vector<int32_t> counts_, offsets_;
  int32_t rows_ = 0;
  Matrix x_, shared_, combined_;
  std::unique_ptr<Matrix> received_, results_;
};

using Batches = std::array<std::unique_ptr<MicroBatch>, 2>;

/// One step after the other; returns the seconds of which the network took part.
double run_serially(const Batches& batches) {
  double network = 0;
  const auto timed = [&network](const auto& call) {
    const double start = now();
    call();
    network += now() - start;
  };
  for (const auto& batch : batches) {
    batch->run_shared_expert();
    timed([&] { batch->dispatch(nullptr); });
    batch->run_experts();
    timed([&] { batch->combine(nullptr); });
  }
  return network;
}

void run_overlapped(const Batches& batches) {
  const auto& [first, second] = batches;
  first->start_dispatch();
  second->start_dispatch();
  first->run_shared_expert();
  first->wait();
  first->run_experts();
  first->start_combine();
  second->wait();
  second->run_experts();
  second->start_combine();
  second->run_shared_expert();
  first->wait();
  second->wait();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// The largest difference between the two ways' results, of what is largest in them.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double differs = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    differs = std::max(differs, std::abs(static_cast<double>(a[i]) - b[i]));
    largest = std::max(largest, std::abs(static_cast<double>(a[i])));
  }
  return differs / largest;
}

bool compare(int rank, int ranks, const Batches& batches) {
  std::vector<double> serial, network, overlapped;
  double differs = 0;
  for (int i = 0; i < repetitions; ++i) {
    double start = now();
    network.push_back(run_serially(batches));
    serial.push_back(now() - start);
    const std::array<std::vector<float>, 2> expected{batches[0]->sum(), batches[1]->sum()};
    start = now();
    run_overlapped(batches);
    overlapped.push_back(now() - start);
    for (size_t b = 0; b < batches.size(); ++b)
      differs = std::max(differs, difference(expected[b], batches[b]->sum()));
  }
  // What is saved may be more than that: ranks also wait less for each other.
  const double hidden = std::clamp((median(serial) - median(overlapped)) / median(network), 0.0, 1.0);
  std::printf("rank %d: serial %.1f ms, overlapped %.1f ms; ", rank, 1e3 * median(serial),
              1e3 * median(overlapped));
  if (ranks > 1)
    std::printf("of the network's %.1f ms %.0f %% hidden; ", 1e3 * median(network), 100 * hidden);
  else
    std::printf("one rank has no network; ");
  std::printf("largest difference %g\n", differs);
  return differs < 1e-5;
}

/// Rank 0's id, by a file that appears complete.
epcclUniqueId share_id(int rank, const std::string& file) {
  epcclUniqueId id;
  if (rank == 0) {
    if (access(file.c_str(), F_OK) == 0) {
      std::fprintf(stderr, "%s is there already: remove it, or give another name\n", file.c_str());
      std::exit(1);
    }
    CHECK(epcclGetUniqueId(&id));
    const std::string draft = file + ".new";
    std::FILE* out = std::fopen(draft.c_str(), "wb");
    if (out == nullptr || std::fwrite(&id, sizeof id, 1, out) != 1 || std::fclose(out) != 0 ||
        std::rename(draft.c_str(), file.c_str()) != 0) {
      std::perror(file.c_str());
      std::exit(1);
    }
    return id;
  }
  std::FILE* in = nullptr;
  for (int tries = 0; (in = std::fopen(file.c_str(), "rb")) == nullptr && tries < 6000; ++tries)
    usleep(10000);
  if (in == nullptr || std::fread(&id, sizeof id, 1, in) != 1) {
    std::fprintf(stderr, "%s has no id of rank 0\n", file.c_str());
    std::exit(1);
  }
  std::fclose(in);
  return id;
}

int run_rank(int rank, int ranks, const std::string& file) {
  const epcclUniqueId id = share_id(rank, file);
  epcclComm_t comm = nullptr;
  const epcclResult_t joined = epcclCommInitRank(&comm, ranks, id, rank);
  if (rank == 0) unlink(file.c_str());
  check(joined, "epcclCommInitRank");
  epcclEpGroupConfig_t config = EPCCL_EP_GROUP_CONFIG_INIT;
  config.num_experts = experts;
  config.max_send_tokens_per_rank = tokens;
  config.max_token_bytes = hidden * sizeof(float);
  epcclEpGroup_t group = nullptr;
  CHECK(epcclEpCreateGroup(&group, comm, &config));
  bool right = false;
  {
    const Layer layer(rank, ranks);
    Batches batches;
    for (uint32_t b = 0; b < batches.size(); ++b)
      batches[b] =
          std::make_unique<MicroBatch>(group, layer, 1000003 * (2 * static_cast<uint32_t>(rank) + b + 1));
    right = compare(rank, ranks, batches);
  }
  CHECK(epcclEpGroupDestroy(group));
  CHECK(epcclCommDestroy(comm));
  return right ? 0 : 1;
}

int start_ranks(int ranks) {
  std::array<char, 32> directory{"/tmp/moe_overlap.XXXXXX"};
  if (mkdtemp(directory.data()) == nullptr) return 1;
  const std::string file = std::string(directory.data()) + "/id";
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() != 0) continue;
    std::exit(run_rank(rank, ranks, file));
  }
  int failed = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    wait(&status);
    failed |= status;
  }
  rmdir(directory.data());
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  // Threads of the BLAS would take the cores of other ranks.
  for (const char* name : {"OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "OMP_NUM_THREADS"})
    setenv(name, "1", 1);
  if (argc == 1) return start_ranks(2);
  const int rank = argc == 4 ? std::atoi(argv[1]) : -1, ranks = argc == 4 ? std::atoi(argv[2]) : 0;
  if (rank >= 0 && rank < ranks) return run_rank(rank, ranks, argv[3]);
  std::fprintf(stderr, "moe_overlap [RANK RANKS FILE], with RANK in 0..RANKS-1\n");
  return 2;
}
