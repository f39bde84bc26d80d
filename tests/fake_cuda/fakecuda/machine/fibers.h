// What a kernel sees of the thread that it is, shared by the machine and the kernels that g++ compiles.
#pragma once

struct fakecuda_triple { unsigned x, y, z; };
struct fakecuda_thread {
  fakecuda_triple thread, block, block_size, grid_size;
  void* shared;  // what `extern __shared__` names
};

extern "C" {
extern fakecuda_thread fakecuda_now;
// Until all threads of the block are here.
void fakecuda_barrier();
// Leaves `size` bytes for the other lanes of `mask`, and takes those that lane `from` left.
void fakecuda_exchange(const void* left, void* taken, int size, int from, unsigned mask);
// Says that an address is no multiple of what its type needs, which ends a kernel on a GPU.
void fakecuda_misaligned(const void* address, int alignment);
}
