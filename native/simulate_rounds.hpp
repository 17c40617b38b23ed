// The replay engine with all semantics, equal to replay/reference.py to the nanosecond. At one time
// stamp: drain all completions, and resolve operations without a resource and complete gangs within
// the drain; then let every free place take its best ready operation; then set rates.
//
// Progress computes the ends of running units: PlainProgress without sharing and interference,
// VirtualProgress otherwise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "gangs.hpp"
#include "graph.hpp"
#include "progress.hpp"
#include "ready_queue.hpp"
#include "windows.hpp"

namespace augury {

// A resource during a replay: its free places, and the operations that wait for one.
struct ResourceState {
  ReadyQueue waiting;
  std::int64_t freed_ns = kPending;
  std::int32_t freed_by = kNone;
  std::int32_t free = 0;
  bool touched = false;
  bool is_fifo = false;
};

// State of a replay between two time stamps, from which a replay with other durations can resume.
// This is exact if no operation that has begun by then has another duration.
template <class Progress>
struct Checkpoint {
  // An operation that has not started, but has predecessors that have ended.
  struct Awaiting {
    std::int32_t op, missing, cause;
  };
  std::int64_t now_ns;
  std::int32_t num_ended;
  std::vector<Awaiting> awaiting;
  std::vector<std::int32_t> ungranted;
  std::vector<ResourceState> resources;
  Progress progress;
};

// Times of the replay that made the checkpoints.
struct BaseView {
  const std::int64_t* start_ns;
  const std::int64_t* end_ns;
  const std::int32_t* cause;
};

template <class Progress>
class RoundsSimulation {
 public:
  RoundsSimulation(const Windows& windows, const std::int64_t* work_ns, const Gangs& gangs,
                   const Missing& missing, Progress& progress, const ScheduleView& out)
      : windows_(windows),
        g_(windows.g),
        num_ops_(windows.num_ops),
        work_ns_(work_ns),
        out_(out),
        gangs_(gangs),
        progress_(progress),
        initially_missing_(missing),
        missing_(missing.of_all()),
        resources_(g_.num_resources) {
    std::fill_n(out_.start_ns, num_ops_, kPending);
    std::fill_n(out_.end_ns, num_ops_, kPending);
    std::fill_n(out_.cause, num_ops_, kNoCause);
    for (std::int32_t r = 0; r < g_.num_resources; ++r) {
      resources_[r].free = g_.width[r];
      resources_[r].is_fifo = g_.is_fifo[r] != 0;
    }
    ungranted_.reserve(windows.num_gangs);
    for (std::int32_t window = 0; window < windows.count; ++window)
      for (std::int32_t gang = 0; gang < g_.num_gangs; ++gang)
        ungranted_.push_back(gangs_.size(gang));
  }

  // Returns true if every operation ended; otherwise the graph deadlocks.
  bool run() {
    release_roots();
    return advance([](std::int64_t) {});
  }

  // Also saves up to `count` checkpoints, at equal distances in operations.
  bool run(std::int32_t count, std::vector<Checkpoint<Progress>>& saved) {
    const std::int32_t distance = std::max(1, num_ops_ / (count + 1));
    std::int32_t due = distance;
    release_roots();
    return advance([&](std::int64_t next_ns) {
      if (num_ended_ < due || next_ns == now_) return;  // more rounds at this time stamp
      saved.push_back(checkpoint());
      due = num_ended_ + distance;
    });
  }

  // Resumes from a checkpoint of the replay `base`. The progress of this simulation must be a copy
  // of the checkpoint's.
  bool resume(const Checkpoint<Progress>& from, const BaseView& base) {
    now_ = from.now_ns;
    num_ended_ = from.num_ended;
    ungranted_ = from.ungranted;
    resources_ = from.resources;
    for (std::int32_t op = 0; op < num_ops_; ++op) {
      if (base.start_ns[op] > now_) continue;
      out_.start_ns[op] = base.start_ns[op];
      out_.cause[op] = base.cause[op];
      if (base.end_ns[op] <= now_) out_.end_ns[op] = base.end_ns[op];
    }
    for (const auto& awaiting : from.awaiting) {
      missing_[awaiting.op] = awaiting.missing;
      out_.cause[awaiting.op] = awaiting.cause;
    }
    return advance([](std::int64_t) {});
  }

 private:
  void release_roots() {
    for (std::int32_t op = 0; op < num_ops_; ++op)
      if (missing_[op] == 0) become_ready(op, windows_.local(op));
    resolve();
  }

  // Calls between_rounds after each round with the time of the next.
  template <class BetweenRounds>
  bool advance(BetweenRounds between_rounds) {
    for (;;) {
      dispatch();
      progress_.set_rates(now_);
      const std::int64_t next_ns = progress_.next_end_ns();
      if (next_ns == kNever) break;
      between_rounds(next_ns);
      now_ = next_ns;
      progress_.take_ended(
          now_, [this](std::int32_t unit) { end_unit(unit); },
          [this](std::int32_t unit) { fetch(unit); });
      resolve();
    }
    return num_ended_ == num_ops_;
  }

  Checkpoint<Progress> checkpoint() const {
    std::vector<typename Checkpoint<Progress>::Awaiting> awaiting;
    for (std::int32_t window = 0; window < windows_.count; ++window) {
      const std::int32_t* const all = initially_missing_.of_window(window);
      const std::int32_t shift = window * g_.num_ops;
      for (std::int32_t own = 0; own < g_.num_ops; ++own) {
        const std::int32_t op = own + shift;
        if (out_.start_ns[op] == kPending && missing_[op] != all[own])
          awaiting.push_back({op, missing_[op], out_.cause[op]});
      }
    }
    return {now_, num_ended_, std::move(awaiting), ungranted_, resources_, progress_};
  }

  // -- drain --------------------------------------------------------------------------------

  // Operations do not end in the order of memory: they are prefetched.
  void fetch(std::int32_t unit) const {
    if (unit >= num_ops_) return;
    const std::int32_t own = windows_.local(unit);
    __builtin_prefetch(out_.start_ns + unit, 1);
    __builtin_prefetch(out_.end_ns + unit, 1);
    __builtin_prefetch(out_.cause + unit, 1);
    __builtin_prefetch(missing_.data() + unit, 1);
    __builtin_prefetch(g_.first + own);
    __builtin_prefetch(g_.resource + own);
    __builtin_prefetch(g_.priority + own);
    __builtin_prefetch(g_.gang + own);
    __builtin_prefetch(work_ns_ + own);
  }

  void end_unit(std::int32_t unit) {
    if (unit < num_ops_) {
      complete(unit, windows_.of_op(unit) * g_.num_ops);
      return;
    }
    const std::int32_t window = windows_.of_gang(unit - num_ops_);
    const std::int32_t gang = unit - num_ops_ - window * g_.num_gangs;
    const std::int32_t shift = window * g_.num_ops;
    for (const std::int32_t* m = gangs_.begin(gang); m != gangs_.end(gang); ++m)
      complete(*m + shift, shift);
  }

  // `shift` is the number of the first operation of its window.
  void complete(std::int32_t op, std::int32_t shift) {
    ++num_ended_;
    out_.end_ns[op] = now_;
    const std::int32_t own = op - shift;
    const std::int32_t r = g_.resource[own];
    if (r != kNone) {
      ResourceState& resource = resources_[r];
      ++resource.free;
      if (resource.freed_ns == now_) {
        resource.freed_by = std::min(resource.freed_by, op);
      } else {
        resource.freed_ns = now_;
        resource.freed_by = op;
      }
      touch(resource, r);
    }
    const std::int32_t last = g_.first[own + 1];
    for (std::int32_t e = g_.first[own]; e < last; ++e) {
      const std::int32_t next = g_.dst[e] + shift;
      if (next >= num_ops_) break;  // there is no window after the last
      const std::int32_t known = out_.cause[next];
      if (known == kNoCause || op < known || out_.end_ns[known] < now_) out_.cause[next] = op;
      if (--missing_[next] == 0)
        become_ready(next, g_.dst[e] < g_.num_ops ? g_.dst[e] : g_.dst[e] - g_.num_ops);
    }
  }

  // `own` is its number within its window.
  void become_ready(std::int32_t op, std::int32_t own) {
    const std::int32_t r = g_.resource[own];
    if (r == kNone) {
      resolvable_.push_back(op);
      return;
    }
    ResourceState& resource = resources_[r];
    touch(resource, r);
    resource.waiting.push({now_, resource.is_fifo ? 0 : g_.priority[own], op});
  }

  // Operations without a resource start when they become ready; those without work end at once,
  // which may make more of them ready.
  void resolve() {
    while (!resolvable_.empty()) {
      const std::int32_t op = resolvable_.back();
      resolvable_.pop_back();
      const std::int32_t window = windows_.of_op(op), own = op - window * g_.num_ops;
      const std::int32_t unit = grant(op, own, window);
      if (unit == kNone) continue;
      if (work_ns_[own] == 0) {
        end_unit(unit);
      } else {
        progress_.begin(unit, work_ns_[own], now_);
      }
    }
  }

  void touch(ResourceState& resource, std::int32_t r) {
    if (resource.touched) return;
    resource.touched = true;
    touched_.push_back(r);
  }

  // -- dispatch -----------------------------------------------------------------------------

  void dispatch() {
    for (const std::int32_t r : touched_) {
      ResourceState& resource = resources_[r];
      resource.touched = false;
      while (!resource.waiting.empty() && resource.free > 0) {
        const ReadyOp taken = resource.waiting.pop();
        --resource.free;
        if (taken.ready_ns < now_) out_.cause[taken.op] = -2 - resource.freed_by;
        // A unit without work that occupies a place ends in another round.
        const std::int32_t window = windows_.of_op(taken.op);
        const std::int32_t own = taken.op - window * g_.num_ops;
        const std::int32_t unit = grant(taken.op, own, window);
        if (unit != kNone) progress_.begin(unit, work_ns_[own], now_);
      }
    }
    touched_.clear();
  }

  // Gives the operation its place. Returns the unit that now progresses, or kNone while a gang
  // still waits for others.
  std::int32_t grant(std::int32_t op, std::int32_t own, std::int32_t window) {
    out_.start_ns[op] = now_;
    if (g_.gang[own] == kNone) return op;
    const std::int32_t gang = g_.gang[own] + window * g_.num_gangs;
    return --ungranted_[gang] > 0 ? kNone : num_ops_ + gang;
  }

  const Windows& windows_;
  const GraphView& g_;
  const std::int32_t num_ops_;
  const std::int64_t* const work_ns_;  // of one window
  const ScheduleView out_;
  const Gangs& gangs_;
  Progress& progress_;
  const Missing& initially_missing_;
  std::int64_t now_ = 0;
  std::int32_t num_ended_ = 0;

  std::vector<std::int32_t> missing_, ungranted_, touched_, resolvable_;
  std::vector<ResourceState> resources_;
};

}  // namespace augury
