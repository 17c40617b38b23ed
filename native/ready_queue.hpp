// Operations that wait for a place, best first: by (priority, ready time, id).
#pragma once

#include <cstdint>
#include <vector>

#include "heap.hpp"

namespace augury {

struct ReadyOp {
  std::int64_t ready_ns;
  std::int32_t priority;
  std::int32_t op;
};

struct ReadyBefore {
  bool operator()(const ReadyOp& a, const ReadyOp& b) const {
    if (a.priority != b.priority) return a.priority < b.priority;
    if (a.ready_ns != b.ready_ns) return a.ready_ns < b.ready_ns;
    return a.op < b.op;
  }
};

// The best one is stored inline: mostly there is no second one.
class ReadyQueue {
 public:
  bool empty() const { return best_.op < 0; }

  void push(const ReadyOp& entry) {
    if (best_.op < 0) {
      best_ = entry;
    } else if (ReadyBefore{}(entry, best_)) {
      rest_.push(best_);
      best_ = entry;
    } else {
      rest_.push(entry);
    }
  }

  ReadyOp pop() {
    const ReadyOp taken = best_;
    if (rest_.empty()) {
      best_.op = -1;
    } else {
      best_ = rest_.top();
      rest_.pop();
    }
    return taken;
  }

 private:
  ReadyOp best_{0, 0, -1};
  Heap<ReadyOp, ReadyBefore> rest_;
};

}  // namespace augury
