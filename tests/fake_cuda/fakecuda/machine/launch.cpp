// Modules, kernels and launches: shared objects that g++ made, called for one thread after the other.
#include "launch.h"

#include <dlfcn.h>

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "fibers.h"
#include "queues.h"

using namespace machine;

static const char IMAGE[] = "fake CUDA:";  // and the path of a shared object
static const unsigned MOST_SHARED = 232448;  // of a block on an H100
static std::map<std::string, long> launched;

EXPORT CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  if (auto status = check_safe("a kernel is loaded")) return CUresult(status);
  if (strncmp((const char*)image, IMAGE, strlen(IMAGE))) return refuse(CUDA_ERROR_INVALID_IMAGE, "an image that is not of this machine");
  void* library = dlopen((const char*)image + strlen(IMAGE), RTLD_NOW | RTLD_LOCAL);
  if (!library) return refuse(CUDA_ERROR_INVALID_IMAGE, "%s", dlerror());
  *out = (CUmodule)library;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }  // a kernel may still be known by its address

EXPORT CUresult cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
  void* run = dlsym((void*)module, (std::string("fakecuda_run_") + name).c_str());
  void* waits = dlsym((void*)module, "fakecuda_waits");
  void* sizes = dlsym((void*)module, (std::string("fakecuda_sizes_") + name).c_str());
  if (!run || !waits || !sizes) return refuse(CUDA_ERROR_NOT_FOUND, "no kernel %s", name);
  *out = (CUfunction) new Kernel{name, (void (*)(void**))run, *(const bool*)waits, ((const unsigned* (*)())sizes)()};
  return CUDA_SUCCESS;
}
EXPORT CUresult cuModuleGetGlobal(CUdeviceptr* out, size_t* size, CUmodule module, const char* name) {
  void* found = dlsym((void*)module, name);
  if (!found) return refuse(CUDA_ERROR_NOT_FOUND, "no variable %s", name);
  *out = (CUdeviceptr)found;
  if (size) *size = 0;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncGetAttribute(int* out, CUfunction_attribute attribute, CUfunction function) {
  *out = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK            ? 1024
         : attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? int(((Kernel*)function)->most_shared)
                                                                         : 0;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
  Kernel& kernel = *(Kernel*)function;
  if (value < 0 || unsigned(value) > MOST_SHARED) {
    return refuse(CUDA_ERROR_INVALID_VALUE, "%s: %d bytes of shared memory are allowed, and a GPU has %u", kernel.name.c_str(),
                  value, MOST_SHARED);
  }
  kernel.most_shared = value;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* out, CUfunction, int threads, size_t) {
  *out = 2048 / (threads > 0 ? threads : 1);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int* blocks, int* threads, CUfunction, CUoccupancyB2DSize, size_t, int) {
  *blocks = 132 * 8;
  *threads = 256;
  return CUDA_SUCCESS;
}

static CUresult run(const Kernel& kernel, fakecuda_triple grid, fakecuda_triple block, unsigned shared, void** arguments) {
  Locked guard(lock);
  const unsigned threads = block.x * block.y * block.z;
  launched[kernel.name]++;
  std::vector<char> memory(shared + 64);
  fakecuda_now.block_size = block;
  fakecuda_now.grid_size = grid;
  fakecuda_now.shared = (void*)(((uintptr_t)memory.data() + 63) / 64 * 64);
  for (unsigned z = 0; z < grid.z; z++) {
    for (unsigned y = 0; y < grid.y; y++) {
      for (unsigned x = 0; x < grid.x; x++) {
        fakecuda_now.block = {x, y, z};
        memset(fakecuda_now.shared, 0xff, shared);
        if (const int status = run_block(kernel, arguments, threads)) {
          forget_fibers();
          return status < 0 ? CUDA_ERROR_LAUNCH_FAILED : CUresult(status);
        }
      }
    }
  }
  return CUDA_SUCCESS;
}

static CUresult launch(const Kernel& kernel, fakecuda_triple grid, fakecuda_triple block, unsigned shared, CUstream stream,
                       void** arguments) {
  Locked guard(lock);
  if (auto status = check_stream(stream, kernel.name.c_str())) return CUresult(status);
  const size_t threads = size_t(block.x) * block.y * block.z;
  const bool fits = grid.x && grid.y && grid.z && threads && threads <= 1024 && block.z <= 64 && grid.x <= 2147483647u &&
                    grid.y <= 65535 && grid.z <= 65535 && shared <= kernel.most_shared;
  if (!fits) {
    return refuse(CUDA_ERROR_INVALID_VALUE, "%s: a grid of %u x %u x %u blocks of %u x %u x %u threads with %u bytes, of which %u are allowed",
                  kernel.name.c_str(), grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, kernel.most_shared);
  }
  if (!is_captured(stream)) counters.launches++;
  // The kernel gets the values that the arguments have now.
  auto values = std::make_shared<std::vector<std::vector<char>>>();
  for (const unsigned* size = kernel.sizes; *size; size++, arguments++) {
    values->emplace_back((const char*)*arguments, (const char*)*arguments + *size);
  }
  return CUresult(give(stream, [=, &kernel] {
    std::vector<void*> places;
    for (auto& value : *values) places.push_back(value.data());
    return int(run(kernel, grid, block, shared, places.data()));
  }));
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                               unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void** arguments, void** extra) {
  if (extra) return refuse(CUDA_ERROR_NOT_SUPPORTED, "packed arguments of a launch");
  return launch(*(const Kernel*)function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream, arguments);
}

// Every kernel that was launched and how often.
EXPORT void fakecuda_launched(void (*each)(const char* name, long count)) {
  Locked guard(lock);
  finish_all();
  for (const auto& [name, count] : launched) each(name.c_str(), count);
}

