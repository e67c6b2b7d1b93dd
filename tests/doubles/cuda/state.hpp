// What the parts of the double share.
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "context_lock.hpp"

namespace fake_cuda {

/// A step of a graph, and which ones must be through before.
struct Node {
  std::function<CUresult()> run;  // null: nothing but its place
  std::vector<size_t> after;
};

/// A capture into a graph.
struct Session {
  uint64_t id = 0;
  CUstream_st* origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;  // that began it
  std::atomic<bool> is_invalid{false};
  std::mutex mutex;                                    // of the following
  CUgraph graph = nullptr;                             // null once it was given to the program
  std::map<CUstream_st*, std::vector<size_t>> behind;  // by member: what its next step comes after
};

/// Where an event was recorded.
struct Mark {
  std::atomic<bool> done{false};
  std::chrono::steady_clock::time_point at;  // when, once it is done
  std::shared_ptr<Session> session;          // of a captured one
  std::vector<size_t> behind;
};

enum class Where : uint8_t { device, pinned, registered };

/// Addresses as programs see them, and where the bytes are.
struct Region {
  uint64_t base = 0, bytes = 0;
  std::byte* data = nullptr;
  Where where = Where::device;
  int ordinal = 0;
  int reader = -1;  // mapped memory: the GPU that may use it
  uint64_t id = 0;
  int fd = -1;
  uint64_t inode = 0;
  bool is_mapped_memory = false;                   // VMM
  uint64_t reserved_base = 0, reserved_bytes = 0;  // of that: what it is a part of
  bool is_accessible = true;
  bool is_for_cards = true;
  bool is_import = false;
  int exporter = 0;            // CUDA IPC: the process
  uint64_t exporter_base = 0;  // and where it has the memory
  int uses = 1;
};

struct State {
  std::mutex mutex;
  std::map<uint64_t, Region> regions;                  // by base
  std::map<uint64_t, uint64_t> freed;                  // base -> bytes: never to be touched again
  std::map<uint64_t, std::vector<uint64_t>> reusable;  // by bytes
  std::map<std::string, long, std::less<>> settings;
  std::map<std::string, std::optional<long>, std::less<>> environment;  // of settings, as it was found
  std::map<std::string, long> calls;
  std::vector<std::unique_ptr<CUctx_st>> contexts;
  std::set<CUstream_st*> streams;
  std::set<CUevent_st*> events;
  std::set<Session*> captures;
  uint64_t next_id = 1;
  long graphs = 0;  // and executables
  std::atomic<bool> is_initialised = false;
};
State& state();

long setting(std::string_view name, long otherwise);
int environment(const char* name, int otherwise);
int device_count();
int driver_version();
bool memory_is_open();
/// While "export_waits" is set.
void wait_to_export();

/// Counts the call.
void called(const char* function);
void launched(const std::string& kernel, unsigned blocks);
/// Begins a call that shares the context's lock, or has it alone and waits for the GPU.
#define FAKE_CALLED()            \
  ::fake_cuda::called(__func__); \
  const ::fake_cuda::ContextLock context_lock_(::fake_cuda::ContextLock::Kind::shared)
#define FAKE_CALLED_ALONE()      \
  ::fake_cuda::called(__func__); \
  const ::fake_cuda::ContextLock context_lock_(::fake_cuda::ContextLock::Kind::alone)
/// Begins one that allocates: the one or the other.
#define FAKE_CALLED_TO_ALLOCATE() \
  ::fake_cuda::called(__func__);  \
  const ::fake_cuda::ContextLock context_lock_(::fake_cuda::lock_to_allocate())
/// Begins one that then waits without it.
#define FAKE_CALLED_TO_WAIT()    \
  ::fake_cuda::called(__func__); \
  { const ::fake_cuda::ContextLock context_lock_(::fake_cuda::ContextLock::Kind::shared); }

/// What calls take that allocate or register memory: as "alone_allocations" is set.
ContextLock::Kind lock_to_allocate();

/// The calling thread's context, or the error of a call that needs one.
CUresult need_context(CUctx_st** context);
/// That context; null: none.
CUctx_st* current_context();
#define FAKE_NEED_CONTEXT(name) \
  CUctx_st* name = nullptr;     \
  if (const CUresult result_ = ::fake_cuda::need_context(&name); result_ != CUDA_SUCCESS) return result_
#define FAKE_CONTEXT(name) \
  FAKE_CALLED();           \
  FAKE_NEED_CONTEXT(name)
#define FAKE_CONTEXT_TO_ALLOCATE(name) \
  FAKE_CALLED_TO_ALLOCATE();           \
  FAKE_NEED_CONTEXT(name)
#define FAKE_CONTEXT_ALONE(name) \
  FAKE_CALLED_ALONE();           \
  FAKE_NEED_CONTEXT(name)

/// CUDA_SUCCESS, or what a call gets that a capture forbids: one in global mode, or any but a relaxed one of this thread, unless
/// the thread said that it knows better. The capture is spoilt.
CUresult unsafe_while_capturing();

/// The bytes of [address, address + bytes), or an error. The state is locked by the callee.
CUresult find_bytes(uint64_t address, uint64_t bytes, std::byte** data);
/// Whether a context may use the memory at an address: its GPU's own, that of peers, or what was mapped for it. Anything that is not
/// GPU memory.
bool is_in_reach(CUctx_st* context, uint64_t address);
/// The region that holds the address; the state is locked by the caller.
Region* region_at(uint64_t address);

/// The stream behind a handle.
CUresult resolve(CUstream& stream);
/// Queues or records; the NULL stream is resolved.
CUresult submit(CUstream stream, std::function<CUresult()> step);
bool is_capturing(CUstream stream);
/// Spoils the capture that the stream is in.
CUresult refuse_in_capture(CUstream stream);
/// Adds a step to the capture that the stream is in.
CUresult record(CUstream stream, std::function<CUresult()> run);
/// What the stream is given next comes after those steps as well; it becomes a member of the capture.
CUresult join(CUstream stream, const std::vector<size_t>& behind);
bool is_open(Session& session);
/// Whether the thread runs what a graph's end calls, where nothing of CUDA may be called.
bool& ends_a_graph();
void add_kernel(const char* name, size_t bytes, void (*run)(const void*, unsigned, unsigned));

}  // namespace fake_cuda

namespace fake_cuda {

/// A hardware queue: does what its streams were given one after the other, whichever stream it is of.
struct Channel {
  struct Step {
    CUstream_st* stream;
    std::function<CUresult()> run;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Step> steps;
  bool is_ending = false;
  std::thread thread;

  Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel();  // when its steps are through
  void add(CUstream_st* stream, std::function<CUresult()> run);

 private:
  void run();
};

}  // namespace fake_cuda

struct CUctx_st {
  int ordinal = 0;
  int uses = 0;
  std::atomic<CUresult> error{CUDA_SUCCESS};  // stays
  CUstream null_stream = nullptr;
  std::map<std::thread::id, CUstream> thread_streams;
  std::set<int> peers;  // GPUs whose memory it may use
  // Where streams share channels: by priority, and how many streams of it were made.
  std::map<int, std::vector<std::shared_ptr<fake_cuda::Channel>>> channels;
  std::map<int, size_t> made;
};

struct CUevent_st {
  CUctx_st* context = nullptr;
  bool is_timed = true;
  std::shared_ptr<fake_cuda::Mark> mark;  // null: never recorded
};

struct CUstream_st {
  CUctx_st* context = nullptr;
  bool waits_for_null = true;
  int priority = 0;
  CUgreenCtx green = nullptr;  // that it was made in
  std::shared_ptr<fake_cuda::Session> session;
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t submitted = 0, completed = 0;
  std::shared_ptr<fake_cuda::Channel> channel;
};
