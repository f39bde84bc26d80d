// Devices, their streams and events, and what the machine says of itself.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "queues.h"

namespace machine {

std::recursive_mutex lock;
Counters counters;

namespace {

thread_local int current = 0;  // CUDA's threads begin on device 0, too
std::string last_refusal;
struct Stream {
  int device;
  bool blocking;
};
std::map<cudaStream_t, Stream> streams;

struct Event {
  int device;
  bool timed, recorded;
  double time;
  Mark mark;
  Point point;
  bool asked;  // whether it has come about, and it had not
};
std::set<Event*> events;

uintptr_t context_of(int device) { return 0x1000 + device; }
bool is_default(cudaStream_t stream) { return (uintptr_t)stream <= 2; }  // null, legacy, per thread

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Event* event_of(cudaEvent_t event) {
  Locked guard(lock);
  return events.count((Event*)event) ? (Event*)event : nullptr;
}

cudaError_t make_stream(cudaStream_t* out, unsigned flags) {
  Locked guard(lock);
  *out = (cudaStream_t)malloc(16);  // an address that nothing else has
  streams[*out] = {current, !(flags & cudaStreamNonBlocking)};
  return cudaSuccess;
}

cudaError_t make_event(cudaEvent_t* out, unsigned flags) {
  Locked guard(lock);
  Event* event = new Event{current, !(flags & cudaEventDisableTiming), false, 0, {}, {}, false};
  events.insert(event);
  *out = (cudaEvent_t)event;
  return cudaSuccess;
}

}  // namespace

void say(const char* format, va_list args) {
  char text[512];
  vsnprintf(text, sizeof(text), format, args);
  Locked guard(lock);
  last_refusal = text;
  fprintf(stderr, "fake CUDA: %s\n", text);
}

int device_count() {
  const char* asked = getenv("FAKE_CUDA_DEVICES");
  return asked ? atoi(asked) : 2;
}

int current_device() { return current; }

int device_of(cudaStream_t stream) {
  if (is_default(stream)) return current;
  Locked guard(lock);
  auto found = streams.find(stream);
  return found == streams.end() ? -1 : found->second.device;
}

bool is_blocking(cudaStream_t stream) {
  auto found = streams.find(stream);
  return found != streams.end() && found->second.blocking;
}

cudaError_t check_stream(cudaStream_t stream, const char* what) {
  const int device = device_of(stream);
  if (device < 0) return refuse(cudaErrorInvalidResourceHandle, "%s on a stream that does not exist", what);
  if (device == current) return (uintptr_t)stream <= 1 ? check_legacy(what) : cudaSuccess;
  return refuse(cudaErrorInvalidResourceHandle, "%s on a stream of device %d while device %d is current", what, device, current);
}

}  // namespace machine

using namespace machine;

EXPORT void fakecuda_counters(Counters* out) {
  Locked guard(lock);
  finish_all();
  *out = counters;
}
EXPORT void fakecuda_count_product() { counters.products++; }
EXPORT const char* fakecuda_refusal() { return last_refusal.c_str(); }
EXPORT int fakecuda_current_device() { return current; }
EXPORT void fakecuda_refuse(const char* text) { refuse(0, "%s", text); }

// ------------------------------------------------------------------ devices
EXPORT cudaError_t cudaGetDeviceCount(int* out) { *out = device_count(); return cudaSuccess; }
EXPORT cudaError_t cudaGetDevice(int* out) { *out = current; return cudaSuccess; }
EXPORT cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
  current = device;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceSynchronize() {
  counters.synchronisations++;
  if (auto status = check_safe("cudaDeviceSynchronize", Relaxed::none)) return status;
  return finish_all();
}
EXPORT cudaError_t cudaRuntimeGetVersion(int* out) { *out = CUDART_VERSION; return cudaSuccess; }
EXPORT cudaError_t cudaDriverGetVersion(int* out) { *out = CUDART_VERSION; return cudaSuccess; }

// The figures of an H100, which decide how CuPy divides its work.
EXPORT cudaError_t cudaDeviceGetAttribute(int* out, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
  static const std::map<int, int> values = {
      {cudaDevAttrMaxThreadsPerBlock, 1024}, {cudaDevAttrMaxBlockDimX, 1024}, {cudaDevAttrMaxBlockDimY, 1024},
      {cudaDevAttrMaxBlockDimZ, 64}, {cudaDevAttrMaxGridDimX, 2147483647}, {cudaDevAttrMaxGridDimY, 65535},
      {cudaDevAttrMaxGridDimZ, 65535}, {cudaDevAttrMaxSharedMemoryPerBlock, 49152}, {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMaxRegistersPerBlock, 65536}, {cudaDevAttrMultiProcessorCount, 132},
      {cudaDevAttrMaxThreadsPerMultiProcessor, 2048}, {cudaDevAttrComputeCapabilityMajor, 9},
      {cudaDevAttrComputeCapabilityMinor, 0}, {cudaDevAttrMaxSharedMemoryPerBlockOptin, 232448},
      {cudaDevAttrClockRate, 1980000}, {cudaDevAttrMemoryClockRate, 2619000}, {cudaDevAttrGlobalMemoryBusWidth, 5120},
      {cudaDevAttrMemoryPoolsSupported, 0}, {cudaDevAttrUnifiedAddressing, 1}, {cudaDevAttrIntegrated, 0},
      {cudaDevAttrManagedMemory, 1}, {cudaDevAttrConcurrentKernels, 1}, {cudaDevAttrPageableMemoryAccess, 0},
      {cudaDevAttrKernelExecTimeout, 0}, {cudaDevAttrComputeMode, 0}, {cudaDevAttrGpuOverlap, 1},
      {cudaDevAttrSingleToDoublePrecisionPerfRatio, 2}, {cudaDevAttrMaxTexture1DLinearWidth, 268435456}};
  auto found = values.find(attribute);
  if (found == values.end()) return refuse(cudaErrorInvalidValue, "device attribute %d is not known here", attribute);
  *out = found->second;
  return cudaSuccess;
}

EXPORT cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp* out, int device) {
  if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
  memset(out, 0, sizeof(*out));
  snprintf(out->name, sizeof(out->name), "stand-in on the CPU");
  out->totalGlobalMem = size_t(80) << 30;
  out->sharedMemPerBlock = 49152;
  out->regsPerBlock = 65536;
  out->warpSize = 32;
  out->maxThreadsPerBlock = 1024;
  const int block[] = {1024, 1024, 64}, grid[] = {2147483647, 65535, 65535};
  memcpy(out->maxThreadsDim, block, sizeof(block));
  memcpy(out->maxGridSize, grid, sizeof(grid));
#if CUDART_VERSION < 13000
  out->clockRate = 1980000;
#endif
  out->totalConstMem = 65536;
  out->major = 9;
  out->multiProcessorCount = 132;
  out->maxThreadsPerMultiProcessor = 2048;
  out->sharedMemPerBlockOptin = 232448;
  return cudaSuccess;
}
#undef cudaGetDeviceProperties
EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) { return cudaGetDeviceProperties_v2(out, device); }

EXPORT cudaError_t cudaDeviceGetPCIBusId(char* out, int size, int device) {
  if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
  snprintf(out, size, "0000:%02X:00.0", device + 1);
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceCanAccessPeer(int* out, int, int) { *out = 1; return cudaSuccess; }
EXPORT cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
EXPORT cudaError_t cudaProfilerStart() { return cudaSuccess; }
EXPORT cudaError_t cudaProfilerStop() { return cudaSuccess; }
EXPORT cudaError_t cudaGetLastError() { return cudaSuccess; }
EXPORT cudaError_t cudaPeekAtLastError() { return cudaSuccess; }

static const char* error_name(int code) {
  switch (code) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorSymbolNotFound: return "cudaErrorSymbolNotFound";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorNotSupported: return "cudaErrorNotSupported";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureMerge: return "cudaErrorStreamCaptureMerge";
    case cudaErrorStreamCaptureUnmatched: return "cudaErrorStreamCaptureUnmatched";
    case cudaErrorStreamCaptureUnjoined: return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
    case cudaErrorStreamCaptureImplicit: return "cudaErrorStreamCaptureImplicit";
    case cudaErrorCapturedEvent: return "cudaErrorCapturedEvent";
    default: return "cudaErrorUnknown";
  }
}
// CuPy shows the text in its exception: the reason of a refusal belongs there.
static const char* error_text(int code) { return code ? last_refusal.c_str() : "no error"; }
EXPORT const char* cudaGetErrorName(cudaError_t code) { return error_name(code); }
EXPORT const char* cudaGetErrorString(cudaError_t code) { return error_text(code); }
EXPORT CUresult cuGetErrorName(CUresult code, const char** out) { *out = error_name(code); return CUDA_SUCCESS; }
EXPORT CUresult cuGetErrorString(CUresult code, const char** out) { *out = error_text(code); return CUDA_SUCCESS; }

EXPORT CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
EXPORT CUresult cuDriverGetVersion(int* out) { *out = CUDA_VERSION; return CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetCurrent(CUcontext* out) { *out = (CUcontext)context_of(current); return CUDA_SUCCESS; }
EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  const int device = int((uintptr_t)context - context_of(0));
  return cudaSetDevice(device) ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetDevice(CUdevice* out) { *out = current; return CUDA_SUCCESS; }
EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext* out) {
  const int device = device_of(stream);
  *out = (CUcontext)context_of(device);
  return device < 0 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

// ------------------------------------------------------------------ streams
EXPORT cudaError_t cudaStreamCreate(cudaStream_t* out) { return make_stream(out, 0); }
EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) { return make_stream(out, flags); }
EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int) { return make_stream(out, flags); }
EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Locked guard(lock);
  if (streams.count(stream)) finish(stream);
  if (!streams.erase(stream)) return refuse(cudaErrorInvalidResourceHandle, "a stream that does not exist is destroyed");
  free(stream);
  return cudaSuccess;
}
static cudaError_t known(cudaStream_t stream) {
  return device_of(stream) < 0 ? refuse(cudaErrorInvalidResourceHandle, "there is no stream %p", (void*)stream) : cudaSuccess;
}
EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  counters.synchronisations++;
  if (auto status = check_not_captured(stream, "the host waits for")) return status;
  if (auto status = known(stream)) return status;
  return finish(stream);
}
// No, at first; who asks again lets it be done.
static bool stream_asked = false;
static cudaError_t asked_for(const Point& point, bool& asked) {
  if (!asked && !is_done(point)) {
    asked = true;
    return cudaErrorNotReady;
  }
  asked = false;
  return finish(point);
}
EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (auto status = check_not_captured(stream, "the host asks for")) return status;
  if (auto status = known(stream)) return status;
  return asked_for(point_of(stream), stream_asked);
}
EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (!event_of(event)) return refuse(cudaErrorInvalidResourceHandle, "a stream waits for an event that does not exist");
  if (auto status = known(stream)) return status;
  if (auto status = wait_for(stream, event_of(event)->mark)) return status;
  if (!is_captured(stream)) wait_for_point(stream, event_of(event)->point);
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* out) { *out = 0; return known(stream); }
EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t call, void* data, unsigned) {
  if (auto status = known(stream)) return status;
  if (auto status = check_not_captured(stream, "a callback is added to")) return status;
  finish(stream);
  call(stream, cudaSuccess, data);
  return cudaSuccess;
}
EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t call, void* data) {
  if (auto status = known(stream)) return status;
  if (!is_captured(stream)) finish(stream);
  return give_at_once(stream, [=] {
    call(data);
    return 0;
  });
}

// ------------------------------------------------------------------ events
EXPORT cudaError_t cudaEventCreate(cudaEvent_t* out) { return make_event(out, 0); }
EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) { return make_event(out, flags); }
EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Locked guard(lock);
  if (!events.erase((Event*)event)) return refuse(cudaErrorInvalidResourceHandle, "an event that does not exist is destroyed");
  delete (Event*)event;
  return cudaSuccess;
}
EXPORT cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  Event* event = event_of(handle);
  if (!event || known(stream)) return refuse(cudaErrorInvalidResourceHandle, "no such event or stream");
  const int device = device_of(stream);
  if (event->device != device) {
    return refuse(cudaErrorInvalidResourceHandle, "an event of device %d is recorded on a stream of device %d", event->device, device);
  }
  event->time = now();
  event->recorded = true;
  event->mark = mark_of(stream);
  if (!event->mark.capture) event->point = point_of(stream);
  event->asked = false;
  return cudaSuccess;
}
static cudaError_t asked(cudaEvent_t handle) {
  Event* event = event_of(handle);
  if (!event) return cudaErrorInvalidResourceHandle;
  if (event->mark.capture) return refuse(cudaErrorCapturedEvent, "an event of a capture is asked for");
  return cudaSuccess;
}
EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (auto status = check_safe("cudaEventQuery")) return status;
  if (auto status = asked(event)) return status;
  return asked_for(event_of(event)->point, event_of(event)->asked);
}
EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  counters.synchronisations++;
  if (auto status = asked(event)) return status;
  return finish(event_of(event)->point);
}
EXPORT cudaError_t cudaEventElapsedTime(float* out, cudaEvent_t from, cudaEvent_t to) {
  Event *first = event_of(from), *second = event_of(to);
  if (!first || !second || !first->timed || !second->timed || !first->recorded || !second->recorded) {
    return refuse(cudaErrorInvalidResourceHandle, "time between events of which one was not recorded or keeps no time");
  }
  if (first->device != second->device) return refuse(cudaErrorInvalidResourceHandle, "time between events of two devices");
  *out = float((second->time - first->time) * 1e3);
  return cudaSuccess;
}
EXPORT cudaError_t cudaEventElapsedTime_v2(float* out, cudaEvent_t from, cudaEvent_t to) { return cudaEventElapsedTime(out, from, to); }
