// Which ranks are alike: partition refinement over the ranks of a graph.
//
// Two ranks stay in one class while their operations, taken in the order of their ids, agree in
// all that timing depends on: work, priority, step, place, gang, memory, and what they wait for,
// where another rank counts as its class. The result is stable: alike ranks see alike ranks, so
// they do the same things at the same times. Contents are compared by two independent 64-bit
// sums, seeded anew by the caller, so that no file can be made to collide.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "graph.hpp"

namespace augury {

struct RankView {
  std::int32_t num_ranks;
  const std::int32_t* rank;        // of every operation
  const std::int32_t* step;
  std::int32_t num_carries;
  const std::int32_t* carry_src;
  const std::int32_t* carry_dst;
  std::int32_t num_buffers;
  const std::int32_t* buffer_rank;
  const std::int32_t* taken_by;
  const std::int32_t* given_by;
  const std::int64_t* size_bytes;
  const std::uint8_t* buffer_kind;
  const std::uint8_t* later;
  const std::int32_t* resource_rank;
  const std::uint8_t* role;
};

struct Print {
  std::uint64_t a = 0, b = 0;
  void operator+=(const Print& other) {
    a += other.a;
    b += other.b;
  }
  bool operator<(const Print& other) const {
    return a != other.a ? a < other.a : b < other.b;
  }
};

class RankClasses {
 public:
  std::vector<std::int32_t> class_of_rank;
  std::vector<std::int32_t> position;  // of every operation among those of its rank
  std::vector<Print> gang_print;       // equal for gangs that are alike
  std::int32_t num_classes = 1;

  RankClasses(const GraphView& g, const RankView& v, std::uint64_t seed)
      : class_of_rank(v.num_ranks, 0),
        position(g.num_ops),
        gang_print(g.num_gangs),
        seed_a_(mixed(seed)),
        seed_b_(mixed(seed + 1)),
        own_(v.num_ranks) {
    look_at_resources(g, v);
    look_at_ops(g, v);
    look_at_edges(g, v);
    look_at_buffers(v);
    for (;;) {
      const std::int32_t before = num_classes;
      refine(g, v);
      if (num_classes == before || num_classes == v.num_ranks) break;
    }
  }

 private:
  static std::uint64_t mixed(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  Print print(std::uint64_t x, std::uint64_t y, std::uint64_t tag) const {
    const std::uint64_t inner = y + tag * 0xd6e8feb86659fd93u;
    return {mixed(mixed(x ^ seed_a_) ^ inner), mixed(mixed(x ^ seed_b_) + inner)};
  }

  // What only one rank can have makes it unlike any other.
  void set_apart(std::int32_t rank) { own_[rank] += print(rank, 0, 1); }

  void look_at_resources(const GraphView& g, const RankView& v) {
    local_.resize(g.num_resources);
    std::vector<std::int32_t> count(v.num_ranks, 0);
    for (std::int32_t r = 0; r < g.num_resources; ++r) {
      const std::int32_t rank = v.resource_rank[r];
      if (rank == kNone) {
        local_[r] = -1 - r;  // everybody's: named by itself
        continue;
      }
      local_[r] = count[rank]++;
      own_[rank] += print(local_[r], g.width[r], 2);
      own_[rank] += print(local_[r], (g.capacity[r] << 1) | g.is_fifo[r], 3);
    }
    for (std::int32_t rank = 0; rank < v.num_ranks; ++rank)
      own_[rank] += print(v.role[rank], 0, 4);
    for (std::int32_t i = 0; i < g.num_rules; ++i) {
      const std::int32_t victim = v.resource_rank[g.victim[i]];
      const std::int32_t aggressor = v.resource_rank[g.aggressor[i]];
      if (victim == aggressor && victim != kNone) {
        own_[victim] += print(local_[g.victim[i]], local_[g.aggressor[i]], 5 + (i << 8));
        own_[victim] += print(local_[g.victim[i]], g.rate[i], 6);
      }
      if (victim != aggressor || victim == kNone) {
        if (victim != kNone) set_apart(victim);
        if (aggressor != kNone) set_apart(aggressor);
      }
    }
  }

  void look_at_ops(const GraphView& g, const RankView& v) {
    std::vector<std::int32_t> count(v.num_ranks, 0);
    for (std::int32_t op = 0; op < g.num_ops; ++op) {
      const std::int32_t rank = v.rank[op], r = g.resource[op];
      const std::int32_t at = position[op] = count[rank]++;
      const std::int32_t place = r == kNone ? -1 : local_[r] >= 0 ? local_[r] : -2;
      if (place == -2) set_apart(rank);
      own_[rank] += print((std::uint64_t(at) << 32) ^ std::uint32_t(place), g.work_ns[op], 7);
      own_[rank] += print((std::uint64_t(at) << 32) ^ std::uint32_t(g.priority[op]),
                          (std::uint64_t(v.step[op]) << 1) | (g.gang[op] != kNone), 8);
    }
  }

  void look_at_edges(const GraphView& g, const RankView& v) {
    const auto look = [&](std::int32_t src, std::int32_t dst, std::uint64_t tag) {
      if (v.rank[src] == v.rank[dst]) {
        own_[v.rank[dst]] += print(position[src], position[dst], tag);
      } else {
        crossing_.push_back({src, dst, tag});
      }
    };
    for (std::int32_t op = 0; op < g.num_ops; ++op)
      for (std::int32_t e = g.first[op]; e < g.first[op + 1]; ++e) look(op, g.dst[e], 9);
    for (std::int32_t i = 0; i < v.num_carries; ++i) look(v.carry_src[i], v.carry_dst[i], 10);
  }

  void look_at_buffers(const RankView& v) {
    for (std::int32_t i = 0; i < v.num_buffers; ++i) {
      const auto at = [&](std::int32_t op) { return op == kNone ? -1 : position[op]; };
      const std::uint64_t when =
          (std::uint64_t(at(v.taken_by[i])) << 32) ^ std::uint32_t(at(v.given_by[i]));
      own_[v.buffer_rank[i]] +=
          print(when, v.size_bytes[i], 11 + (std::uint64_t(v.buffer_kind[i]) << 8) +
                                           (std::uint64_t(v.later[i]) << 16));
    }
  }

  void refine(const GraphView& g, const RankView& v) {
    std::vector<Print> prints = own_;
    for (const Crossing& edge : crossing_) {
      const std::uint64_t from =
          (std::uint64_t(class_of_rank[v.rank[edge.src]]) << 32) | std::uint32_t(position[edge.src]);
      prints[v.rank[edge.dst]] += print(from, position[edge.dst], edge.tag + 100);
    }
    if (g.num_gangs > 0) {
      std::fill(gang_print.begin(), gang_print.end(), Print{});
      for (std::int32_t op = 0; op < g.num_ops; ++op)
        if (g.gang[op] != kNone)
          gang_print[g.gang[op]] += print(class_of_rank[v.rank[op]], position[op], 12);
      for (std::int32_t op = 0; op < g.num_ops; ++op)
        if (g.gang[op] != kNone) {
          const Print& all = gang_print[g.gang[op]];
          prints[v.rank[op]] += print(all.a, position[op], 13);
          prints[v.rank[op]] += print(all.b, position[op], 14);
        }
    }
    // Numbered by first appearance, so that a class's number is also its representative's order.
    std::map<std::pair<std::int32_t, Print>, std::int32_t> known;
    std::vector<std::int32_t> next(v.num_ranks);
    for (std::int32_t rank = 0; rank < v.num_ranks; ++rank)
      next[rank] = known
                       .emplace(std::make_pair(class_of_rank[rank], prints[rank]),
                                static_cast<std::int32_t>(known.size()))
                       .first->second;
    class_of_rank = std::move(next);
    num_classes = static_cast<std::int32_t>(known.size());
  }

  struct Crossing {
    std::int32_t src, dst;
    std::uint64_t tag;
  };

  std::uint64_t seed_a_, seed_b_;
  std::vector<Print> own_;
  std::vector<std::int32_t> local_;
  std::vector<Crossing> crossing_;
};

}  // namespace augury
