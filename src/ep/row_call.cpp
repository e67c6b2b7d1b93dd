#include "ep/row_call.hpp"

namespace epccl::ep {

const char* to_string(Element element) {
  switch (element) {
    case Element::float32:
      return "float32";
    case Element::bfloat16:
      return "bfloat16";
    case Element::float16:
      return "float16";
    case Element::float8_e4m3:
      return "float8e4m3";
  }
  return "?";
}

uint64_t bytes_of(Element element) {
  if (element == Element::float32) return 4;
  return element == Element::float8_e4m3 ? 1 : 2;
}

device::RowType row_type(Element element) {
  if (element == Element::bfloat16) return device::RowType::bfloat16;
  return element == Element::float16 ? device::RowType::float16 : device::RowType::float32;
}

void set_part(runtime::RowArrays& side, size_t part, const void* data, uint64_t bytes) {
  side.data[part] =
      const_cast<void*>(data);  // inputs are only read: the plan's verifier holds builders to that
  side.bytes[part] = bytes;
}

Result<void*> reachable_output(Handle& handle, const void* user, uint64_t bytes) {
  const bool alone =
      handle.group().cluster().local_size(handle.group().cluster().node_of(handle.group().rank())) == 1;
  if (alone || bytes == 0 || handle.communicator().direct() || device::find_window(user, bytes))
    return static_cast<void*>(nullptr);
  Window& window = handle.staging(bounce_staging);
  EPCCL_TRY(window.reserve(bytes));
  return window.as<void>();
}

}  // namespace epccl::ep
