#include "own_symbols.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace epccl::nccl {
namespace {

// Relocations that are a symbol's address: of a call, of a pointer in code, of one in data.
#if defined(__x86_64__)
constexpr uint64_t call_slot = R_X86_64_JUMP_SLOT, pointer_slot = R_X86_64_GLOB_DAT, in_data = R_X86_64_64;
#elif defined(__aarch64__)
constexpr uint64_t call_slot = R_AARCH64_JUMP_SLOT, pointer_slot = R_AARCH64_GLOB_DAT,
                   in_data = R_AARCH64_ABS64;
#else
#error "the numbers of this machine's relocations are missing"
#endif

using Relocations = std::span<const Elf64_Rela>;

/// What an opened library's dynamic section says.
struct Dynamic {
  Elf64_Addr base = 0;
  const Elf64_Sym* symbols = nullptr;
  const char* names = nullptr;
  Relocations calls, others;
};

Dynamic read_dynamic(const link_map& map) {
  Dynamic found;
  found.base = map.l_addr;
  const Elf64_Rela *calls = nullptr, *others = nullptr;
  size_t calls_bytes = 0, others_bytes = 0;
  for (const Elf64_Dyn* one = map.l_ld; one->d_tag != DT_NULL; ++one) {
    auto* const pointer = reinterpret_cast<const void*>(one->d_un.d_ptr);  // the linker has made it absolute
    if (one->d_tag == DT_SYMTAB) found.symbols = static_cast<const Elf64_Sym*>(pointer);
    if (one->d_tag == DT_STRTAB) found.names = static_cast<const char*>(pointer);
    if (one->d_tag == DT_JMPREL) calls = static_cast<const Elf64_Rela*>(pointer);
    if (one->d_tag == DT_RELA) others = static_cast<const Elf64_Rela*>(pointer);
    if (one->d_tag == DT_PLTRELSZ) calls_bytes = one->d_un.d_val;
    if (one->d_tag == DT_RELASZ) others_bytes = one->d_un.d_val;
  }
  if (calls != nullptr) found.calls = {calls, calls_bytes / sizeof *calls};
  if (others != nullptr) found.others = {others, others_bytes / sizeof *others};
  return found;
}

/// The part that the linker has made read-only: whole pages.
struct Sealed {
  Elf64_Addr base = 0;  // of the library asked for
  uintptr_t begin = 0, end = 0;
};

int find_sealed(dl_phdr_info* info, size_t, void* given) {
  Sealed& sealed = *static_cast<Sealed*>(given);
  if (info->dlpi_addr != sealed.base) return 0;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (const Elf64_Phdr& part : std::span(info->dlpi_phdr, info->dlpi_phnum))
    if (part.p_type == PT_GNU_RELRO) {
      sealed.begin = (info->dlpi_addr + part.p_vaddr) / page * page;
      sealed.end = (info->dlpi_addr + part.p_vaddr + part.p_memsz) / page * page;
    }
  return 1;
}

Status protect(const Sealed& sealed, int how) {
  if (sealed.begin >= sealed.end) return {};
  if (mprotect(reinterpret_cast<void*>(sealed.begin), sealed.end - sealed.begin, how) == 0) return {};
  return error(Code::system_error, "mprotect of its relocated pages: {}", std::strerror(errno));
}

/// Where the library has an address in its data, and the function of its own whose address belongs there.
struct Slot {
  Elf64_Addr* at = nullptr;
  Elf64_Addr function = 0;
};

/// Those that other libraries' functions were found for, or nothing yet.
std::vector<Slot> bound_elsewhere(const Dynamic& library) {
  std::vector<Slot> slots;
  for (const Relocations& relocations : {library.calls, library.others}) {
    for (const Elf64_Rela& one : relocations) {
      const uint64_t type = ELF64_R_TYPE(one.r_info);
      const Elf64_Sym& symbol = library.symbols[ELF64_R_SYM(one.r_info)];
      const std::string_view name = library.names + symbol.st_name;
      if ((type != call_slot && type != pointer_slot && type != in_data) || symbol.st_shndx == SHN_UNDEF ||
          ELF64_ST_TYPE(symbol.st_info) != STT_FUNC ||
          (!name.starts_with("nccl") && !name.starts_with("pnccl")))
        continue;
      const Elf64_Addr addend = type == in_data ? static_cast<Elf64_Addr>(one.r_addend) : 0;
      const Slot slot{reinterpret_cast<Elf64_Addr*>(library.base + one.r_offset),
                      library.base + symbol.st_value + addend};
      if (__atomic_load_n(slot.at, __ATOMIC_RELAXED) != slot.function) slots.push_back(slot);
    }
  }
  return slots;
}

/// Null: it calls no such function.
const void* called_at(const Dynamic& library, std::string_view function) {
  for (const Elf64_Rela& one : library.calls) {
    if (library.names + library.symbols[ELF64_R_SYM(one.r_info)].st_name != function) continue;
    const void* address = nullptr;
    std::memcpy(&address, reinterpret_cast<const void*>(library.base + one.r_offset), sizeof address);
    return address;
  }
  return nullptr;
}

}  // namespace

// dlsym would not do: where the program has taken malloc's address, that is a stub of its own. So what this library's calls have been
// bound to is looked at, after one.
bool malloc_is_libc_s() {
  void* volatile block = std::malloc(1);  // NOLINT(cppcoreguidelines-no-malloc)
  std::free(block);                       // NOLINT(cppcoreguidelines-no-malloc)
  static const char here = 0;
  Dl_info info{}, of_libc{};
  void* own = nullptr;
  void* const libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  if (libc == nullptr || dladdr1(&here, &info, &own, RTLD_DL_LINKMAP) == 0) return false;
  const void* const called = called_at(read_dynamic(*static_cast<const link_map*>(own)), "malloc");
  const bool same = called != nullptr && dladdr(called, &info) != 0 &&
                    dladdr(dlsym(libc, "malloc"), &of_libc) != 0 && info.dli_fbase == of_libc.dli_fbase;
  dlclose(libc);
  return same;
}

Status bind_to_itself(void* library) {
  const link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return error(Code::system_error, "{}", dlerror());
  const Dynamic dynamic = read_dynamic(*map);
  if (dynamic.symbols == nullptr || dynamic.names == nullptr) return {};
  const std::vector<Slot> slots = bound_elsewhere(dynamic);
  if (slots.empty()) return {};
  Sealed sealed;
  sealed.base = dynamic.base;
  dl_iterate_phdr(find_sealed, &sealed);
  EPCCL_TRY(protect(sealed, PROT_READ | PROT_WRITE));
  // Other threads may call through them.
  for (const Slot& slot : slots) __atomic_store_n(slot.at, slot.function, __ATOMIC_RELEASE);
  return protect(sealed, PROT_READ);
}

}  // namespace epccl::nccl
