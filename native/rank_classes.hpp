// Classes of identical ranks, by partition refinement.
//
// Two ranks stay in one class while their operations, in the order of their ids, agree in all that
// affects times and memory: work, priority, step, place, gang, buffers, and dependencies, in which
// another rank counts as its class. The result is stable: ranks of one class depend on ranks of
// the same classes, so they do the same at the same times. Contents are compared by two
// independent 64-bit hashes with a random seed, so that no file can be made to collide. Ordered
// contents are hashed in order, unordered ones as sums.
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
  const std::int32_t* buffer_layer;
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
        own_(v.num_ranks),
        is_apart_(v.num_ranks, 0) {
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
  static constexpr std::int32_t kEverybodys = -2;

  static std::uint64_t mixed(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  static std::uint64_t folded_product(std::uint64_t x, std::uint64_t y) {
    const auto product = static_cast<unsigned __int128>(x) * y;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }

  static std::uint64_t pair(std::int32_t high, std::int32_t low) {
    return (std::uint64_t{static_cast<std::uint32_t>(high)} << 32) |
           static_cast<std::uint32_t>(low);
  }

  // Hashes the next item of a rank. Counts precede the items that they count, so that different
  // contents never give the same sequence.
  void absorb(std::int32_t rank, std::uint64_t x, std::uint64_t y) {
    Print& own = own_[rank];
    own.a = folded_product(own.a ^ x ^ seed_a_, y ^ 0x2d358dccaa6c78a5u);
    own.b = folded_product(own.b ^ y ^ seed_b_, x ^ 0x8bb84b93962eacc9u);
  }

  // Returns the hash of one item of a sum.
  Print print(std::uint64_t x, std::uint64_t y, std::uint64_t tag) const {
    const std::uint64_t inner = y + tag * 0xd6e8feb86659fd93u;
    return {mixed(mixed(x ^ seed_a_) ^ inner), mixed(mixed(x ^ seed_b_) + inner)};
  }

  // Puts a rank with a unique property into a class of its own.
  void set_apart(std::int32_t rank) { is_apart_[rank] = 1; }

  void look_at_resources(const GraphView& g, const RankView& v) {
    local_.resize(g.num_resources);
    std::vector<std::int32_t> count(v.num_ranks, 0), num_resources(v.num_ranks, 0);
    std::vector<std::int32_t> num_rules(v.num_ranks, 0);
    for (std::int32_t r = 0; r < g.num_resources; ++r)
      if (v.resource_rank[r] != kNone) ++num_resources[v.resource_rank[r]];
    for (std::int32_t i = 0; i < g.num_rules; ++i)
      if (is_within_rank(g, v, i)) ++num_rules[v.resource_rank[g.victim[i]]];
    for (std::int32_t rank = 0; rank < v.num_ranks; ++rank)
      absorb(rank, v.role[rank], pair(num_resources[rank], num_rules[rank]));
    for (std::int32_t r = 0; r < g.num_resources; ++r) {
      const std::int32_t rank = v.resource_rank[r];
      if (rank == kNone) {
        local_[r] = kEverybodys;
        continue;
      }
      local_[r] = count[rank]++;
      absorb(rank, pair(g.width[r], g.is_fifo[r]), static_cast<std::uint64_t>(g.capacity[r]));
    }
    for (std::int32_t i = 0; i < g.num_rules; ++i) {
      const std::int32_t victim = v.resource_rank[g.victim[i]];
      const std::int32_t aggressor = v.resource_rank[g.aggressor[i]];
      if (is_within_rank(g, v, i)) {
        absorb(victim, pair(local_[g.victim[i]], local_[g.aggressor[i]]),
               static_cast<std::uint64_t>(g.rate[i]));
      } else {
        if (victim != kNone) set_apart(victim);
        if (aggressor != kNone) set_apart(aggressor);
      }
    }
  }

  static bool is_within_rank(const GraphView& g, const RankView& v, std::int32_t rule) {
    const std::int32_t victim = v.resource_rank[g.victim[rule]];
    return victim != kNone && victim == v.resource_rank[g.aggressor[rule]];
  }

  void look_at_ops(const GraphView& g, const RankView& v) {
    std::vector<std::int32_t> count(v.num_ranks, 0), num_ops(v.num_ranks, 0);
    for (std::int32_t op = 0; op < g.num_ops; ++op) ++num_ops[v.rank[op]];
    for (std::int32_t rank = 0; rank < v.num_ranks; ++rank) absorb(rank, num_ops[rank], 0);
    for (std::int32_t op = 0; op < g.num_ops; ++op) {
      const std::int32_t rank = v.rank[op], r = g.resource[op];
      position[op] = count[rank]++;
      const std::int32_t place = r == kNone ? kNone : local_[r];
      if (place == kEverybodys) set_apart(rank);
      absorb(rank, static_cast<std::uint64_t>(g.work_ns[op]), pair(place, g.priority[op]));
      absorb(rank, pair(v.step[op], g.gang[op] != kNone), 3);
    }
  }

  void look_at_edges(const GraphView& g, const RankView& v) {
    const auto look = [&](std::int32_t src, std::int32_t dst, std::uint64_t tag) {
      if (v.rank[src] == v.rank[dst]) {
        absorb(v.rank[dst], pair(position[src], position[dst]), tag);
      } else {
        crossing_.push_back({src, dst, tag});
      }
    };
    for (std::int32_t op = 0; op < g.num_ops; ++op)
      for (std::int32_t e = g.first[op]; e < g.first[op + 1]; ++e) look(op, g.dst[e], 9);
    for (std::int32_t i = 0; i < v.num_carries; ++i) look(v.carry_src[i], v.carry_dst[i], 10);
  }

  void look_at_buffers(const RankView& v) {
    const auto at = [this](std::int32_t op) { return op == kNone ? kNone : position[op]; };
    std::vector<Print> sums(v.num_ranks);
    for (std::int32_t i = 0; i < v.num_buffers; ++i)
      sums[v.buffer_rank[i]] +=
          print(pair(at(v.taken_by[i]), at(v.given_by[i])),
                static_cast<std::uint64_t>(v.size_bytes[i]),
                pair(v.buffer_kind[i] << 1 | v.later[i], v.buffer_layer[i]));
    for (std::int32_t rank = 0; rank < v.num_ranks; ++rank) {
      absorb(rank, sums[rank].a, sums[rank].b);
      absorb(rank, is_apart_[rank] != 0 ? rank + 1 : 0, 0);
    }
  }

  void refine(const GraphView& g, const RankView& v) {
    std::vector<Print> prints = own_;
    for (const Crossing& edge : crossing_) {
      const std::uint64_t from = pair(class_of_rank[v.rank[edge.src]], position[edge.src]);
      prints[v.rank[edge.dst]] += print(from, position[edge.dst], edge.tag);
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
    // Numbered by first appearance, which is also the order of the representatives.
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
  std::vector<char> is_apart_;
  std::vector<std::int32_t> local_;
  std::vector<Crossing> crossing_;
};

}  // namespace augury
