// Preparation of a graph for the rated engine, independent of durations. A unit (an operation,
// or a whole gang) progresses at the rate of the slowest of its resources, so units that occupy
// the same set of resources always have the same rate: that set is a route. Every resource is a
// route of its own; one more is for units without a resource; gangs over several resources add one
// route for each distinct set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "gangs.hpp"
#include "graph.hpp"
#include "windows.hpp"

namespace augury {

class Routes {
 public:
  Gangs gangs;
  Missing missing;
  std::vector<std::int32_t> of_gang;        // the route of every gang of a window
  std::vector<std::int32_t> first;          // index of the first resource of each wide route
  std::vector<std::int32_t> resource;       // the resources of all wide routes, one after another
  std::vector<std::int32_t> route_of_stop;  // the route of every entry of `resource`
  std::vector<std::int32_t> rules_first, rules;      // interference by its victim
  std::vector<std::int32_t> victims_first, victims;  // victims by their aggressor

  explicit Routes(const Windows& windows)
      : gangs(windows.g), missing(windows), free_route(windows.g.num_resources) {
    const GraphView& g = windows.g;
    const std::int64_t num_edges = g.first[g.num_ops];
    for (std::int64_t e = 0; e < num_edges; ++e) missing.add(g.dst[e]);
    missing.finish();
    first.push_back(0);
    find_routes(g);
    group(g.num_resources, g.num_rules, g.victim, rules_first, rules);
    group(g.num_resources, g.num_rules, g.aggressor, victims_first, victims);
    for (std::int32_t& rule : victims) rule = g.victim[rule];
  }

  const std::int32_t free_route;  // of units without a resource; wide routes are numbered after it

  std::int32_t count() const {
    return free_route + 1 + static_cast<std::int32_t>(first.size()) - 1;
  }
  bool is_wide(std::int32_t route) const { return route > free_route; }
  std::int32_t first_stop(std::int32_t route) const { return first[route - free_route - 1]; }
  std::int32_t last_stop(std::int32_t route) const { return first[route - free_route]; }

 private:
  void find_routes(const GraphView& g) {
    std::unordered_multimap<std::uint64_t, std::int32_t> known;
    std::vector<std::int32_t> used;
    of_gang.resize(g.num_gangs);
    for (std::int32_t gang = 0; gang < g.num_gangs; ++gang) {
      used.clear();
      for (const std::int32_t* m = gangs.begin(gang); m != gangs.end(gang); ++m)
        if (g.resource[*m] != kNone) used.push_back(g.resource[*m]);
      std::sort(used.begin(), used.end());
      used.erase(std::unique(used.begin(), used.end()), used.end());
      of_gang[gang] = used.empty() ? free_route : used.size() == 1 ? used[0] : wide(used, known);
    }
  }

  std::int32_t wide(const std::vector<std::int32_t>& used,
                    std::unordered_multimap<std::uint64_t, std::int32_t>& known) {
    std::uint64_t hash = used.size();
    for (const std::int32_t r : used)
      hash = (hash ^ static_cast<std::uint64_t>(r)) * 0x9e3779b97f4a7c15u + (hash >> 29);
    const auto [begin, end] = known.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      const std::int32_t route = it->second;
      if (std::equal(used.begin(), used.end(), resource.begin() + first_stop(route),
                     resource.begin() + last_stop(route)))
        return route;
    }
    const std::int32_t route = count();
    resource.insert(resource.end(), used.begin(), used.end());
    route_of_stop.resize(resource.size(), route);
    first.push_back(static_cast<std::int32_t>(resource.size()));
    known.emplace(hash, route);
    return route;
  }

  // Row numbers by their key, in row order.
  static void group(std::int32_t num_keys, std::int32_t num_rows, const std::int32_t* key,
                    std::vector<std::int32_t>& first, std::vector<std::int32_t>& rows) {
    first.assign(num_keys + 1, 0);
    for (std::int32_t i = 0; i < num_rows; ++i) ++first[key[i] + 1];
    for (std::int32_t k = 0; k < num_keys; ++k) first[k + 1] += first[k];
    rows.resize(num_rows);
    std::vector<std::int32_t> at(first.begin(), first.end() - 1);
    for (std::int32_t i = 0; i < num_rows; ++i) rows[at[key[i]]++] = i;
  }
};

}  // namespace augury
