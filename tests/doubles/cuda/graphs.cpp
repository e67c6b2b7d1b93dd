// Captures and graphs.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "state.hpp"

using namespace fake_cuda;

struct CUuserObject_st {
  void* object = nullptr;
  CUhostFn destroy = nullptr;
  std::atomic<unsigned> uses{0};
};

namespace fake_cuda {
namespace {

/// The last use is over: the program is told in a thread that may not call CUDA.
void drop(CUuserObject_st* object, unsigned count) {
  if (object->uses.fetch_sub(count) != count) return;
  std::thread([object] {
    ends_a_graph() = true;
    object->destroy(object->object);
    delete object;  // NOLINT: as the driver's
  }).join();
}

void count_graphs(long change) {
  const std::lock_guard lock(state().mutex);
  state().graphs += change;
}

/// All steps, one after the other, in any order that their edges allow: a driver may run branches at once or not.
CUresult run_in_some_order(const std::vector<Node>& nodes, std::minstd_rand& random) {
  std::vector<size_t> missing(nodes.size()), ready;
  std::vector<std::vector<size_t>> next(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    missing[i] = nodes[i].after.size();
    for (const size_t before : nodes[i].after) next[before].push_back(i);
    if (missing[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const size_t node = ready.back();
    ready.pop_back();
    if (nodes[node].run != nullptr)
      if (const CUresult result = nodes[node].run(); result != CUDA_SUCCESS) return result;
    for (const size_t after : next[node])
      if (--missing[after] == 0) ready.push_back(after);
  }
  return CUDA_SUCCESS;
}

}  // namespace

/// Objects of a graph, or of an executable one.
class Kept {
 public:
  Kept() = default;
  Kept(const Kept& other) : objects_(other.objects_) {
    for (const auto& [object, count] : objects_) object->uses += count;
  }
  Kept& operator=(const Kept&) = delete;
  ~Kept() {
    for (const auto& [object, count] : objects_) drop(object, count);
  }
  void add(CUuserObject_st* object, unsigned count) { objects_[object] += count; }

 private:
  std::map<CUuserObject_st*, unsigned> objects_;
};

bool& ends_a_graph() {
  thread_local bool value = false;
  return value;
}

}  // namespace fake_cuda

struct CUgraph_st {
  CUgraph_st() { count_graphs(1); }
  CUgraph_st(const CUgraph_st&) = delete;
  ~CUgraph_st() { count_graphs(-1); }
  std::vector<Node> nodes;
  Kept objects;
  std::atomic<bool> is_written{false};
};

struct CUgraphExec_st {
  /// What runs of it share; they come one after the other, and the last one ends it.
  struct Body {
    explicit Body(const CUgraph_st& graph) : nodes(graph.nodes), objects(graph.objects) { count_graphs(1); }
    Body(const Body&) = delete;
    ~Body() { count_graphs(-1); }
    const std::vector<Node> nodes;
    const Kept objects;
    std::mutex mutex;
    std::minstd_rand random{std::random_device()()};
  };
  std::shared_ptr<Body> body;
};

namespace fake_cuda {
namespace {

/// A graph is no object of several threads: who writes into it while another one does ends the process.
class Writing {
 public:
  explicit Writing(CUgraph_st& graph) : graph_(graph) {
    if (!graph_.is_written.exchange(true)) return;
    std::fputs("the double of the CUDA driver: two threads write into one graph\n", stderr);
    std::abort();
  }
  Writing(const Writing&) = delete;
  ~Writing() { graph_.is_written = false; }

 private:
  CUgraph_st& graph_;
};

size_t add_node(Session& session, CUstream stream, Node node) {
  session.graph->nodes.push_back(std::move(node));
  const size_t index = session.graph->nodes.size() - 1;
  session.behind[stream] = {index};
  return index;
}

void end_session(Session& session) {
  const std::lock_guard lock(state().mutex);
  state().captures.erase(&session);
  const auto leave = [&session](CUstream stream) {
    if (stream->session.get() == &session) stream->session.reset();
  };
  for (CUstream stream : state().streams) leave(stream);
  for (const auto& context : state().contexts)
    if (context != nullptr)
      for (const auto& [thread, stream] : context->thread_streams) leave(stream);
}

/// Whether all steps come before what the stream would do next.
bool all_joined(const std::vector<Node>& nodes, const std::vector<size_t>& behind) {
  std::vector<bool> seen(nodes.size(), false);
  std::vector<size_t> open = behind;
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    if (seen[node]) continue;
    seen[node] = true;
    open.insert(open.end(), nodes[node].after.begin(), nodes[node].after.end());
  }
  return std::ranges::find(seen, false) == seen.end();
}

}  // namespace

CUresult record(CUstream stream, std::function<CUresult()> run) {
  Session& session = *stream->session;
  if (session.is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const Writing here(*session.graph);
  const std::lock_guard lock(session.mutex);
  add_node(session, stream, {std::move(run), session.behind[stream]});
  return CUDA_SUCCESS;
}

// A node without work, so that a member that only waited has to be joined, too.
CUresult join(CUstream stream, const std::vector<size_t>& behind) {
  Session& session = *stream->session;
  if (session.is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const Writing here(*session.graph);
  const std::lock_guard lock(session.mutex);
  std::vector<size_t> after = session.behind[stream];
  for (const size_t node : behind)
    if (std::ranges::find(after, node) == after.end()) after.push_back(node);
  add_node(session, stream, {nullptr, std::move(after)});
  return CUDA_SUCCESS;
}

bool is_open(Session& session) {
  const std::lock_guard lock(state().mutex);
  return state().captures.contains(&session);
}

}  // namespace fake_cuda

extern "C" {

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  FAKE_CONTEXT(context);
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (const CUresult result = resolve(stream); result != CUDA_SUCCESS) return result;
  if (stream->session != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto session = std::make_shared<Session>();
  session->graph = new CUgraph_st;  // NOLINT: as the driver's
  session->origin = stream;
  session->mode = mode;
  session->thread = std::this_thread::get_id();
  const std::lock_guard lock(state().mutex);
  session->id = state().next_id++;
  state().captures.insert(session.get());
  stream->session = std::move(session);
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  FAKE_CONTEXT(context);
  *graph = nullptr;
  if (const CUresult result = resolve(stream); result != CUDA_SUCCESS) return result;
  if (stream->session == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  const std::shared_ptr<Session> session = stream->session;
  if (session->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (session->mode != CU_STREAM_CAPTURE_MODE_RELAXED && session->thread != std::this_thread::get_id())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  end_session(*session);
  const std::lock_guard lock(session->mutex);
  std::unique_ptr<CUgraph_st> made(session->graph);
  session->graph = nullptr;
  if (session->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!all_joined(made->nodes, session->behind[stream])) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *graph = made.release();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies, size_t* count) {
  if (const CUresult result = cuStreamIsCapturing(stream, status); result != CUDA_SUCCESS) return result;
  static_cast<void>(resolve(stream));
  if (dependencies != nullptr || count != nullptr) return CUDA_ERROR_NOT_SUPPORTED;  // nobody asks
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (id != nullptr) *id = stream->session->id;
  if (graph != nullptr) *graph = stream->session->graph;
  return CUDA_SUCCESS;
}

CUresult cuUserObjectCreate(CUuserObject* made, void* object, CUhostFn destroy, unsigned uses,
                            unsigned flags) {
  FAKE_CALLED();
  if (destroy == nullptr || uses == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  *made = new CUuserObject_st{object, destroy, {uses}};  // NOLINT
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count) {
  FAKE_CALLED();
  drop(object, count);
  return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags) {
  FAKE_CALLED();
  if (flags != 0 && flags != CU_GRAPH_USER_OBJECT_MOVE) return CUDA_ERROR_INVALID_VALUE;
  const Writing here(*graph);
  if (flags == 0) object->uses += count;
  graph->objects.add(object, count);
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  FAKE_CONTEXT(context);
  *executable = new CUgraphExec_st{std::make_shared<CUgraphExec_st::Body>(*graph)};  // NOLINT
  return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec, CUstream stream) {
  FAKE_CONTEXT(context);
  return submit(stream, [] { return CUDA_SUCCESS; });
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  FAKE_CONTEXT(context);
  return submit(stream, [body = executable->body] {
    const std::lock_guard lock(body->mutex);
    return run_in_some_order(body->nodes, body->random);
  });
}

CUresult cuGraphDestroy(CUgraph graph) {
  FAKE_CALLED();
  delete graph;  // NOLINT
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
  FAKE_CALLED();
  delete executable;  // NOLINT
  return CUDA_SUCCESS;
}
}
