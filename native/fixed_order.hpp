// A sweep in a fixed order. If every resource serves its operations in the order of an exact
// replay, new durations need no queues and no clock, only one longest-path pass, which handles
// several candidates at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <stdexcept>
#include <vector>

#include "gangs.hpp"
#include "graph.hpp"

namespace augury {

class FixedOrder {
 public:
  // Number of candidates per pass. Their times are doubles: exact up to 2^53 ns, and all machines
  // have a vector instruction for the larger of two.
  static constexpr int kLanes = 8;

  // `order` lists all operations, each after those that it waits for; `end_ns` are their ends in
  // the exact replay.
  FixedOrder(const GraphView& g, const std::int32_t* order, const std::int64_t* end_ns)
      : op_(order, order + g.num_ops), first_(g.num_ops + 1, 0), gang_(g.num_ops, kNone) {
    std::vector<std::int32_t> at(g.num_ops);
    for (std::int32_t i = 0; i < g.num_ops; ++i) at[op_[i]] = i;
    index_predecessors(g, at, end_ns);
    index_gangs(g, at);
  }

  // Computes the latest end in each of `num_windows` windows for every candidate.
  // work_ns: num_candidates rows of one window's operations; out: num_candidates x num_windows.
  void sweep(const std::int64_t* work_ns, std::int32_t num_candidates, std::int32_t num_windows,
             std::int64_t* out) const {
    const std::int32_t num_ops = static_cast<std::int32_t>(op_.size());
    const std::int32_t window = num_ops / num_windows;
    std::vector<Times> work(window), end(num_ops), begin(last_member_.size()), latest(num_windows);
    for (std::int32_t from = 0; from < num_candidates; from += kLanes) {
      const int used = std::min<std::int32_t>(kLanes, num_candidates - from);
      for (int lane = 0; lane < kLanes; ++lane) {
        const std::int64_t* const row =
            work_ns + static_cast<std::int64_t>(from + std::min(lane, used - 1)) * window;
        for (std::int32_t op = 0; op < window; ++op)
          work[op].of[lane] = static_cast<double>(row[op]);
      }
      std::fill(begin.begin(), begin.end(), Times{});
      std::fill(latest.begin(), latest.end(), Times{});
      pass(work, window, end, begin, latest);
      for (int lane = 0; lane < used; ++lane)
        for (std::int32_t w = 0; w < num_windows; ++w)
          out[static_cast<std::int64_t>(from + lane) * num_windows + w] =
              static_cast<std::int64_t>(latest[w].of[lane]);
    }
  }

 private:
  struct alignas(64) Times {
    double of[kLanes] = {};
    void raise_to(const Times& other) {
      for (int i = 0; i < kLanes; ++i) of[i] = other.of[i] > of[i] ? other.of[i] : of[i];
    }
    void add(const Times& other) {
      for (int i = 0; i < kLanes; ++i) of[i] += other.of[i];
    }
  };

  void pass(const std::vector<Times>& work, std::int32_t window, std::vector<Times>& end,
            std::vector<Times>& begin, std::vector<Times>& latest) const {
    const std::int32_t num_ops = static_cast<std::int32_t>(op_.size());
    for (std::int32_t i = 0; i < num_ops; ++i) {
      Times time{};
      for (std::int32_t e = first_[i]; e < first_[i + 1]; ++e) time.raise_to(end[before_[e]]);
      const std::int32_t op = op_[i], gang = gang_[i];
      if (gang == kNone) {
        time.add(work[op % window]);
        end[i] = time;
      } else {
        begin[gang].raise_to(time);
        if (last_member_[gang] != i) continue;
        time = begin[gang];
        time.add(work[op % window]);
        for (std::int32_t m = member_first_[gang]; m < member_first_[gang + 1]; ++m)
          end[members_[m]] = time;
      }
      latest[op / window].raise_to(time);
    }
  }

  struct Held {
    std::int64_t end_ns;
    std::int32_t index;
    bool operator<(const Held& other) const { return end_ns > other.end_ns; }
  };

  // Returns for each operation the one that occupied its place before. Of several free places,
  // the one that was freed first is taken.
  std::vector<std::int32_t> former_holders(const GraphView& g, const std::int64_t* end_ns) const {
    std::vector<std::priority_queue<Held>> held(g.num_resources);
    std::vector<std::int32_t> former(g.num_ops, kNone);
    for (std::int32_t i = 0; i < g.num_ops; ++i) {
      const std::int32_t op = op_[i], r = g.resource[op];
      if (r == kNone) continue;
      if (static_cast<std::int32_t>(held[r].size()) == g.width[r]) {
        former[i] = held[r].top().index;
        held[r].pop();
      }
      held[r].push({end_ns[op], i});
    }
    return former;
  }

  void index_predecessors(const GraphView& g, const std::vector<std::int32_t>& at,
                          const std::int64_t* end_ns) {
    const std::vector<std::int32_t> holder = former_holders(g, end_ns);
    for (std::int32_t op = 0; op < g.num_ops; ++op)
      for (std::int32_t e = g.first[op]; e < g.first[op + 1]; ++e) ++first_[at[g.dst[e]] + 1];
    for (std::int32_t i = 0; i < g.num_ops; ++i) first_[i + 1] += holder[i] != kNone;
    for (std::int32_t i = 0; i < g.num_ops; ++i) first_[i + 1] += first_[i];
    before_.resize(first_[g.num_ops]);
    std::vector<std::int32_t> fill(first_.begin(), first_.end() - 1);
    for (std::int32_t i = 0; i < g.num_ops; ++i)
      if (holder[i] != kNone) before_[fill[i]++] = holder[i];
    for (std::int32_t op = 0; op < g.num_ops; ++op)
      for (std::int32_t e = g.first[op]; e < g.first[op + 1]; ++e) {
        const std::int32_t i = at[g.dst[e]];
        if (at[op] >= i) throw std::invalid_argument("the order puts an operation before its cause");
        before_[fill[i]++] = at[op];
      }
  }

  void index_gangs(const GraphView& g, const std::vector<std::int32_t>& at) {
    const Gangs gangs(g);
    last_member_.assign(g.num_gangs, 0);
    member_first_.assign(1, 0);
    for (std::int32_t gang = 0; gang < g.num_gangs; ++gang) {
      for (const std::int32_t* m = gangs.begin(gang); m != gangs.end(gang); ++m) {
        gang_[at[*m]] = gang;
        members_.push_back(at[*m]);
        last_member_[gang] = std::max(last_member_[gang], at[*m]);
      }
      member_first_.push_back(static_cast<std::int32_t>(members_.size()));
    }
    for (std::int32_t i = 0; i < g.num_ops; ++i)
      for (std::int32_t e = first_[i]; e < first_[i + 1]; ++e) {
        const std::int32_t gang = gang_[before_[e]];
        if (gang != kNone && last_member_[gang] >= i)
          throw std::invalid_argument("the order ends a gang before its last member");
      }
  }

  std::vector<std::int32_t> op_, first_, before_, gang_;
  std::vector<std::int32_t> last_member_, member_first_, members_;
};

}  // namespace augury
