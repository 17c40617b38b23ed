// Operations that no topological order contains: those on a cycle or behind one.
#pragma once

#include <cstdint>
#include <vector>

namespace augury {

inline std::vector<std::int32_t> unsorted_remainder(std::int32_t num_ops,
                                                    const std::int32_t* first,
                                                    const std::int32_t* dst) {
  std::vector<std::int32_t> missing(num_ops, 0), stack, left;
  for (std::int32_t e = 0; e < first[num_ops]; ++e) ++missing[dst[e]];
  for (std::int32_t op = 0; op < num_ops; ++op)
    if (missing[op] == 0) stack.push_back(op);
  while (!stack.empty()) {
    const std::int32_t op = stack.back();
    stack.pop_back();
    for (std::int32_t e = first[op]; e < first[op + 1]; ++e)
      if (--missing[dst[e]] == 0) stack.push_back(dst[e]);
  }
  for (std::int32_t op = 0; op < num_ops; ++op)
    if (missing[op] > 0) left.push_back(op);
  return left;
}

}  // namespace augury
