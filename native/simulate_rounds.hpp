// The replay engine. Its semantics are those of replay/reference.py, to the nanosecond:
// at one time stamp drain all completions, resolving operations without a resource and complete
// gangs on the way; then let every free place take its best ready operation; then set rates.
//
// With kRated = false nothing shares or slows, durations are final when granted, and the whole
// machinery of rates compiles away.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gangs.hpp"
#include "graph.hpp"
#include "heap.hpp"
#include "ready_queue.hpp"

namespace augury {

template <bool kRated>
class RoundsSimulation {
 public:
  RoundsSimulation(const GraphView& graph, const ScheduleView& out)
      : g_(graph), out_(out), gangs_(graph) {
    missing_.assign(g_.num_ops, 0);
    const std::int64_t num_edges = g_.first[g_.num_ops];
    for (std::int64_t e = 0; e < num_edges; ++e) ++missing_[g_.dst[e]];
    std::fill_n(out_.start_ns, g_.num_ops, kPending);
    std::fill_n(out_.end_ns, g_.num_ops, kPending);
    std::fill_n(out_.cause, g_.num_ops, kNoCause);
    resources_.resize(g_.num_resources);
    for (std::int32_t r = 0; r < g_.num_resources; ++r) {
      resources_[r].free = g_.width[r];
      resources_[r].is_fifo = g_.is_fifo[r] != 0;
    }
    for (std::int32_t gang = 0; gang < g_.num_gangs; ++gang)
      ungranted_.push_back(gangs_.size(gang));
    if constexpr (kRated) prepare_rates();
  }

  // True when every operation ended; otherwise the graph deadlocks.
  bool run() {
    for (std::int32_t op = 0; op < g_.num_ops; ++op)
      if (missing_[op] == 0) become_ready(op);
    resolve();
    for (;;) {
      dispatch();
      if constexpr (kRated) retime();
      if (events_.empty()) break;
      now_ = events_.top().end_ns;
      while (!events_.empty() && events_.top().end_ns == now_) {
        const Event event = events_.top();
        events_.pop();
        if constexpr (kRated) {
          if (version_[event.unit] != event.version) continue;
        }
        end_unit(event.unit);
      }
      resolve();
    }
    return num_ended_ == g_.num_ops;
  }

 private:
  struct Event {
    std::int64_t end_ns;
    std::int32_t unit;  // an operation, or num_ops + gang
    std::uint32_t version;
  };
  struct EventBefore {
    bool operator()(const Event& a, const Event& b) const { return a.end_ns < b.end_ns; }
  };

  struct Resource {
    ReadyQueue waiting;
    std::int64_t freed_ns = kPending;
    std::int32_t freed_by = kNone;
    std::int32_t free = 0;
    bool touched = false;
    bool is_fifo = false;
  };

  template <class Visit>
  void for_each_op(std::int32_t unit, Visit visit) const {
    if (unit < g_.num_ops) {
      visit(unit);
      return;
    }
    const std::int32_t gang = unit - g_.num_ops;
    for (const std::int32_t* m = gangs_.begin(gang); m != gangs_.end(gang); ++m) visit(*m);
  }

  // -- drain --------------------------------------------------------------------------------

  void end_unit(std::int32_t unit) {
    if constexpr (kRated) stop(unit);
    for_each_op(unit, [this](std::int32_t op) { complete(op); });
  }

  void complete(std::int32_t op) {
    ++num_ended_;
    out_.end_ns[op] = now_;
    const std::int32_t r = g_.resource[op];
    if (r != kNone) {
      Resource& resource = resources_[r];
      ++resource.free;
      if (resource.freed_ns == now_) {
        resource.freed_by = std::min(resource.freed_by, op);
      } else {
        resource.freed_ns = now_;
        resource.freed_by = op;
      }
      touch(resource, r);
    }
    const std::int32_t last = g_.first[op + 1];
    for (std::int32_t e = g_.first[op]; e < last; ++e) {
      const std::int32_t next = g_.dst[e];
      const std::int32_t known = out_.cause[next];
      if (known == kNoCause || op < known || out_.end_ns[known] < now_) out_.cause[next] = op;
      if (--missing_[next] == 0) become_ready(next);
    }
  }

  void become_ready(std::int32_t op) {
    const std::int32_t r = g_.resource[op];
    if (r == kNone) {
      resolvable_.push_back(op);
      return;
    }
    Resource& resource = resources_[r];
    touch(resource, r);
    resource.waiting.push({now_, resource.is_fifo ? 0 : g_.priority[op], op});
  }

  // Operations without a resource start as they become ready; those without work end at once,
  // which may make more of them ready.
  void resolve() {
    while (!resolvable_.empty()) {
      const std::int32_t op = resolvable_.back();
      resolvable_.pop_back();
      const std::int32_t unit = grant(op);
      if (unit == kNone) continue;
      if (g_.work_ns[op] == 0) {
        end_unit(unit);
      } else if constexpr (!kRated) {
        events_.push({now_ + g_.work_ns[op], unit, 0});
      }
    }
  }

  void touch(Resource& resource, std::int32_t r) {
    if (resource.touched) return;
    resource.touched = true;
    touched_.push_back(r);
  }

  // -- dispatch -----------------------------------------------------------------------------

  void dispatch() {
    for (const std::int32_t r : touched_) {
      Resource& resource = resources_[r];
      resource.touched = false;
      while (!resource.waiting.empty() && resource.free > 0) {
        const ReadyOp taken = resource.waiting.pop();
        --resource.free;
        if (taken.ready_ns < now_) out_.cause[taken.op] = -2 - resource.freed_by;
        const std::int32_t unit = grant(taken.op);
        // In rated graphs retime() schedules what has begun, also what has no work.
        if constexpr (!kRated) {
          if (unit != kNone) events_.push({now_ + g_.work_ns[taken.op], unit, 0});
        }
      }
    }
    touched_.clear();
  }

  // Gives the operation its place. Returns the unit that now progresses, or kNone while a gang
  // still waits for others.
  std::int32_t grant(std::int32_t op) {
    out_.start_ns[op] = now_;
    const std::int32_t gang = g_.gang[op];
    std::int32_t unit = op;
    if (gang != kNone) {
      if (--ungranted_[gang] > 0) return kNone;
      unit = g_.num_ops + gang;
    }
    if constexpr (kRated) begin(unit, g_.work_ns[op]);
    return unit;
  }

  // -- rates --------------------------------------------------------------------------------

  void prepare_rates() {
    const std::int32_t num_units = g_.num_ops + g_.num_gangs;
    left_.assign(num_units, 0);
    since_.assign(num_units, 0);
    unit_rate_.assign(num_units, 0);
    version_.assign(num_units, 0);
    place_.assign(g_.num_ops, kNone);
    progressing_.resize(g_.num_resources);
    resource_rate_.assign(g_.num_resources, kRateOne);
    dirty_.assign(g_.num_resources, 0);
    rules_of_.resize(g_.num_resources);
    victims_of_.resize(g_.num_resources);
    for (std::int32_t i = 0; i < g_.num_rules; ++i) {
      rules_of_[g_.victim[i]].push_back(i);
      victims_of_[g_.aggressor[i]].push_back(g_.victim[i]);
    }
  }

  void begin(std::int32_t unit, std::int64_t work_ns) {
    left_[unit] = work_ns << kRateBits;
    since_[unit] = now_;
    unit_rate_[unit] = 0;
    restless_.push_back(unit);
    for_each_op(unit, [this](std::int32_t op) {
      const std::int32_t r = g_.resource[op];
      if (r == kNone) return;
      place_[op] = static_cast<std::int32_t>(progressing_[r].size());
      progressing_[r].push_back(op);
      count_changed(r);
    });
  }

  void stop(std::int32_t unit) {
    ++version_[unit];
    unit_rate_[unit] = kStopped;
    for_each_op(unit, [this](std::int32_t op) {
      const std::int32_t r = g_.resource[op];
      if (r == kNone) return;
      std::vector<std::int32_t>& running = progressing_[r];
      place_[running.back()] = place_[op];
      running[place_[op]] = running.back();
      running.pop_back();
      count_changed(r);
    });
  }

  void count_changed(std::int32_t r) {
    mark_dirty(r);
    for (const std::int32_t victim : victims_of_[r]) mark_dirty(victim);
  }

  void mark_dirty(std::int32_t r) {
    if (dirty_[r]) return;
    dirty_[r] = 1;
    dirty_list_.push_back(r);
  }

  void retime() {
    for (const std::int32_t r : dirty_list_) {
      dirty_[r] = 0;
      const std::int64_t rate = rate_on(r);
      if (rate == resource_rate_[r]) continue;
      resource_rate_[r] = rate;
      for (const std::int32_t op : progressing_[r]) {
        const std::int32_t gang = g_.gang[op];
        restless_.push_back(gang == kNone ? op : g_.num_ops + gang);
      }
    }
    dirty_list_.clear();
    for (const std::int32_t unit : restless_) {
      const std::int64_t old = unit_rate_[unit];
      if (old == kStopped) continue;
      std::int64_t rate = kRateOne;
      for_each_op(unit, [this, &rate](std::int32_t op) {
        const std::int32_t r = g_.resource[op];
        if (r != kNone) rate = std::min(rate, resource_rate_[r]);
      });
      if (rate == old) continue;
      left_[unit] -= (now_ - since_[unit]) * old;
      since_[unit] = now_;
      unit_rate_[unit] = rate;
      ++version_[unit];
      const std::int64_t more = left_[unit] <= 0 ? 0 : (left_[unit] + rate - 1) / rate;
      events_.push({now_ + more, unit, version_[unit]});
    }
    restless_.clear();
  }

  std::int64_t rate_on(std::int32_t r) const {
    std::int64_t rate = kRateOne;
    const auto running = static_cast<std::int64_t>(progressing_[r].size());
    if (g_.capacity[r] > 0 && running > 0) rate = std::min(rate, g_.capacity[r] / running);
    for (const std::int32_t i : rules_of_[r])
      if (!progressing_[g_.aggressor[i]].empty()) rate = (rate * g_.rate[i]) >> kRateBits;
    return std::max<std::int64_t>(rate, 1);
  }

  static constexpr std::int64_t kStopped = -1;

  const GraphView g_;
  const ScheduleView out_;
  const Gangs gangs_;
  std::int64_t now_ = 0;
  std::int32_t num_ended_ = 0;

  std::vector<std::int32_t> missing_, ungranted_, touched_, resolvable_;
  std::vector<Resource> resources_;
  Heap<Event, EventBefore> events_;

  std::vector<std::int64_t> left_, since_, unit_rate_;
  std::vector<std::uint32_t> version_;
  std::vector<std::int32_t> place_;  // where an operation stands in progressing_ of its resource
  std::vector<std::vector<std::int32_t>> progressing_, rules_of_, victims_of_;
  std::vector<std::int64_t> resource_rate_;
  std::vector<char> dirty_;
  std::vector<std::int32_t> dirty_list_, restless_;
};

}  // namespace augury
