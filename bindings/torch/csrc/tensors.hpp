// Tensors as the memory that libepccl reads and writes.
#pragma once

#include <ATen/core/Tensor.h>
#include <epccl/epccl.h>

#include <vector>

namespace epccl_torch {

/// What is moved: elements of a datatype of the library where it has one of that width, else bytes. Moving alters no bit, so any dtype
/// goes. `count`: units of `datatype` in one element.
struct Unit {
  epcclDataType_t datatype;
  size_t count;
};
Unit unit_of(const at::Tensor& tensor);

/// Refuses what is not a dense CPU tensor. `what` names it.
void check_tensor(const char* what, const at::Tensor& tensor);
/// Refuses tensors of different dtypes.
void check_same_dtype(const char* what, const at::Tensor& one, const at::Tensor& other);
/// The only tensor of a list that c10d hands over for one device.
at::Tensor& single(const char* what, std::vector<at::Tensor>& tensors);

bool overlap(const at::Tensor& one, const at::Tensor& other);

/// A tensor to be written: itself where it is contiguous, else memory that finish() copies into it.
class Target {
 public:
  /// `load`: the memory begins with what the tensor holds.
  explicit Target(const at::Tensor& tensor, bool load = false);
  void* data() const { return memory_.mutable_data_ptr(); }
  const at::Tensor& memory() const { return memory_; }
  void finish();

 private:
  at::Tensor tensor_, memory_;
};

/// Tensors of one dtype as blocks of one buffer: in place where they lie one after the other, else in a buffer of their own.
class Blocks {
 public:
  explicit Blocks(const std::vector<at::Tensor>& tensors);
  /// Copies the tensors into the buffer, unless they are it.
  void load();
  /// Copies the buffer into the tensors, unless they are it.
  void store();
  void* data() const { return data_; }
  /// Elements of each tensor.
  const std::vector<size_t>& counts() const { return counts_; }
  bool equal() const;

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<size_t> counts_;
  at::Tensor buffer_;
  void* data_ = nullptr;
  bool in_place_ = false;
};

}  // namespace epccl_torch
