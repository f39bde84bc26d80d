// The parts of the machine that know one another: who owns an address or a stream, and how a call is refused.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <mutex>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace machine {

// One lock: the machine does one thing at a time, in the order in which it is asked.
extern std::recursive_mutex lock;
typedef std::lock_guard<std::recursive_mutex> Locked;

struct Counters {
  long launches, synchronisations, allocations, to_device, to_host, between_devices, products, graph_launches;
};
extern Counters counters;

// Writes the reason to stderr, keeps it for `fakecuda_refusal`, and returns `code`.
template <class Code> Code refuse(Code code, const char* format, ...) __attribute__((format(printf, 2, 3)));
void say(const char* format, va_list args);
template <class Code> Code refuse(Code code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  say(format, args);
  va_end(args);
  return code;
}

int device_count();
int current_device();

enum class Side { unknown, page_locked, device };
struct Place {
  Side side;
  int device;      // -1 in host memory
  size_t left;     // bytes from the address to the end of its block
};
Place place_of(const void* address);

// The device of a stream; a default stream is the current device's; -1 where there is no such stream.
int device_of(cudaStream_t stream);
bool is_blocking(cudaStream_t stream);  // the legacy stream waits for it
// cudaSuccess where work for `stream` may be started while the current device is current.
cudaError_t check_stream(cudaStream_t stream, const char* what);

}  // namespace machine
