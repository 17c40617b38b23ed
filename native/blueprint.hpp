// Preparation of a graph for the eager engine, independent of durations: the number of predecessors
// of each operation, and the resources on which operations compete. Searches replay one structure
// with many durations, so this is computed once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gangs.hpp"
#include "graph.hpp"
#include "windows.hpp"

namespace augury {

enum class Form : std::uint8_t {
  kInRow,     // each operation waits for the one before it: nothing to decide
  kTandem,    // each waits for one of the same source of width 1, all with equal priority
  kContended  // all others
};

class Blueprint {
 public:
  // Bits of a role; above them 1 + the operation's resource.
  static constexpr std::int32_t kInGang = 1;
  static constexpr std::int32_t kHasChoice = 2;  // it competes for its resource
  static constexpr int kResourceShift = 2;

  struct Lane {
    Form form = Form::kContended;
    std::int32_t source = kNone;  // of a tandem
    std::int32_t width = 1;
    bool is_fifo = false;
  };

  Gangs gangs;
  Missing missing;
  std::vector<std::int32_t> role;   // of every operation of a window
  std::vector<std::int32_t> roots;  // operations of all windows without predecessors
  std::vector<Lane> lanes;

  explicit Blueprint(const Windows& windows)
      : gangs(windows.g),
        missing(windows),
        role(windows.g.num_ops),
        lanes(windows.g.num_resources) {
    const GraphView& g = windows.g;
    look(windows);
    find_roots(windows, 0);
    if (windows.count > 1) find_roots(windows, 1);
    const std::size_t end = roots.size();
    for (std::int32_t window = 2; window < windows.count; ++window)
      for (std::size_t i = first_later_root_; i < end; ++i)
        roots.push_back(roots[i] + (window - 1) * g.num_ops);
    for (std::int32_t op = 0; op < g.num_ops; ++op) {
      const std::int32_t r = g.resource[op];
      const bool has_choice = r != kNone && lanes[r].form != Form::kInRow;
      role[op] = (g.gang[op] != kNone ? kInGang : 0) | (has_choice ? kHasChoice : 0) |
                 ((r + 1) << kResourceShift);
    }
  }

 private:
  // Facts about a resource, collected over its operations from the last to the first.
  struct Seen {
    std::int32_t next_op = kNone, last_op = kNone;
    std::int32_t priority = 0;
    std::int32_t source = kNone;
    std::int32_t num_ops = 0, num_served = 0;
    bool in_row = true, one_rank = true, is_regular = true;
  };

  // Windows after the second have the same roots as the second.
  void find_roots(const Windows& windows, std::int32_t window) {
    first_later_root_ = roots.size();
    const std::int32_t* const missing_here = missing.of_window(window);
    for (std::int32_t op = 0; op < windows.g.num_ops; ++op)
      if (missing_here[op] == 0) roots.push_back(window * windows.g.num_ops + op);
  }

  void look(const Windows& windows) {
    const GraphView& g = windows.g;
    std::vector<Seen> seen(g.num_resources);
    for (std::int32_t op = g.num_ops - 1; op >= 0; --op) {
      const std::int32_t r = g.resource[op];
      const std::int32_t wanted = r == kNone ? kNone : seen[r].next_op;
      bool leads = false;
      for (std::int32_t e = g.first[op]; e < g.first[op + 1]; ++e) {
        const std::int32_t next = g.dst[e];
        missing.add(next);
        leads |= next == wanted;
      }
      if (r == kNone) continue;
      Seen& own = seen[r];
      if (wanted != kNone) {
        own.in_row &= leads;
        own.one_rank &= own.priority == g.priority[op] || g.is_fifo[r] != 0;
      }
      if (own.last_op == kNone) own.last_op = op;
      own.next_op = op;
      own.priority = g.priority[op];
      ++own.num_ops;
    }
    missing.finish();
    if (windows.count > 1) look_across(g, seen);
    find_sources(g, seen);
    for (std::int32_t r = 0; r < g.num_resources; ++r) {
      const Seen& own = seen[r];
      const bool tandem = own.is_regular && own.one_rank && g.width[r] == 1 &&
                          own.source != kNone && own.num_served == own.num_ops;
      lanes[r] = {own.in_row ? Form::kInRow : tandem ? Form::kTandem : Form::kContended,
                  tandem ? own.source : kNone, g.width[r], g.is_fifo[r] != 0};
    }
  }

  // A resource stays in a row over windows if its last operation leads to the first of the next.
  void look_across(const GraphView& g, std::vector<Seen>& seen) const {
    for (std::int32_t r = 0; r < g.num_resources; ++r) {
      Seen& own = seen[r];
      if (own.last_op == kNone) continue;
      const std::int32_t* const end = g.dst + g.first[own.last_op + 1];
      own.in_row &= std::find(g.dst + g.first[own.last_op], end, own.next_op + g.num_ops) != end;
    }
  }

  // A tandem's source: the resource on which each of its operations has exactly one predecessor.
  // The last edge between two resources of width 1 proposes it: early edges bring a rank's own
  // contribution to a ring, later ones the data of its neighbour.
  void find_sources(const GraphView& g, std::vector<Seen>& seen) const {
    std::vector<std::int32_t> has_source((g.num_ops + 31) / 32, 0);
    std::vector<std::pair<std::int32_t, std::int32_t>> carried;
    for (std::int32_t op = g.num_ops - 1; op >= 0; --op) {
      const std::int32_t r = g.resource[op];
      if (r == kNone || g.width[r] != 1) continue;
      for (std::int32_t e = g.first[op]; e < g.first[op + 1]; ++e) {
        const bool is_carried = g.dst[e] >= g.num_ops;
        const std::int32_t next = is_carried ? g.dst[e] - g.num_ops : g.dst[e];
        const std::int32_t s = g.resource[next];
        if (s == kNone || s == r || seen[s].in_row) continue;
        Seen& other = seen[s];
        if (is_carried) {
          carried.emplace_back(r, s);
          continue;
        }
        if (other.source == kNone) other.source = r;
        if (other.source != r) continue;
        const std::int32_t bit = 1 << (next & 31);
        if (has_source[next >> 5] & bit) other.is_regular = false;
        has_source[next >> 5] |= bit;
        ++other.num_served;
      }
    }
    // An operation that its source also serves within each window would be served twice.
    for (const auto& [source, r] : carried)
      if (seen[r].source == source) seen[r].is_regular = false;
  }

  std::size_t first_later_root_ = 0;
};

}  // namespace augury
