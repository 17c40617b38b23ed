// A longest-path sweep in input order, without resources, queues or clock: the benchmarks' measure
// of the best possible memory throughput.
#pragma once

#include <algorithm>
#include <cstdint>

namespace augury {

inline void longest_path(std::int32_t num_ops, const std::int64_t* work_ns,
                         const std::int32_t* first, const std::int32_t* before,
                         std::int64_t* start_ns, std::int64_t* end_ns) {
  for (std::int32_t op = 0; op < num_ops; ++op) {
    std::int64_t start = 0;
    for (std::int32_t e = first[op]; e < first[op + 1]; ++e)
      start = std::max(start, end_ns[before[e]]);
    start_ns[op] = start;
    end_ns[op] = start + work_ns[op];
  }
}

}  // namespace augury
