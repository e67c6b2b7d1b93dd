// A static object that no destructor of the process ends, as NeverDestroyed, and that a forked child does not share: it begins
// with a new one. What the parent's holds (locks taken, threads that are not there, connections whose other end is the
// parent's) is left alone in the child, and nothing of it is ever ended there.
//   static PerProcess<Table> table; table->...
#pragma once

#include <type_traits>

namespace epccl {

class RenewedByFork {
 protected:
  RenewedByFork() = default;
  /// From now on forks renew it: the last that it does while it is made, since another thread may fork meanwhile.
  void publish();
  ~RenewedByFork() = default;  // of static objects that are never destroyed

 private:
  static void renew_all();
  virtual void renew() = 0;
  RenewedByFork* next_ = nullptr;
};

template <typename T>
class PerProcess final : private RenewedByFork {
 public:
  PerProcess() : now_(new Generation{T(), nullptr}) {
    // Or what ends with the process, after this, would find it destroyed.
    static_assert(std::is_trivially_destructible_v<PerProcess>);
    publish();
  }
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  T* operator->() { return &now_->object; }
  T& operator*() { return now_->object; }

 private:
  // A child keeps those of all before it, so that nothing in them looks lost.
  struct Generation {
    T object;
    Generation* before;
  };
  void renew() override { now_ = new Generation{T(), now_}; }

  Generation* now_;
};

}  // namespace epccl
