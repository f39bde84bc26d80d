// Streams that do their work as late as they may, so that what nobody waits for is missed.
#include "queues.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>

namespace machine {

namespace {

const size_t MOST = 1024;  // steps of a stream: CUDA, too, lets the host wait where a stream has more

struct Step {
  Work work;  // none where it only waits
  Point after;
};
struct Queue {
  std::deque<Step> steps;
  size_t done = 0;
  size_t given() const { return done + steps.size(); }
};
std::map<std::pair<int, cudaStream_t>, Queue> queues;

cudaStream_t plain(cudaStream_t stream) { return (uintptr_t)stream <= 1 ? nullptr : stream; }

Queue& queue_of(cudaStream_t stream) { return queues[{device_of(stream), plain(stream)}]; }

// The legacy stream's work comes after that of its device's blocking streams, and theirs after its own.
void order_legacy(int device, cudaStream_t stream) {
  Queue& own = queues[{device, plain(stream)}];
  for (const auto& [key, queue] : queues) {
    const bool legacy = !plain(stream) ? is_blocking(key.second) : is_blocking(stream) && !key.second;
    if (key.first == device && legacy && !queue.steps.empty()) own.steps.push_back({nullptr, {device, key.second, queue.given()}});
  }
}

}  // namespace

bool late() {
  static const char* told = getenv("FAKE_CUDA_STREAMS");
  static const bool answer = !told || strcmp(told, "now");
  return answer;
}

cudaError_t enqueue(cudaStream_t stream, Work work) { return enqueue(device_of(stream), stream, std::move(work)); }

cudaError_t enqueue(int device, cudaStream_t stream, Work work) {
  Locked guard(lock);
  order_legacy(device, stream);
  Queue& queue = queues[{device, plain(stream)}];
  queue.steps.push_back({std::move(work), {}});
  return queue.steps.size() < MOST ? cudaSuccess : finish(Point{device, plain(stream), queue.done + MOST / 2});
}

Point point_of(cudaStream_t stream) {
  Locked guard(lock);
  order_legacy(device_of(stream), stream);
  return {device_of(stream), plain(stream), queue_of(stream).given()};
}

bool is_done(const Point& point) {
  Locked guard(lock);
  auto found = queues.find({point.device, point.stream});
  return found == queues.end() || found->second.done >= point.count;
}

void wait_for_point(cudaStream_t stream, const Point& point) {
  Locked guard(lock);
  if (!is_done(point)) queue_of(stream).steps.push_back({nullptr, point});
}

cudaError_t finish(const Point& point) {
  Locked guard(lock);
  auto found = queues.find({point.device, point.stream});
  if (found == queues.end()) return cudaSuccess;
  Queue& queue = found->second;
  cudaError_t status = cudaSuccess;
  while (queue.done < point.count && !queue.steps.empty()) {
    const Step step = std::move(queue.steps.front());
    queue.steps.pop_front();
    queue.done++;
    const cudaError_t said = step.work ? cudaError_t(step.work()) : finish(step.after);
    if (!status) status = said;
  }
  return status;
}

cudaError_t finish(cudaStream_t stream) { return finish(point_of(stream)); }

cudaError_t finish_all() {
  Locked guard(lock);
  cudaError_t status = cudaSuccess;
  for (auto& [key, queue] : queues) {
    const cudaError_t said = finish(Point{key.first, key.second, queue.given()});
    if (!status) status = said;
  }
  return status;
}

}  // namespace machine

using namespace machine;

// For libraries in Python, which work on what their stream has done.
EXPORT int fakecuda_finish_all() { return finish_all(); }
EXPORT int fakecuda_finish(cudaStream_t stream) { return is_captured(stream) ? 0 : finish(stream); }
