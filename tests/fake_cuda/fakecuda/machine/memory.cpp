// Memory: every block lies against a page that faults, holds NaNs at first, and is checked when it is freed.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "queues.h"

namespace machine {

namespace {

const size_t PAGE = 4096, ALIGNMENT = 16, TOTAL = size_t(80) << 30;
const unsigned char NAN_BYTE = 0xff, MARGIN_BYTE = 0xa5;
const size_t MOST_FREED = size_t(1) << 30;
const size_t POISONED = size_t(64) << 20;  // larger blocks keep the zeros of fresh pages

struct Block {
  size_t size;
  int device;
  char* pages;  // none where the program's own memory is page-locked
  size_t mapped;
  bool pooled = false;  // a pool keeps it instead of giving it back to CUDA, for arrays of the same stream
  cudaStream_t stream = nullptr;
  bool freed = false;
};
std::map<uintptr_t, Block> blocks;
std::map<int, size_t> held, most;
size_t freed_later;

size_t margin(size_t size) { return (ALIGNMENT - size % ALIGNMENT) % ALIGNMENT; }

cudaError_t allocate(void** out, size_t size, int device) {
  Locked guard(lock);
  if (auto status = check_safe("an allocation")) return status;
  if (device >= 0 && held[device] + size > TOTAL) return cudaErrorMemoryAllocation;
  const size_t rounded = size + margin(size), inside = (rounded + PAGE - 1) / PAGE * PAGE;
  char* pages = (char*)mmap(nullptr, inside + 2 * PAGE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return cudaErrorMemoryAllocation;
  mprotect(pages, PAGE, PROT_NONE);
  mprotect(pages + PAGE + inside, PAGE, PROT_NONE);
  char* start = pages + PAGE + inside - rounded;
  if (device >= 0 && size <= POISONED) memset(start, NAN_BYTE, size);
  memset(start + size, MARGIN_BYTE, margin(size));
  blocks[(uintptr_t)start] = {size, device, pages, inside + 2 * PAGE};
  held[device] += size;
  if (held[device] > most[device]) most[device] = held[device];
  counters.allocations++;
  *out = start;
  return cudaSuccess;
}

cudaError_t unmap(const void* address) {
  Locked guard(lock);
  const auto found = blocks.find((uintptr_t)address);
  const Block block = found->second;
  cudaError_t status = cudaSuccess;
  for (size_t i = 0; i < margin(block.size); i++) {
    if (((unsigned char*)address)[block.size + i] != MARGIN_BYTE) {
      status = refuse(cudaErrorIllegalAddress, "byte %zu of a block of %zu bytes was written", block.size + i, block.size);
      break;
    }
  }
  munmap(block.pages, block.mapped);
  blocks.erase(found);
  freed_later -= block.freed ? block.size : 0;
  return status;
}

cudaError_t release(void* address, bool host) {
  Locked guard(lock);
  if (!address) return cudaSuccess;
  auto found = blocks.find((uintptr_t)address);
  if (found == blocks.end() || !found->second.pages || found->second.freed || (found->second.device < 0) != host) {
    return refuse(cudaErrorInvalidValue, "free of %p, which is no %s block", address, host ? "page-locked" : "device");
  }
  Block& block = found->second;
  if (!block.pooled) {
    if (auto status = check_safe("a free")) return status;
  }
  held[block.device] -= block.size;
  const bool later = late() && block.pooled && device_of(block.stream) >= 0;
  if (!later) {
    if (late()) finish_all();
    return unmap(address);
  }
  // A pool gives the memory to later arrays of the same stream: other streams that still use it find something else there.
  block.freed = true;
  freed_later += block.size;
  enqueue(block.device, block.stream, [=] { return int(unmap(address)); });
  return freed_later < MOST_FREED ? cudaSuccess : finish_all();
}

}  // namespace

Place place_of(const void* address) {
  Locked guard(lock);
  auto after = blocks.upper_bound((uintptr_t)address);
  if (after == blocks.begin()) return {Side::unknown, -1, 0};
  const auto& [start, block] = *--after;
  const size_t offset = (uintptr_t)address - start;
  if (offset >= (block.size ? block.size : 1)) return {Side::unknown, -1, 0};
  return {block.device < 0 ? Side::page_locked : Side::device, block.device, block.size - offset};
}

namespace {

cudaError_t page_lock(void* address, size_t size) {
  Locked guard(lock);
  if (!address || !size) return refuse(cudaErrorInvalidValue, "cudaHostRegister of %zu bytes at %p", size, address);
  auto after = blocks.lower_bound((uintptr_t)address + size);
  if (after != blocks.begin()) {
    const auto& [start, block] = *--after;
    if (start + block.size > (uintptr_t)address) {
      return refuse(cudaErrorHostMemoryAlreadyRegistered, "cudaHostRegister of %zu bytes at %p, which another block has", size, address);
    }
  }
  blocks[(uintptr_t)address] = {size, -1, nullptr, 0};
  return cudaSuccess;
}

cudaError_t unlock_pages(void* address) {
  Locked guard(lock);
  auto found = blocks.find((uintptr_t)address);
  if (found == blocks.end() || found->second.pages) {
    return refuse(cudaErrorHostMemoryNotRegistered, "cudaHostUnregister of %p, which is not registered", address);
  }
  blocks.erase(found);
  return cudaSuccess;
}

const char* name(Side side) { return side == Side::device ? "device" : side == Side::page_locked ? "page-locked" : "host"; }

cudaError_t copy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
  Locked guard(lock);
  if (!size) return cudaSuccess;
  const Place target = place_of(to), source = place_of(from);
  const bool to_device = target.side == Side::device, from_device = source.side == Side::device;
  const bool fits = kind == cudaMemcpyDefault || (to_device == (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) &&
                                                  from_device == (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice));
  if (!fits) return refuse(cudaErrorInvalidValue, "copy of kind %d from %s to %s memory", kind, name(source.side), name(target.side));
  if ((target.side != Side::unknown && target.left < size) || (source.side != Side::unknown && source.left < size)) {
    return refuse(cudaErrorInvalidValue, "copy of %zu bytes where the blocks have %zu and %zu left", size, target.left, source.left);
  }
  memmove(to, from, size);
  if (from_device && to_device) counters.between_devices += source.device != target.device;
  else if (from_device) counters.to_host++;
  else if (to_device) counters.to_device++;
  return cudaSuccess;
}

cudaError_t fill(void* to, int value, size_t size) {
  Locked guard(lock);
  if (!size) return cudaSuccess;
  const Place target = place_of(to);
  if (target.side == Side::unknown || target.left < size) {
    return refuse(cudaErrorInvalidValue, "memset of %zu bytes of %s memory with %zu left", size, name(target.side), target.left);
  }
  memset(to, value, size);
  return cudaSuccess;
}

}  // namespace
}  // namespace machine

using namespace machine;

EXPORT cudaError_t cudaMalloc(void** out, size_t size) { return allocate(out, size, current_device()); }
EXPORT cudaError_t cudaMallocManaged(void** out, size_t size, unsigned) { return allocate(out, size, current_device()); }
EXPORT cudaError_t cudaMallocAsync(void** out, size_t size, cudaStream_t stream) {
  if (is_captured(stream)) return refuse(cudaErrorNotSupported, "an allocation as a node of a graph");
  if (auto status = check_stream(stream, "an allocation")) return status;
  return allocate(out, size, current_device());
}
EXPORT cudaError_t cudaFree(void* address) { return release(address, false); }
EXPORT cudaError_t cudaFreeAsync(void* address, cudaStream_t) { return release(address, false); }
EXPORT cudaError_t cudaHostAlloc(void** out, size_t size, unsigned) { return allocate(out, size, -1); }
EXPORT cudaError_t cudaMallocHost(void** out, size_t size) { return allocate(out, size, -1); }
EXPORT cudaError_t cudaFreeHost(void* address) { return release(address, true); }
EXPORT cudaError_t cudaHostRegister(void* address, size_t size, unsigned) { return page_lock(address, size); }
EXPORT cudaError_t cudaHostUnregister(void* address) { return unlock_pages(address); }

EXPORT cudaError_t cudaMemGetInfo(size_t* unused, size_t* total) {
  Locked guard(lock);
  *total = TOTAL;
  *unused = TOTAL - held[current_device()];
  return cudaSuccess;
}

EXPORT cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
  counters.synchronisations++;
  if (auto status = check_safe("cudaMemcpy", Relaxed::others)) return status;
  finish(cudaStream_t(nullptr));
  return copy(to, from, size, kind);
}
EXPORT cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind, cudaStream_t stream) {
  if (auto status = check_stream(stream, "a copy")) return status;
  if (size && (place_of(to).side == Side::unknown || place_of(from).side == Side::unknown)) {
    if (auto status = check_not_captured(stream, "memory that is not page-locked is copied on")) return status;
  }
  // Memory that is not page-locked is read before the call returns, or written.
  if (late() && size && place_of(to).side == Side::unknown) {
    finish(stream);
    return copy(to, from, size, kind);
  }
  if (late() && size && place_of(from).side == Side::unknown && place_of(to).left >= size) {
    const std::string kept((const char*)from, size);
    return give(stream, [=] { return copy(to, kept.data(), size, kind); });
  }
  return give(stream, [=] { return copy(to, from, size, kind); });
}
EXPORT cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t size) {
  finish_all();
  return copy(to, from, size, cudaMemcpyDeviceToDevice);
}
EXPORT cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, cudaStream_t stream) {
  return give(stream, [=] { return copy(to, from, size, cudaMemcpyDeviceToDevice); });
}
EXPORT cudaError_t cudaMemset(void* to, int value, size_t size) {
  if (auto status = check_safe("cudaMemset", Relaxed::others)) return status;
  return give(nullptr, [=] { return fill(to, value, size); });
}
EXPORT cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t stream) {
  if (auto status = check_stream(stream, "a memset")) return status;
  return give(stream, [=] { return fill(to, value, size); });
}

EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* address) {
  const Place place = place_of(address);
  void* known = place.side == Side::unknown ? nullptr : (void*)address;
  memset(out, 0, sizeof(*out));
  out->type = place.side == Side::device ? cudaMemoryTypeDevice
              : place.side == Side::page_locked ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  out->device = place.side == Side::device ? place.device : place.side == Side::page_locked ? 0 : -2;
  out->devicePointer = known;
  out->hostPointer = place.side == Side::device ? nullptr : (void*)address;
  return cudaSuccess;
}

EXPORT void fakecuda_pooled(const void* address, cudaStream_t stream) {
  Locked guard(lock);
  blocks[(uintptr_t)address].pooled = true;
  blocks[(uintptr_t)address].stream = stream;
}

// 0 where `size` bytes from the address on lie in one block of the current device.
EXPORT int fakecuda_check(const void* address, size_t size, const char* who) {
  if (!size) return 0;
  const Place place = place_of(address);
  if (place.side != Side::device) return refuse(1, "%s was given %s memory", who, name(place.side));
  if (place.left < size) return refuse(1, "%s reaches %zu bytes past the end of its array", who, size - place.left);
  return 0;
}

// Bytes that arrays hold on a device, and the most they held since `forget`.
EXPORT void fakecuda_held(int device, size_t* now, size_t* at_most, int forget) {
  Locked guard(lock);
  if (forget) most[device] = held[device];
  *now = held[device];
  *at_most = most[device];
}
