// Members of the gangs of a window, by id.
#pragma once

#include <cstdint>
#include <vector>

#include "graph.hpp"

namespace augury {

class Gangs {
 public:
  explicit Gangs(const GraphView& g) : first_(g.num_gangs + 1, 0) {
    if (g.num_gangs == 0) return;
    for (std::int32_t op = 0; op < g.num_ops; ++op)
      if (g.gang[op] != kNone) ++first_[g.gang[op] + 1];
    for (std::int32_t gang = 0; gang < g.num_gangs; ++gang) first_[gang + 1] += first_[gang];
    ops_.resize(first_[g.num_gangs]);
    std::vector<std::int32_t> at(first_.begin(), first_.end() - 1);
    for (std::int32_t op = 0; op < g.num_ops; ++op)
      if (g.gang[op] != kNone) ops_[at[g.gang[op]]++] = op;
  }

  std::int32_t size(std::int32_t gang) const { return first_[gang + 1] - first_[gang]; }
  const std::int32_t* begin(std::int32_t gang) const { return ops_.data() + first_[gang]; }
  const std::int32_t* end(std::int32_t gang) const { return ops_.data() + first_[gang + 1]; }

 private:
  std::vector<std::int32_t> first_, ops_;
};

}  // namespace augury
