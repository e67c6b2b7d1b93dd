// A static object that no destructor of the process ends, as NeverDestroyed, and that a forked child does not share: it begins
// with a new one. What the parent's holds (locks taken, threads that are not there, connections whose other end is the
// parent's) is left alone in the child, and nothing of it is ever ended there.
//   static PerProcess<Table> table; table->...
#pragma once

#include <functional>
#include <memory>
#include <utility>

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
  /// `arguments` are kept, and make the object of each child too.
  template <typename... Args>
  explicit PerProcess(Args... arguments)
      : make_([=](Generation* before) {
          return new Generation{T(arguments...), before};
        }),
        now_(make_(nullptr)) {
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
  void renew() override { now_ = make_(now_); }

  const std::function<Generation*(Generation*)> make_;
  Generation* now_;
};

}  // namespace epccl
