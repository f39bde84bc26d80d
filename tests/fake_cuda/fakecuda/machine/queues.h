// What streams have been given and have not done yet: on a GPU the host goes on, and only waiting makes sure of anything.
#pragma once
#include "graphs.h"

namespace machine {

struct Point {  // in a stream's work
  int device = -1;
  cudaStream_t stream = nullptr;
  size_t count = 0;
};

// Whether streams do their work as late as they may: FAKE_CUDA_STREAMS=late, which is the default; now does it at once.
bool late();
// To be done when somebody waits for the stream, after what it was given before.
cudaError_t enqueue(cudaStream_t stream, Work work);
cudaError_t enqueue(int device, cudaStream_t stream, Work work);
Point point_of(cudaStream_t stream);
bool is_done(const Point& point);
// What the stream is given from here on comes after a point of another one.
void wait_for_point(cudaStream_t stream, const Point& point);
// Do what was given up to a point, by a stream, or by all streams, with all that it waits for.
cudaError_t finish(const Point& point);
cudaError_t finish(cudaStream_t stream);
cudaError_t finish_all();

}  // namespace machine
