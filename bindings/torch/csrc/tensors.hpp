// Tensors as the memory that libepccl reads and writes.
#pragma once

#include <ATen/core/Tensor.h>
#include <epccl/epccl.h>

#include <initializer_list>
#include <optional>
#include <vector>

namespace epccl_torch {

/// The library's datatype of such elements; nothing where it has none.
std::optional<epcclDataType_t> datatype_of(at::ScalarType type);

/// What is moved: elements of the library's datatype where it has that one, else words or bytes. Moving alters no bit, so any dtype
/// goes. `count`: units of `datatype` in one element.
struct Unit {
  epcclDataType_t datatype;
  size_t count;
};
Unit unit_of(const at::Tensor& tensor);

/// Refuses what is not a dense tensor of the CPU or of a CUDA device. `what` names it.
void check_tensor(const char* what, const at::Tensor& tensor);
/// Refuses tensors of different dtypes.
void check_same_dtype(const char* what, const at::Tensor& one, const at::Tensor& other);
/// The device that all the tensors are on; nothing where there are no tensors. Throws where they are on several.
std::optional<c10::Device> common_device(const char* what,
                                         std::initializer_list<const std::vector<at::Tensor>*> lists);
/// The only tensor of a list that c10d hands over for one device.
at::Tensor& single(const char* what, std::vector<at::Tensor>& tensors);

/// Counts and displacements of alltoallv: parts that lie one after the other.
struct Parts {
  explicit Parts(std::vector<size_t> counts);
  /// From elements to units of the library's datatype.
  void scale(size_t by);

  std::vector<size_t> counts, places;
};

/// Memory of the host for a GPU's tensor, contiguous. Copies to and from it are the stream's business: with memory that is not pinned the
/// driver waits for the stream, and may let nobody in meanwhile, also those whom the stream waits for.
at::Tensor pinned_room(const at::Tensor& tensor);
/// The tensor's elements there. Blocks until the current stream has come to it.
at::Tensor fetched(const at::Tensor& tensor);

/// Throws where elements of a tensor that is to be written are one in memory, as of x.expand(): it cannot hold what comes.
void check_written(const char* what, const std::vector<at::Tensor>& tensors);

/// Whether the tensor's memory is what it holds, and not that conjugated or negated, as of x.conj() and x.conj().imag.
bool is_plain(const at::Tensor& tensor);
/// What the tensor holds, one element after the other: itself where it is so already.
at::Tensor packed(const at::Tensor& tensor);

bool overlap(const at::Tensor& one, const at::Tensor& other);
/// Whether a call that reads one of them and writes the other would read what it has written: they overlap, and `part` is not what of
/// `whole` begins at element `own`, which is this rank's. Both are packed.
bool clash(const at::Tensor& part, const at::Tensor& whole, size_t own);
/// `source`, or a copy of it where it clashes with what is written.
at::Tensor apart(const at::Tensor& source, const at::Tensor& whole, size_t own);

/// A tensor to be written: itself where it is packed, else memory that finish() copies into it.
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
  /// To be called in the stream in which the call runs: a buffer is made there, when first needed.
  void* data();
  /// As one tensor of one dimension.
  at::Tensor flat();
  /// Elements of each tensor.
  const std::vector<size_t>& counts() const { return counts_; }
  bool equal() const;

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<size_t> counts_;
  int64_t total_ = 0;
  at::Tensor buffer_;
  void* first_ = nullptr;
  bool in_place_ = false;
};

}  // namespace epccl_torch
