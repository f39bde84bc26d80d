// What other parts of the machine ask about captures.
#pragma once
#include <functional>
#include <map>

#include "machine.h"

namespace machine {

typedef std::function<int()> Work;  // 0, or the error
typedef std::map<cudaStream_t, size_t> Seen;
struct Mark {  // what an event remembers
  long capture;  // 0 outside of any
  Seen seen;
};

bool is_captured(cudaStream_t stream);
// Lets a stream do the work; where that is captured, keeps it as a node of the graph.
cudaError_t give(cudaStream_t stream, Work work);
cudaError_t give_at_once(cudaStream_t stream, Work work);  // not later: it may be Python's
// For calls that conflict with a capture of this stream, and end it.
cudaError_t check_not_captured(cudaStream_t stream, const char* what);
// For calls that may not be made in this thread while a stream is captured.
enum class Relaxed {
  let,     // in relaxed mode
  others,  // in relaxed mode, but not by the thread that captures: CUDA lets it, and then no replay does what it does
  none
};
cudaError_t check_safe(const char* what, Relaxed relaxed = Relaxed::let);
// For work on the legacy stream, which waits for all blocking streams.
cudaError_t check_legacy(const char* what);
Mark mark_of(cudaStream_t stream);
cudaError_t wait_for(cudaStream_t stream, const Mark& mark);

}  // namespace machine
