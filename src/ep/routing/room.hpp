// Memory that is used again and again.
#pragma once

#include <cstddef>
#include <memory>

namespace epccl::ep {

template <typename T>
class Room {
 public:
  /// At least `count` places, of undefined content. What was there before is lost where they are more than ever before.
  T* reserve(size_t count) {
    if (count > count_) {
      data_.reset();
      count_ = 0;
      data_ = std::make_unique_for_overwrite<T[]>(count);
      count_ = count;
    }
    return data_.get();
  }
  T* data() const { return data_.get(); }

 private:
  std::unique_ptr<T[]> data_;
  size_t count_ = 0;
};

}  // namespace epccl::ep
