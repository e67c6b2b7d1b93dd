// The compute of --overlap: matrix products as an expert does them, by a BLAS, on the calling thread.
#pragma once

#include <memory>
#include <string>

#include "base/status.hpp"

namespace epccl::perf::moe {

class ExpertCompute {
 public:
  /// Error: this build has no BLAS.
  static Status available();
  /// The library's name; empty where there is none.
  static std::string library();

  ExpertCompute();
  ~ExpertCompute();
  ExpertCompute(const ExpertCompute&) = delete;
  ExpertCompute& operator=(const ExpertCompute&) = delete;

  /// So many products, with one matrix of weights after the other.
  void run(int products);

 private:
  struct Matrices;
  std::unique_ptr<Matrices> matrices_;
};

}  // namespace epccl::perf::moe
