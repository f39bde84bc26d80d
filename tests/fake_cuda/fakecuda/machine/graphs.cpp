// Stream capture and graphs: what captured streams are given is kept, and run by every launch of the graph.
#include "queues.h"

#include <cstdio>
#include <map>
#include <memory>
#include <thread>
#include <vector>

namespace machine {

namespace {

struct Capture {
  cudaStream_t origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  bool broken = false;
  std::vector<Work> nodes;
  std::map<cudaStream_t, Seen> streams;  // of each stream that takes part: how many nodes of which streams are before its next
};
struct Graph {
  std::vector<Work> nodes;
};

long begun;
std::map<long, Capture> captures;
thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

std::map<long, Capture>::iterator of(cudaStream_t stream) {
  auto found = captures.begin();
  while (found != captures.end() && !found->second.streams.count(stream)) ++found;
  return found;
}

void merge(Seen& into, const Seen& from) {
  for (const auto& [stream, count] : from) {
    if (count > into[stream]) into[stream] = count;
  }
}

}  // namespace

bool is_captured(cudaStream_t stream) {
  Locked guard(lock);
  return of(stream) != captures.end();
}

cudaError_t give(cudaStream_t stream, Work work) {
  if (late() && !is_captured(stream)) return enqueue(stream, std::move(work));
  return give_at_once(stream, std::move(work));
}

cudaError_t give_at_once(cudaStream_t stream, Work work) {
  {
    Locked guard(lock);
    auto found = of(stream);
    if (found != captures.end()) {
      Capture& capture = found->second;
      if (capture.broken) return refuse(cudaErrorStreamCaptureInvalidated, "the capture was ended by what was refused before");
      capture.nodes.push_back(std::move(work));
      capture.streams[stream][stream] = capture.nodes.size();
      return cudaSuccess;
    }
  }
  return cudaError_t(work());
}

cudaError_t check_not_captured(cudaStream_t stream, const char* what) {
  Locked guard(lock);
  auto found = of(stream);
  if (found == captures.end()) return cudaSuccess;
  found->second.broken = true;
  return refuse(cudaErrorStreamCaptureUnsupported, "%s a stream that is captured", what);
}

cudaError_t check_safe(const char* what, Relaxed relaxed) {
  Locked guard(lock);
  cudaError_t status = cudaSuccess;
  for (auto& [number, capture] : captures) {
    const bool own = capture.thread == std::this_thread::get_id();
    const bool seen = own ? capture.mode != cudaStreamCaptureModeRelaxed
                          : capture.mode == cudaStreamCaptureModeGlobal && mode_of_thread == cudaStreamCaptureModeGlobal;
    const bool always = relaxed == Relaxed::none || (own && relaxed == Relaxed::others);
    if (!always && (mode_of_thread == cudaStreamCaptureModeRelaxed || !seen)) continue;
    capture.broken = true;
    status = refuse(cudaErrorStreamCaptureUnsupported, "%s while a stream is captured", what);
  }
  return status;
}

cudaError_t check_legacy(const char* what) {
  Locked guard(lock);
  for (auto& [number, capture] : captures) {
    for (const auto& [stream, seen] : capture.streams) {
      if (!is_blocking(stream)) continue;
      capture.broken = true;
      return refuse(cudaErrorStreamCaptureImplicit, "%s on the legacy stream while a blocking stream is captured", what);
    }
  }
  return cudaSuccess;
}

Mark mark_of(cudaStream_t stream) {
  Locked guard(lock);
  auto found = of(stream);
  return found == captures.end() ? Mark{} : Mark{found->first, found->second.streams[stream]};
}

cudaError_t wait_for(cudaStream_t stream, const Mark& mark) {
  Locked guard(lock);
  auto found = of(stream);
  if (!mark.capture) {
    if (found == captures.end()) return cudaSuccess;
    found->second.broken = true;
    return refuse(cudaErrorStreamCaptureIsolation, "a stream that is captured waits for an event outside of the capture");
  }
  auto marked = captures.find(mark.capture);
  if (marked == captures.end()) return refuse(cudaErrorCapturedEvent, "a stream waits for an event of a capture that has ended");
  if (found != captures.end() && found != marked) {
    found->second.broken = marked->second.broken = true;
    return refuse(cudaErrorStreamCaptureMerge, "two captures would become one");
  }
  merge(marked->second.streams[stream], mark.seen);
  return cudaSuccess;
}

}  // namespace machine

using namespace machine;

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  Locked guard(lock);
  if (auto status = check_stream(stream, "a capture")) return status;
  if ((uintptr_t)stream <= 1) return refuse(cudaErrorStreamCaptureUnsupported, "the legacy stream cannot be captured");
  if (of(stream) != captures.end()) return refuse(cudaErrorIllegalState, "the stream is captured already");
  Capture& capture = captures[++begun];
  capture.origin = stream;
  capture.mode = mode;
  capture.thread = std::this_thread::get_id();
  capture.streams[stream] = {};
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  Locked guard(lock);
  *out = nullptr;
  auto found = of(stream);
  if (found == captures.end()) return refuse(cudaErrorIllegalState, "the stream is not captured");
  Capture capture = std::move(found->second);
  if (capture.origin != stream) {
    found->second = std::move(capture);
    found->second.broken = true;
    return refuse(cudaErrorStreamCaptureUnmatched, "the capture began in another stream");
  }
  if (capture.mode != cudaStreamCaptureModeRelaxed && capture.thread != std::this_thread::get_id()) {
    found->second = std::move(capture);
    return refuse(cudaErrorStreamCaptureWrongThread, "the capture began in another thread");
  }
  captures.erase(found);
  if (capture.broken) return refuse(cudaErrorStreamCaptureInvalidated, "the capture was ended by what was refused before");
  Seen& joined = capture.streams[stream];
  for (const auto& [other, seen] : capture.streams) {
    auto last = seen.find(other);
    if (last != seen.end() && joined[other] < last->second) {
      return refuse(cudaErrorStreamCaptureUnjoined, "a stream of the capture was not joined with the first one by an event");
    }
  }
  *out = (cudaGraph_t) new Graph{std::move(capture.nodes)};
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* out) {
  Locked guard(lock);
  auto found = of(stream);
  *out = found == captures.end() ? cudaStreamCaptureStatusNone
         : found->second.broken  ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
  if ((uintptr_t)stream <= 1) return check_legacy("a question");
  return device_of(stream) < 0 ? cudaErrorInvalidResourceHandle : cudaSuccess;
}
EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  const auto before = mode_of_thread;
  mode_of_thread = (cudaStreamCaptureMode)*mode;
  *mode = (CUstreamCaptureMode)before;
  return CUDA_SUCCESS;
}

// ------------------------------------------------------------------ graphs: what can be launched holds the nodes, too
static cudaError_t instantiate(cudaGraphExec_t* out, cudaGraph_t graph) {
  if (!graph) return refuse(cudaErrorInvalidValue, "there is no graph");
  *out = (cudaGraphExec_t) new std::shared_ptr<Graph>(new Graph(*(Graph*)graph));
  return cudaSuccess;
}
EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) { return instantiate(out, graph); }
EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) { return instantiate(out, graph); }
EXPORT cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream) { return check_stream(stream, "a graph"); }
EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  if (auto status = check_stream(stream, "a graph")) return status;
  if (auto status = check_not_captured(stream, "a graph is launched on")) return status;
  finish(stream);
  const std::shared_ptr<Graph> nodes = *(std::shared_ptr<Graph>*)graph;
  {
    Locked guard(lock);
    counters.graph_launches++;
  }
  for (const Work& work : nodes->nodes) {  // without the lock: some of them ask for Python's
    if (int status = work()) return cudaError_t(status);
  }
  return cudaSuccess;
}
EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete (Graph*)graph;
  return cudaSuccess;
}
EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete (std::shared_ptr<Graph>*)graph;
  return cudaSuccess;
}
EXPORT cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned) {
  FILE* file = fopen(path, "w");
  if (!file) return refuse(cudaErrorOperatingSystem, "%s cannot be written", path);
  fprintf(file, "digraph dot {\n");
  for (size_t i = 0; i < ((Graph*)graph)->nodes.size(); i++) fprintf(file, "\"node %zu\"\n", i);
  fprintf(file, "}\n");
  fclose(file);
  return cudaSuccess;
}

// For libraries in Python: what a stream is given, and whether it is captured.
EXPORT int fakecuda_captured(cudaStream_t stream) { return is_captured(stream); }
EXPORT int fakecuda_give(cudaStream_t stream, int (*work)()) { return give_at_once(stream, work); }
