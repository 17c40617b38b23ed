// Several windows of a graph in a row, without copying it. Operation
// `op` of window k has the number op + k * num_ops, its gang the number gang + k * num_gangs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "graph.hpp"

namespace augury {

struct CarriesView {
  std::int32_t count;
  const std::int32_t* src;
  const std::int32_t* dst;
};

class Windows {
 public:
  Windows(const GraphView& window, const CarriesView& carries, std::int32_t num_windows)
      : g(window),
        count(num_windows),
        num_ops(window.num_ops * num_windows),
        num_gangs(window.num_gangs * num_windows) {
    if (count > 1 && carries.count > 0) join(carries);
  }
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  // One window. Edges into the next lead to numbers from g.num_ops on; in the last window they
  // lead nowhere, to numbers from num_ops on.
  GraphView g;
  const std::int32_t count;
  const std::int32_t num_ops, num_gangs;  // of all windows

  // Returns the window of an operation.
  std::int32_t of_op(std::int32_t op) const {
    return count == 1 ? 0
                      : static_cast<std::int32_t>(static_cast<std::uint32_t>(op) /
                                                  static_cast<std::uint32_t>(g.num_ops));
  }
  // Returns its number within its window.
  std::int32_t local(std::int32_t op) const { return op - of_op(op) * g.num_ops; }

  std::int32_t of_gang(std::int32_t gang) const { return count == 1 ? 0 : gang / g.num_gangs; }

 private:
  // Keeps successors ascending: the next window has larger numbers.
  void join(const CarriesView& carries) {
    std::vector<std::pair<std::int32_t, std::int32_t>> sorted(carries.count);
    for (std::int32_t i = 0; i < carries.count; ++i) sorted[i] = {carries.src[i], carries.dst[i]};
    std::sort(sorted.begin(), sorted.end());
    first_.assign(g.first, g.first + g.num_ops + 1);
    dst_.reserve(g.first[g.num_ops] + carries.count);
    std::int32_t op = 0;  // operations from here on have not been copied
    for (std::int32_t i = 0; i < carries.count; ++i) {
      const auto [src, dst] = sorted[i];
      dst_.insert(dst_.end(), g.dst + g.first[op], g.dst + g.first[std::max(op, src + 1)]);
      for (; op <= src; ++op) first_[op] += i;
      dst_.push_back(dst + g.num_ops);
    }
    dst_.insert(dst_.end(), g.dst + g.first[op], g.dst + g.first[g.num_ops]);
    for (; op <= g.num_ops; ++op) first_[op] += carries.count;
    g.first = first_.data();
    g.dst = dst_.data();
  }

  std::vector<std::int32_t> first_, dst_;
};

// Number of predecessors of each operation, in the first window and in later ones.
class Missing {
 public:
  explicit Missing(const Windows& windows)
      : num_ops_(windows.g.num_ops),
        num_windows_(windows.count),
        count_((windows.count > 1 ? 2 : 1) * windows.g.num_ops, 0) {}

  // Counts an edge to `next`.
  void add(std::int32_t next) { ++count_[next]; }
  // To be called after the last edge.
  void finish() {
    if (num_windows_ == 1) return;
    for (std::int32_t op = 0; op < num_ops_; ++op) count_[num_ops_ + op] += count_[op];
  }

  const std::int32_t* of_window(std::int32_t window) const {
    return count_.data() + (window == 0 ? 0 : num_ops_);
  }

  // Returns the number for each operation of all windows.
  std::vector<std::int32_t> of_all() const {
    std::vector<std::int32_t> all;
    all.reserve(static_cast<std::size_t>(num_ops_) * num_windows_);
    for (std::int32_t window = 0; window < num_windows_; ++window)
      all.insert(all.end(), of_window(window), of_window(window) + num_ops_);
    return all;
  }

 private:
  const std::int32_t num_ops_, num_windows_;
  std::vector<std::int32_t> count_;
};

}  // namespace augury
