// The threads of a block: fibers of one thread of the CPU, which change where they wait for one another.
#include "fibers.h"

#include <sys/mman.h>
#include <xmmintrin.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "launch.h"
#include "machine.h"

// Saves the registers that a call preserves on the stack that is left, and takes those of the other.
extern "C" void fakecuda_switch(void** left, void* entered);
asm(R"(
.text
.globl fakecuda_switch
.hidden fakecuda_switch
fakecuda_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

extern "C" {
__attribute__((visibility("default"))) fakecuda_thread fakecuda_now = {};
}

namespace machine {
namespace {

const size_t STACK = 256 << 10;
const unsigned WARP = 32, SLOT = 16;

enum class State { ready, at_barrier, in_exchange, done };

struct Fiber {
  void* stack_pointer;
  State state;
  unsigned number;      // in its block
  unsigned mask, from;  // of the exchange it waits in
  char left[SLOT], taken[SLOT];
};

std::vector<Fiber*> fibers;  // by their number in the block
Fiber* running;
void* scheduler;
const Kernel* kernel;
void** arguments;
bool plain;  // the kernel runs without fibers
bool misaligned;

void body() {
  for (;;) {
    kernel->run(arguments);
    running->state = State::done;
    fakecuda_switch(&running->stack_pointer, scheduler);
  }
}

Fiber* make_fiber(unsigned number) {
  char* stack = (char*)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  void** top = (void**)(stack + STACK - 64);
  *--top = nullptr;  // where `body` would return to, which also aligns its stack as a call does
  *--top = (void*)body;
  for (int i = 0; i < 6; i++) *--top = nullptr;
  Fiber* fiber = new Fiber();
  fiber->stack_pointer = top;
  fiber->number = number;
  return fiber;
}

void place_thread(unsigned number) {
  const fakecuda_triple size = fakecuda_now.block_size;
  fakecuda_now.thread = {number % size.x, number / size.x % size.y, number / size.x / size.y};
}

void resume(Fiber* fiber) {
  running = fiber;
  place_thread(fiber->number);
  fakecuda_switch(&scheduler, fiber->stack_pointer);
}

void wait(State state) {
  running->state = state;
  fakecuda_switch(&running->stack_pointer, scheduler);
}

bool reversed() {
  static const bool answer = getenv("FAKE_CUDA_ORDER") && !strcmp(getenv("FAKE_CUDA_ORDER"), "reverse");
  return answer;
}

// Lets lanes go on, with what they take, whose partners have all come to the same exchange. -1 where one never can.
int release_exchanges(unsigned count) {
  int released = 0;
  std::vector<bool> complete(count, false);
  for (unsigned i = 0; i < count; i++) {
    if (fibers[i]->state != State::in_exchange) continue;
    const unsigned first = i / WARP * WARP;
    complete[i] = true;
    for (unsigned lane = 0; lane < WARP && first + lane < count; lane++) {
      if (!(fibers[i]->mask >> lane & 1)) continue;
      const Fiber* other = fibers[first + lane];
      if (other->state == State::done) {
        return refuse(-1, "kernel %s: a lane exchanges with lane %u, which has ended", kernel->name.c_str(), lane);
      }
      if (other->state != State::in_exchange || other->mask != fibers[i]->mask) complete[i] = false;
    }
  }
  for (unsigned i = 0; i < count; i++) {
    if (!complete[i]) continue;
    Fiber* fiber = fibers[i];
    const unsigned number = i / WARP * WARP + fiber->from;
    const bool there = fiber->from < WARP && number < count && (fiber->mask >> fiber->from & 1);
    if (there) memcpy(fiber->taken, fibers[number]->left, SLOT);
    else memset(fiber->taken, 0xff, SLOT);  // CUDA leaves it undefined
    fiber->state = State::ready;
    released++;
  }
  return released;
}

// 0, or -1 with the reason said.
int release(unsigned count) {
  if (const int released = release_exchanges(count)) return released < 0 ? -1 : 0;
  unsigned waiting = 0, done = 0;
  for (unsigned i = 0; i < count; i++) {
    waiting += fibers[i]->state == State::at_barrier;
    done += fibers[i]->state == State::done;
  }
  // Threads that have ended are not waited for: GPUs since Volta do so, and CuPy's scans rely on it.
  if (waiting + done != count) {
    return refuse(-1, "kernel %s: %u of %u threads wait at a barrier, %u have ended, the others wait elsewhere",
                  kernel->name.c_str(), waiting, count, done);
  }
  for (unsigned i = 0; i < count; i++) {
    if (fibers[i]->state == State::at_barrier) fibers[i]->state = State::ready;
  }
  return 0;
}

int run_on_fibers(unsigned count) {
  while (fibers.size() < count) fibers.push_back(make_fiber(fibers.size()));
  for (unsigned i = 0; i < count; i++) fibers[i]->state = State::ready;
  for (;;) {
    unsigned done = 0;
    for (unsigned i = 0; i < count; i++) {
      Fiber* fiber = fibers[reversed() ? count - 1 - i : i];
      if (fiber->state == State::ready) resume(fiber);
      done += fiber->state == State::done;
    }
    if (done == count) return 0;
    if (release(count)) return -1;
  }
}

// While it lives, numbers too small for a normal float are 0, where FAKE_CUDA_ROUNDING=nvcc asks for nvcc's way.
struct Flushed {
  const unsigned before = _mm_getcsr();
  Flushed() {
    static const bool asked = getenv("FAKE_CUDA_ROUNDING") && !strcmp(getenv("FAKE_CUDA_ROUNDING"), "nvcc");
    if (asked) _mm_setcsr(before | 0x8040);  // of results and of operands
  }
  ~Flushed() { _mm_setcsr(before); }
};

}  // namespace

int run_block(const Kernel& which, void** given, unsigned count) {
  const Flushed flushed;
  kernel = &which;
  arguments = given;
  plain = !which.waits;
  misaligned = false;
  if (!plain) {
    const int status = run_on_fibers(count);
    return misaligned ? CUDA_ERROR_MISALIGNED_ADDRESS : status;
  }
  for (unsigned i = 0; i < count; i++) {
    place_thread(reversed() ? count - 1 - i : i);
    which.run(given);
  }
  return misaligned ? CUDA_ERROR_MISALIGNED_ADDRESS : 0;
}

void forget_fibers() { fibers.clear(); }  // after an error they are in the middle of a kernel; their stacks are lost

static void must_have_fibers() {
  if (!plain) return;
  fprintf(stderr, "fake CUDA: kernel %s waits, and its source did not show it\n", kernel->name.c_str());
  abort();
}

}  // namespace machine

using namespace machine;

EXPORT void fakecuda_misaligned(const void* address, int alignment) {
  if (!misaligned) refuse(0, "kernel %s: misaligned address %p, which should be a multiple of %d", kernel->name.c_str(), address, alignment);
  misaligned = true;
}
// What g++ calls under -fsanitize=alignment.
struct Mismatch {
  const char* file;
  unsigned line, column;
  const void* type;
  unsigned char log_alignment;
};
EXPORT void __ubsan_handle_type_mismatch_v1(const Mismatch* which, const void* address) {
  fakecuda_misaligned(address, 1 << which->log_alignment);
}

EXPORT void fakecuda_barrier() {
  must_have_fibers();
  wait(State::at_barrier);
}

EXPORT void fakecuda_exchange(const void* left, void* taken, int size, int from, unsigned mask) {
  must_have_fibers();
  Fiber* self = running;
  const unsigned lane = self->number % WARP;
  if (!(mask >> lane & 1)) {
    fprintf(stderr, "fake CUDA: kernel %s: lane %u is not in the mask %x of its exchange\n", kernel->name.c_str(), lane, mask);
    abort();
  }
  self->mask = mask;
  self->from = unsigned(from);
  memcpy(self->left, left, size);
  wait(State::in_exchange);
  memcpy(taken, self->taken, size);
}
