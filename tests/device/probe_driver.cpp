// What the driver does while a stream is held, as streams are while a collective waits for other ranks: which calls wait for that stream,
// which keep other threads of the process from calling the driver, or other streams from going on, and how many streams can be held before
// others stand still. The library stands on these answers, and CUDA documents few of them. Needs a GPU.
//   probe_driver [FILE]            prints a line for each fact, and writes FILE as JSON
//   probe_driver --limits [FILE]   asks three questions whose answers are known: calls that wait, never return, and end the process
// Exit codes: 0 asked, whatever the answers are; 77 there is no GPU; 1 something failed.
#include <dlfcn.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "probe_asking.hpp"
#include "ranks.hpp"

namespace epccl::device::probe {
namespace {

using Json = nlohmann::ordered_json;
constexpr size_t mebibyte = size_t{1} << 20;
constexpr unsigned mapped = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;

// --- what calls need, made before; a process asks one question, so there is one of each

CUdeviceptr memory = 0;
void* host_memory = nullptr;
CUstream stream = nullptr;
CUevent event = nullptr;
CUfunction kernel = nullptr;
CUgraph graph = nullptr;
CUgraphExec executable = nullptr;

CUdeviceptr address_of(const void* host) {
  return reinterpret_cast<CUdeviceptr>(host);
}

CUmemAllocationProp page_properties() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}
constexpr size_t page_bytes = 2 * mebibyte;
CUmemGenericAllocationHandle pages = 0;

void map_pages(Lab&) {
  const CUmemAllocationProp properties = page_properties();
  EPCCL_PROBE(cuMemCreate(&pages, page_bytes, &properties, 0));
  EPCCL_PROBE(cuMemAddressReserve(&memory, page_bytes, 0, 0, 0));
  EPCCL_PROBE(cuMemMap(memory, page_bytes, 0, pages, 0));
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  EPCCL_PROBE(cuMemSetAccess(memory, page_bytes, &access, 1));
}
void unmap_pages(Lab&) {
  EPCCL_PROBE(cuMemUnmap(memory, page_bytes));
  EPCCL_PROBE(cuMemRelease(pages));
  EPCCL_PROBE(cuMemAddressFree(memory, page_bytes));
}

void make_host_memory(Lab&) {
  host_memory = mmap(nullptr, mebibyte, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (host_memory == MAP_FAILED) throw std::runtime_error("no memory to register");
}
void register_memory(Lab& lab) {
  make_host_memory(lab);
  EPCCL_PROBE(
      cuMemHostRegister(host_memory, mebibyte, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
}

void make_stream(Lab& lab) {
  stream = lab.make_stream(lab.own_priority);
}
void capture_graph(Lab& lab) {
  make_stream(lab);
  EPCCL_PROBE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EPCCL_PROBE(cuMemcpyAsync(lab.to, lab.from, Lab::small, stream));
  EPCCL_PROBE(cuStreamEndCapture(stream, &graph));
}
void instantiate_graph(Lab& lab) {
  capture_graph(lab);
  EPCCL_PROBE(cuGraphInstantiateWithFlags(&executable, graph, 0));
}

/// A function that older drivers lack: without it there is no answer to its question.
template <typename Function>
Function* newer(const char* name) {
  auto* const found = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  if (found == nullptr) throw std::runtime_error(fmt::format("the driver lacks {}", name));
  return found;
}
using BatchCopy = CUresult CUDAAPI(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*, size_t*,
                                   size_t, CUstream);
using LoadFunction = CUresult CUDAAPI(CUfunction);
using RangeHandle = CUresult CUDAAPI(void*, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long);

// --- the questions

std::vector<Question> of_memory() {
  return {
      {"cuMemAlloc", {}, [](Lab&) { EPCCL_PROBE(cuMemAlloc(&memory, 256 * mebibyte)); }},
      {"cuMemFree", [](Lab&) { EPCCL_PROBE(cuMemAlloc(&memory, mebibyte)); },
       [](Lab&) { EPCCL_PROBE(cuMemFree(memory)); }},
      {"cuMemHostAlloc", {}, [](Lab&) { EPCCL_PROBE(cuMemHostAlloc(&host_memory, 8 * mebibyte, mapped)); }},
      {"cuMemFreeHost", [](Lab&) { EPCCL_PROBE(cuMemHostAlloc(&host_memory, 8 * mebibyte, mapped)); },
       [](Lab&) { EPCCL_PROBE(cuMemFreeHost(host_memory)); }},
      {"cuMemHostRegister", {}, register_memory},
      {"cuMemHostUnregister", register_memory, [](Lab&) { EPCCL_PROBE(cuMemHostUnregister(host_memory)); }},
      {"cuMemCreate, cuMemMap, cuMemSetAccess", {}, map_pages},
      {"cuMemUnmap, cuMemRelease", map_pages, unmap_pages},
  };
}

void open_lent(Lab& lab) {
  EPCCL_PROBE(cuIpcOpenMemHandle(&memory, lab.lent, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

std::vector<Question> of_peers() {
  std::vector<Question> questions{
      {"cuIpcOpenMemHandle", {}, open_lent},
      {"cuIpcCloseMemHandle", open_lent, [](Lab&) { EPCCL_PROBE(cuIpcCloseMemHandle(memory)); }},
  };
  for (Question& question : questions) question.of_a_peer = true;
  return questions;
}

std::vector<Question> of_streams() {
  return {
      {"cuStreamCreateWithPriority", {}, make_stream},
      {"the first copy on a new stream", make_stream,
       [](Lab& lab) { EPCCL_PROBE(cuMemcpyAsync(lab.to, lab.from, Lab::small, stream)); }},
      {"cuStreamDestroy of an idle stream", make_stream, [](Lab&) { EPCCL_PROBE(cuStreamDestroy(stream)); }},
      {"cuStreamSynchronize of an idle stream",
       {},
       [](Lab& lab) { EPCCL_PROBE(cuStreamSynchronize(lab.other)); }},
      {"cuEventCreate, 2000 times",
       {},
       [](Lab&) {
         for (int i = 0; i < 2000; ++i) EPCCL_PROBE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
       }},
      {"cuGraphInstantiate", capture_graph,
       [](Lab&) { EPCCL_PROBE(cuGraphInstantiateWithFlags(&executable, graph, 0)); }},
      {"the first cuGraphLaunch, on another stream", instantiate_graph,
       [](Lab&) { EPCCL_PROBE(cuGraphLaunch(executable, stream)); }},
  };
}

void load_module(Lab&) {
  CUmodule module = nullptr;
  EPCCL_PROBE(cuModuleLoadData(&module, kernels::bytes_of(kernels::Image::layout).data()));
}
void find_kernel(Lab& lab) {
  kernel = lab.find_unused();
}
void ask_for_registers(Lab& lab) {
  find_kernel(lab);
  int registers = 0;
  EPCCL_PROBE(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel));
}
void launch_kernel(Lab& lab) {
  lab.launch_unused(kernel, lab.other);
}
void fill_launch_queue(Lab& lab) {
  for (int i = 0; i < 4000; ++i) lab.launch(lab.held);
}

std::vector<Question> of_kernels() {
  std::vector<Question> questions{
      {"cuModuleLoadData", {}, load_module},
      {"a kernel's first launch, CUDA_MODULE_LOADING=LAZY",
       find_kernel,
       launch_kernel,
       {{"CUDA_MODULE_LOADING", "LAZY"}}},
      {"a kernel's first launch, LAZY, after cuFuncGetAttribute",
       ask_for_registers,
       launch_kernel,
       {{"CUDA_MODULE_LOADING", "LAZY"}}},
      {"cuFuncLoad, LAZY",
       find_kernel,
       [](Lab&) { check(newer<LoadFunction>("cuFuncLoad")(kernel), "cuFuncLoad"); },
       {{"CUDA_MODULE_LOADING", "LAZY"}}},
      {"a kernel's first launch, LAZY, after cuFuncLoad",
       [](Lab& lab) {
         find_kernel(lab);
         check(newer<LoadFunction>("cuFuncLoad")(kernel), "cuFuncLoad");
       },
       launch_kernel,
       {{"CUDA_MODULE_LOADING", "LAZY"}}},
      {"a kernel's first launch, CUDA_MODULE_LOADING=EAGER",
       find_kernel,
       launch_kernel,
       {{"CUDA_MODULE_LOADING", "EAGER"}}},
      {"4000 launches on the held stream", {}, fill_launch_queue},
  };
  for (Question& question : questions) question.with_kernels = true;
  return questions;
}

// --- what the library itself calls while a stream is held, of its own or of the program's

void copy_a_list(Lab& lab) {
  CUdeviceptr to[] = {lab.to, lab.to + Lab::small}, from[] = {lab.from, lab.from + Lab::small};
  size_t bytes[] = {Lab::small, Lab::small}, first = 0;
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  attributes.flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
  check(newer<BatchCopy>("cuMemcpyBatchAsync_v2")(to, from, bytes, 2, &attributes, &first, 1, lab.own),
        "cuMemcpyBatchAsync");
}
void copy_rows(Lab& lab) {
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  rows.srcDevice = lab.from;
  rows.dstDevice = lab.to;
  rows.srcPitch = rows.dstPitch = 2 * Lab::small;
  rows.WidthInBytes = Lab::small;
  rows.Height = 100;
  EPCCL_PROBE(cuMemcpy2DAsync(&rows, lab.own));
}
void make_event(Lab&) {
  EPCCL_PROBE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
}
void record_behind(Lab& lab) {
  EPCCL_PROBE(cuEventRecord(event, lab.held));
}
void wait_behind(Lab& lab) {
  record_behind(lab);
  EPCCL_PROBE(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_DEFAULT));
}
void make_stream_and_event(Lab& lab) {
  make_stream(lab);
  make_event(lab);
}
void look_at_held(Lab& lab) {
  CUcontext context = nullptr;
  CUstreamCaptureStatus capture{};
  int priority = 0;
  EPCCL_PROBE(cuStreamGetCtx(lab.held, &context));
  EPCCL_PROBE(cuStreamGetPriority(lab.held, &priority));
  EPCCL_PROBE(cuStreamIsCapturing(lab.held, &capture));
}
void ask_about_memory(Lab& lab) {
  CUmemorytype type{};
  int ordinal = 0;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* values[] = {&type, &ordinal};
  EPCCL_PROBE(cuPointerGetAttributes(2, attributes, values, lab.from));
}
void share_pages(Lab&) {
  int fd = -1;
  CUmemGenericAllocationHandle again = 0;
  EPCCL_PROBE(cuMemExportToShareableHandle(&fd, pages, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  EPCCL_PROBE(cuMemImportFromShareableHandle(&again,
                                             reinterpret_cast<void*>(static_cast<intptr_t>(fd)),  // NOLINT
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  EPCCL_PROBE(cuMemRelease(again));
}
void share_by_ipc(Lab& lab) {
  CUipcMemHandle shared{};
  EPCCL_PROBE(cuIpcGetMemHandle(&shared, lab.from));
}
void lend_to_cards(Lab& lab) {
  int fd = -1;
  check(newer<RangeHandle>("cuMemGetHandleForAddressRange")(&fd, lab.from, Lab::large,
                                                            CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
        "cuMemGetHandleForAddressRange");
}
void capture_copies(Lab& lab) {
  EPCCL_PROBE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EPCCL_PROBE(cuMemcpyAsync(lab.to, lab.from, Lab::small, stream));
  EPCCL_PROBE(cuStreamEndCapture(stream, &graph));
  EPCCL_PROBE(cuGraphDestroy(graph));
}

std::vector<Question> of_the_librarys_calls() {
  return {
      {"cuMemcpyBatchAsync, on the library's stream", {}, copy_a_list},
      {"cuMemcpy2DAsync, on the library's stream", {}, copy_rows},
      {"cuMemcpyAsync, on the held stream",
       {},
       [](Lab& lab) { EPCCL_PROBE(cuMemcpyAsync(lab.pinned, lab.from, Lab::small, lab.held)); }},
      {"cuStreamWriteValue64, on the held stream", {}, [](Lab& lab) { lab.post(lab.held); }},
      {"cuStreamWaitValue64, on another stream", make_stream, [](Lab& lab) { lab.hold(stream); }},
      {"cuEventRecord, on the held stream", make_event, record_behind},
      {"cuStreamWaitEvent, for an event of the held stream", make_stream_and_event, wait_behind},
      {"cuEventDestroy of an event of the held stream", make_event,
       [](Lab& lab) {
         record_behind(lab);
         EPCCL_PROBE(cuEventDestroy(event));
       }},
      {"cuStreamQuery of the held stream",
       {},
       [](Lab& lab) {
         const CUresult result = cuStreamQuery(lab.held);
         check(result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result, "cuStreamQuery");
       }},
      {"cuStreamGetCtx, cuStreamGetPriority, cuStreamIsCapturing of the held stream", {}, look_at_held},
      {"cuPointerGetAttributes", {}, ask_about_memory},
      {"cuMemGetInfo",
       {},
       [](Lab&) {
         size_t free = 0, total = 0;
         EPCCL_PROBE(cuMemGetInfo(&free, &total));
       }},
      {"cuMemExportToShareableHandle, cuMemImportFromShareableHandle", map_pages, share_pages},
      {"cuIpcGetMemHandle", {}, share_by_ipc},
      {"cuMemGetHandleForAddressRange", {}, lend_to_cards},
      {"cuFlushGPUDirectRDMAWrites",
       {},
       [](Lab&) {
         EPCCL_PROBE(cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                                CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES));
       }},
      {"cuStreamBeginCapture to cuGraphDestroy, on another stream", make_stream, capture_copies},
  };
}

/// The host's memory is pageable.
std::vector<Question> of_pageable_copies() {
  const auto to_host = [](Lab& lab, CUstream on) {
    EPCCL_PROBE(cuMemcpyAsync(address_of(lab.pageable), lab.from, Lab::small, on));
  };
  const auto from_host = [](Lab& lab, CUstream on) {
    EPCCL_PROBE(cuMemcpyAsync(lab.to, address_of(lab.pageable), Lab::pageable_bytes, on));
  };
  return {
      {"a pageable copy to the host, on the held stream", {}, [=](Lab& lab) { to_host(lab, lab.held); }},
      {"a pageable copy from the host, on the held stream", {}, [=](Lab& lab) { from_host(lab, lab.held); }},
      {"a pageable copy to the host, on another stream", {}, [=](Lab& lab) { to_host(lab, lab.other); }},
      {"a pageable copy from the host, on another stream", {}, [=](Lab& lab) { from_host(lab, lab.other); }},
  };
}

// --- facts

bool waits(const Answer& answer) {
  return answer.state == Answer::State::working || answer.seconds > is_a_wait;
}

std::string in_words(const Question& question, const Answer& answer) {
  using State = Answer::State;
  if (answer.state == State::left_out)
    return fmt::format("{}: not asked, this build has no kernels", question.call);
  if (answer.state == State::failed) return fmt::format("{}: no answer: {}", question.call, answer.text);
  std::string call = fmt::format("does not wait ({:.3f} s)", answer.seconds);
  if (waits(answer)) call = fmt::format("WAITS for the held stream ({:.3f} s)", answer.seconds);
  if (answer.state == State::working)
    call = fmt::format("NEVER RETURNS, not within {} s after the held stream went on either", patience_after);
  std::string others = "other threads' calls go on";
  if (answer.others_call > is_a_wait)
    others = fmt::format("OTHER THREADS' CALLS WAIT as well ({})", answer.others_name);
  if (answer.was_ended && answer.state == State::returned) others = "OTHER THREADS' CALLS NEVER RETURN";
  std::string work = "other streams go on";
  if (answer.others_work > is_a_wait && answer.others_call <= is_a_wait) work = "OTHER STREAMS STAND STILL";
  return fmt::format("{} {}; {} ({:.4f} s at most), {}{}", question.call, call, others, answer.others_call,
                     work, answer.text.empty() ? "" : "; " + answer.text);
}

Json in_json(const Question& question, const Answer& answer) {
  Json fact{{"call", question.call}, {"says", in_words(question, answer)}};
  if (answer.state == Answer::State::left_out) return fact;
  if (answer.state == Answer::State::failed) {
    fact["no_answer"] = answer.text;
    return fact;
  }
  fact["waits"] = waits(answer);
  fact["never_returns"] = answer.state == Answer::State::working;
  fact["other_threads_wait"] = answer.others_call > is_a_wait || answer.was_ended;
  fact["other_streams_stand_still"] = answer.others_work > is_a_wait;
  fact["seconds"] = answer.seconds;
  fact["longest_call_of_others"] = answer.others_call;
  return fact;
}

/// What is known so far: printed, and in the file, however this program ends.
class Report {
 public:
  explicit Report(const char* file) : file_(file == nullptr ? "" : file) {}
  void add(const char* part, const Json& fact) {
    json_[part].push_back(fact);
    fmt::print("{}\n", fact["says"].get<std::string>());
    std::fflush(stdout);
    if (!file_.empty()) std::ofstream(file_) << json_.dump(2) << '\n';
  }

 private:
  const std::string file_;
  Json json_;
};

void ask_all(const std::vector<Question>& questions, Report& report) {
  for (const Question& question : questions) report.add("calls", in_json(question, ask(question)));
}

const char* text_of(Priority priority) {
  if (priority == Priority::of_held) return "the same";
  return priority == Priority::of_library ? "the library's" : "the highest";
}

void ask_channels(const ChannelQuestion& question, Report& report) {
  const ChannelAnswer answer = ask(question);
  const std::string connections = question.connections == 0
                                      ? "CUDA_DEVICE_MAX_CONNECTIONS not set"
                                      : fmt::format("CUDA_DEVICE_MAX_CONNECTIONS={}", question.connections);
  const char* const priority = text_of(question.others);
  const std::string held = question.holds_null ? "the NULL stream" : fmt::format("{}", question.held);
  Json fact{{"held", question.held},
            {"null_stream", question.holds_null},
            {"connections", question.connections},
            {"priority", priority},
            {"others", others_each}};
  std::string says = fmt::format("{} held, {}: of {} other streams of {} priority stand still with", held,
                                 connections, others_each, priority);
  for (size_t kind = 0; kind < kinds_of_work.size(); ++kind) {
    says += fmt::format("{} {}: {}", kind == 0 ? "" : ",", kinds_of_work[kind], answer.stuck[kind]);
    fact["stuck"][kinds_of_work[kind]] = answer.stuck[kind];
  }
  if (!answer.text.empty()) {
    says = fmt::format("{} held, {}, others of {} priority: no answer: {}", held, connections, priority,
                       answer.text);
    fact["no_answer"] = answer.text;
  }
  fact["says"] = says;
  report.add("channels", fact);
}

/// Shows that the others' answers can be trusted: it waits by what it is.
Question control() {
  return {"cuStreamSynchronize of the held stream", {}, [](Lab& lab) {
            EPCCL_PROBE(cuStreamSynchronize(lab.held));
          }};
}

void ask_everything(Report& report) {
  ask_all({control()}, report);
  for (const auto& questions :
       {of_pageable_copies(), of_the_librarys_calls(), of_kernels(), of_memory(), of_peers(), of_streams()})
    ask_all(questions, report);
  for (const Priority others : {Priority::of_held, Priority::of_library}) {
    for (const int held : {1, 7, 16}) ask_channels({held, others, 0}, report);
    for (const int held : {8, 31, 64}) ask_channels({held, others, 32}, report);
    ask_channels({1, others, 0, true}, report);
  }
  ask_channels({31, Priority::highest, 32}, report);
}

void check_limits(Report& report) {
  ask_all({control(),
           {"a call that never returns", {}, [](Lab&) { pause(); }},
           {"a call that ends the process", {}, [](Lab&) { raise(SIGKILL); }}},
          report);
}

}  // namespace
}  // namespace epccl::device::probe

int main(int argc, char** argv) {
  using namespace epccl::device;
  if (const int code = test::ask_for_gpu(); code != 0) return code;
  const bool of_limits = argc > 1 && std::strcmp(argv[1], "--limits") == 0;
  const int file = of_limits ? 2 : 1;
  try {
    probe::Report report(argc > file ? argv[file] : nullptr);
    of_limits ? probe::check_limits(report) : probe::ask_everything(report);
  } catch (const std::exception& failure) {
    fmt::print(stderr, "probe_driver: {}\n", failure.what());
    return 1;
  }
  return 0;
}
