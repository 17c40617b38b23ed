// The critical path: goes back from the last end along the causes of starts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "gangs.hpp"
#include "graph.hpp"
#include "windows.hpp"

namespace augury {

enum Reason : std::uint8_t { kStart, kData, kResource, kGang, kSlowed };

struct Path {
  std::vector<std::int32_t> op;
  std::vector<std::int64_t> start_ns, dur_ns;
  std::vector<std::uint8_t> reason;

  void add(std::int32_t o, std::int64_t start, std::int64_t end, Reason why, std::int64_t since) {
    start = std::max(start, since);
    if (end < start) return;
    op.push_back(o);
    start_ns.push_back(start);
    dur_ns.push_back(end - start);
    reason.push_back(why);
  }

  void reverse() {
    std::reverse(op.begin(), op.end());
    std::reverse(start_ns.begin(), start_ns.end());
    std::reverse(dur_ns.begin(), dur_ns.end());
    std::reverse(reason.begin(), reason.end());
  }
};

inline Path walk_back(const Windows& windows, const std::int64_t* start_ns, const std::int64_t* end_ns,
                      const std::int32_t* cause, std::int32_t last_op, std::int64_t since_ns) {
  const GraphView& g = windows.g;
  Path path;
  std::unique_ptr<const Gangs> gangs;  // indexed only if the path contains one
  for (std::int32_t op = last_op;;) {
    std::int32_t arrived = op;  // the member whose grant let the gang progress
    const std::int32_t shift = windows.of_op(op) * g.num_ops, own = op - shift;
    if (g.gang[own] != kNone) {
      if (!gangs) gangs = std::make_unique<Gangs>(g);
      const std::int32_t gang = g.gang[own];
      arrived = *gangs->begin(gang) + shift;
      for (const std::int32_t* m = gangs->begin(gang); m != gangs->end(gang); ++m)
        if (start_ns[*m + shift] > start_ns[arrived]) arrived = *m + shift;
    }
    const std::int64_t begin = start_ns[arrived], end = end_ns[op];
    const std::int64_t full_speed = begin + g.work_ns[own];
    if (full_speed < end) path.add(op, full_speed, end, kSlowed, since_ns);
    const std::int32_t why = cause[arrived];
    const Reason reason = why == kNoCause ? kStart : why >= 0 ? kData : kResource;
    path.add(op, begin, std::min(full_speed, end), arrived == op ? reason : kGang, since_ns);
    if (arrived != op) path.add(arrived, begin, begin, reason, since_ns);
    if (reason == kStart || begin <= since_ns) break;
    op = reason == kData ? why : -2 - why;
  }
  path.reverse();
  return path;
}

}  // namespace augury
