// A kernel, and how the machine runs a block of it.
#pragma once
#include <string>

namespace machine {

struct Kernel {
  std::string name;
  void (*run)(void** arguments);  // as the thread that `fakecuda_now` says
  bool waits;                     // for other threads, so that each needs a stack of its own
  const unsigned* sizes;          // of its arguments in bytes, and 0 at the end
  unsigned most_shared = 48 << 10;  // bytes of shared memory that a launch may ask for
};

// Runs the threads of one block. 0, or an error, which is -1 where they wait for one another forever; the reason is said.
int run_block(const Kernel& kernel, void** arguments, unsigned count);
void forget_fibers();

}  // namespace machine
