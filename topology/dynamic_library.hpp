// A shared library opened at run time.
#pragma once

#include <dlfcn.h>

#include <string>
#include <utility>

#include "base/status.hpp"

namespace epccl::topology {

class DynamicLibrary {
 public:
  static Result<DynamicLibrary> open(const std::string& name) {
    void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* why = dlerror();
      return error(Code::system_error, "{}", why == nullptr ? name.c_str() : why);
    }
    return DynamicLibrary(handle);
  }
  DynamicLibrary(DynamicLibrary&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  DynamicLibrary& operator=(DynamicLibrary&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  DynamicLibrary(const DynamicLibrary&) = delete;
  DynamicLibrary& operator=(const DynamicLibrary&) = delete;
  ~DynamicLibrary() {
    if (handle_ != nullptr) dlclose(handle_);
  }

  /// Sets `function` to the symbol; false, and a null pointer, when the library has no such symbol.
  template <typename Function>
  bool find(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(dlsym(handle_, symbol));
    return function != nullptr;
  }

 private:
  explicit DynamicLibrary(void* handle) : handle_(handle) {}
  void* handle_;
};

}  // namespace epccl::topology
