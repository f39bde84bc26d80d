// A function of a library that is loaded becomes another one.
#include <sys/mman.h>

#include <cstring>

#include "machine.h"

// Writes a jump to `target` over the beginning of the function at `place`. 0, or -1 where the page may not be written.
EXPORT int fakecuda_redirect(void* place, const void* target) {
  unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};  // movabs $target, %rax; jmp *%rax
  memcpy(jump + 2, &target, sizeof(target));
  const uintptr_t page = (uintptr_t)place & ~uintptr_t(4095), end = (uintptr_t)place + sizeof(jump);
  if (mprotect((void*)page, end - page, PROT_READ | PROT_WRITE | PROT_EXEC)) return -1;
  memcpy(place, jump, sizeof(jump));
  return 0;
}

EXPORT int fakecuda_nothing() { return 0; }
