// Ends of units: the clocks of the rounds engine. A unit is an operation, or num_ops + a gang,
// numbered over all windows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "graph.hpp"
#include "heap.hpp"
#include "routes.hpp"
#include "windows.hpp"

namespace augury {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// For graphs without sharing and interference: an end is known when its unit begins.
class PlainProgress {
 public:
  void begin(std::int32_t unit, std::int64_t work_ns, std::int64_t now_ns) {
    ends_.push({now_ns + work_ns, unit});
  }
  void set_rates(std::int64_t) {}
  std::int64_t next_end_ns() const { return ends_.empty() ? kNever : ends_.top().end_ns; }

  // Calls visit with each unit that ends now, and expect with the next one if it is known.
  template <class Visit, class Expect>
  void take_ended(std::int64_t now_ns, Visit visit, Expect) {
    while (!ends_.empty() && ends_.top().end_ns == now_ns) {
      const std::int32_t unit = ends_.top().unit;
      ends_.pop();
      visit(unit);
    }
  }

 private:
  struct End {
    std::int64_t end_ns;
    std::int32_t unit;
  };
  struct EndBefore {
    bool operator()(const End& a, const End& b) const { return a.end_ns < b.end_ns; }
  };
  Heap<End, EndBefore> ends_;
};

// For shared resources and interference: virtual time. All units on a route progress at one rate,
// so the route counts the work that each of them has done since it was first used (its virtual
// time), and a unit ends when that has grown by its own work. A change of rate then moves one
// event, that of the route's earliest finisher, however many units run on it.
//
// Virtual time is in units of 2^-20 ns and wraps. Work is at most 2^42 ns
// (core/graph/graph_spec.py), so differences between running units fit 63 bits.
class VirtualProgress {
 public:
  VirtualProgress(const Windows& windows, const Routes& routes)
      : windows_(windows),
        g_(windows.g),
        routes_(routes),
        lines_(routes.count()),
        states_(g_.num_resources) {
    for (std::int32_t r = 0; r < g_.num_resources; ++r)
      states_[r].can_slow =
          g_.capacity[r] > 0 || routes_.rules_first[r] != routes_.rules_first[r + 1];
    place_of_stop_.assign(routes_.resource.size(), kNone);
  }

  // Resets all state but keeps the memory: requesting fresh pages from the system is slow.
  void reset() {
    for (Line& line : lines_) {
      Heap<Finish, FinishBefore> finishes = std::move(line.finishes);
      finishes.clear();
      line = Line{};
      line.finishes = std::move(finishes);
    }
    for (State& state : states_) {
      state.rate = kRateOne;
      state.num_progressing = 0;
      state.has_changed = false;
      state.open_stops.clear();
    }
    changed_.clear();
    restless_.clear();
    events_.clear();
    num_updates_ = 0;
  }

  void begin(std::int32_t unit, std::int64_t work_ns, std::int64_t now_ns) {
    const std::int32_t route = count(unit, 1);
    Line& line = lines_[route];
    if (line.finishes.empty()) {
      line.since_ns = now_ns;
      if (routes_.is_wide(route)) open(route);
    } else {
      advance(line, now_ns);
    }
    line.finishes.push({line.virtual_now + (static_cast<std::uint64_t>(work_ns) << kRateBits), unit});
    ++num_updates_;
    look_again(route);
  }

  void set_rates(std::int64_t now_ns) {
    for (const std::int32_t r : changed_) {
      states_[r].has_changed = false;
      set_rate(r);
    }
    changed_.clear();
    for (const std::int32_t route : restless_) {
      Line& line = lines_[route];
      line.is_restless = false;
      if (line.finishes.empty()) {
        if (routes_.is_wide(route)) close(route);
        continue;
      }
      const std::int64_t rate = rate_of(route);
      if (rate != line.rate) {
        advance(line, now_ns);
        line.rate = rate;
      }
      schedule(route, end_ns(line));
    }
    restless_.clear();
  }

  std::int64_t next_end_ns() const { return events_.empty() ? kNever : events_[0].end_ns; }

  template <class Visit, class Expect>
  void take_ended(std::int64_t now_ns, Visit visit, Expect expect) {
    while (!events_.empty() && events_[0].end_ns == now_ns) {
      const std::int32_t route = events_[0].route;
      Line& line = lines_[route];
      unschedule_first();
      advance(line, now_ns);
      look_again(route);
      do {
        const std::int32_t unit = line.finishes.top().unit;
        line.finishes.pop();
        if (!line.finishes.empty()) expect(line.finishes.top().unit);
        ++num_updates_;
        count(unit, -1);
        visit(unit);
      } while (!line.finishes.empty() && is_over(line.finishes.top().at, line.virtual_now));
    }
  }

  // Number of entries added to, moved in or removed from queues of ends, and of routes notified of
  // a change of rate: the cost of sharing and interference.
  std::int64_t num_updates() const { return num_updates_; }

 private:
  struct Finish {
    std::uint64_t at;  // in virtual time
    std::int32_t unit;
  };
  static bool is_over(std::uint64_t at, std::uint64_t virtual_now) {
    return static_cast<std::int64_t>(at - virtual_now) <= 0;
  }
  struct FinishBefore {
    bool operator()(const Finish& a, const Finish& b) const {
      return static_cast<std::int64_t>(a.at - b.at) < 0;
    }
  };

  // The units that run on one route.
  struct Line {
    std::uint64_t virtual_now = 0;  // at since_ns
    std::int64_t since_ns = 0;
    std::int64_t rate = 0;
    std::int64_t slowest = 0;  // wide routes: the lowest rate of the resources ...
    std::int32_t num_slowest = 0;  // ... and how many have it; 0: unknown
    std::int32_t place = kNone;    // in events_
    bool is_restless = false;      // its event has to be updated
    bool is_open = false;          // wide routes: its resources notify it of changes
    Heap<Finish, FinishBefore> finishes;
  };

  struct State {
    std::int64_t rate = kRateOne;
    std::int32_t num_progressing = 0;
    bool can_slow = false;
    bool has_changed = false;
    std::vector<std::int32_t> open_stops;  // of the wide routes in use that contain it
  };

  struct Event {
    std::int64_t end_ns;
    std::int32_t route;
  };

  // -- units on resources ---------------------------------------------------------------------

  // Adds a unit to all of its resources (1) or removes it (-1). Returns its route.
  std::int32_t count(std::int32_t unit, std::int32_t by) {
    if (unit < windows_.num_ops) {
      const std::int32_t r = g_.resource[windows_.local(unit)];
      if (r == kNone) return routes_.free_route;
      count_on(r, by);
      return r;
    }
    std::int32_t gang = unit - windows_.num_ops;
    gang -= windows_.of_gang(gang) * g_.num_gangs;
    for (const std::int32_t* m = routes_.gangs.begin(gang); m != routes_.gangs.end(gang); ++m)
      if (g_.resource[*m] != kNone) count_on(g_.resource[*m], by);
    return routes_.of_gang[gang];
  }

  void count_on(std::int32_t r, std::int32_t by) {
    State& state = states_[r];
    const bool was_idle = state.num_progressing == 0;
    state.num_progressing += by;
    change(r);
    if (was_idle == (state.num_progressing == 0)) return;
    for (std::int32_t i = routes_.victims_first[r]; i < routes_.victims_first[r + 1]; ++i)
      change(routes_.victims[i]);
  }

  void change(std::int32_t r) {
    State& state = states_[r];
    if (state.has_changed || !state.can_slow) return;
    state.has_changed = true;
    changed_.push_back(r);
  }

  void look_again(std::int32_t route) {
    if (lines_[route].is_restless) return;
    lines_[route].is_restless = true;
    restless_.push_back(route);
  }

  // -- rates ----------------------------------------------------------------------------------

  std::int64_t rate_on(std::int32_t r) const {
    std::int64_t rate = kRateOne;
    const std::int64_t running = states_[r].num_progressing;
    if (g_.capacity[r] > 0 && running > 0) rate = std::min(rate, g_.capacity[r] / running);
    for (std::int32_t i = routes_.rules_first[r]; i < routes_.rules_first[r + 1]; ++i) {
      const std::int32_t rule = routes_.rules[i];
      if (states_[g_.aggressor[rule]].num_progressing > 0)
        rate = (rate * g_.rate[rule]) >> kRateBits;
    }
    return std::max<std::int64_t>(rate, 1);
  }

  void set_rate(std::int32_t r) {
    State& state = states_[r];
    const std::int64_t old = state.rate, rate = rate_on(r);
    if (rate == old) return;
    state.rate = rate;
    look_again(r);
    for (const std::int32_t stop : state.open_stops) {
      const std::int32_t route = routes_.route_of_stop[stop];
      Line& line = lines_[route];
      ++num_updates_;
      line.num_slowest -= old == line.slowest;
      if (rate < line.slowest) {
        line.slowest = rate;
        line.num_slowest = 1;
      } else if (rate == line.slowest) {
        ++line.num_slowest;
      }
      look_again(route);
    }
  }

  std::int64_t rate_of(std::int32_t route) {
    if (route < routes_.free_route) return states_[route].rate;
    if (route == routes_.free_route) return kRateOne;
    Line& line = lines_[route];
    if (line.num_slowest == 0) find_slowest(route);
    return line.slowest;
  }

  void find_slowest(std::int32_t route) {
    Line& line = lines_[route];
    line.slowest = kNever;
    num_updates_ += routes_.last_stop(route) - routes_.first_stop(route);
    for (std::int32_t stop = routes_.first_stop(route); stop < routes_.last_stop(route); ++stop) {
      const std::int64_t rate = states_[routes_.resource[stop]].rate;
      if (rate < line.slowest) {
        line.slowest = rate;
        line.num_slowest = 0;
      }
      line.num_slowest += rate == line.slowest;
    }
  }

  void open(std::int32_t route) {
    Line& line = lines_[route];
    if (line.is_open) return;
    line.is_open = true;
    for (std::int32_t stop = routes_.first_stop(route); stop < routes_.last_stop(route); ++stop) {
      std::vector<std::int32_t>& stops = states_[routes_.resource[stop]].open_stops;
      place_of_stop_[stop] = static_cast<std::int32_t>(stops.size());
      stops.push_back(stop);
    }
    line.slowest = 0;  // below any rate: to be computed
    line.num_slowest = 0;
  }

  void close(std::int32_t route) {
    lines_[route].is_open = false;
    for (std::int32_t stop = routes_.first_stop(route); stop < routes_.last_stop(route); ++stop) {
      std::vector<std::int32_t>& stops = states_[routes_.resource[stop]].open_stops;
      const std::int32_t last = stops.back();
      stops[place_of_stop_[stop]] = last;
      place_of_stop_[last] = place_of_stop_[stop];
      stops.pop_back();
    }
  }

  // -- time -----------------------------------------------------------------------------------

  static void advance(Line& line, std::int64_t now_ns) {
    line.virtual_now += static_cast<std::uint64_t>(now_ns - line.since_ns) *
                        static_cast<std::uint64_t>(line.rate);
    line.since_ns = now_ns;
  }

  static std::int64_t end_ns(const Line& line) {
    const auto left = static_cast<std::int64_t>(line.finishes.top().at - line.virtual_now);
    if (left <= 0) return line.since_ns;
    if (line.rate == kRateOne) return line.since_ns + ((left + kRateOne - 1) >> kRateBits);
    return line.since_ns + (left + line.rate - 1) / line.rate;
  }

  // events_ is a binary heap that contains every route in use once.
  void schedule(std::int32_t route, std::int64_t end_ns) {
    Line& line = lines_[route];
    if (line.place == kNone) {
      line.place = static_cast<std::int32_t>(events_.size());
      events_.push_back({end_ns, route});
      rise(line.place, {end_ns, route});
      return;
    }
    const std::int64_t old_ns = events_[line.place].end_ns;
    if (end_ns < old_ns) rise(line.place, {end_ns, route});
    if (end_ns > old_ns) sink(line.place, {end_ns, route});
  }

  void unschedule_first() {
    lines_[events_[0].route].place = kNone;
    const Event last = events_.back();
    events_.pop_back();
    if (!events_.empty()) sink(0, last);
  }

  void put(std::int32_t at, const Event& event) {
    events_[at] = event;
    lines_[event.route].place = at;
  }

  void rise(std::int32_t at, const Event event) {
    ++num_updates_;
    while (at > 0 && event.end_ns < events_[(at - 1) / 2].end_ns) {
      put(at, events_[(at - 1) / 2]);
      at = (at - 1) / 2;
    }
    put(at, event);
  }

  void sink(std::int32_t at, const Event event) {
    ++num_updates_;
    const auto size = static_cast<std::int32_t>(events_.size());
    for (;;) {
      std::int32_t child = 2 * at + 1;
      if (child >= size) break;
      if (child + 1 < size && events_[child + 1].end_ns < events_[child].end_ns) ++child;
      if (events_[child].end_ns >= event.end_ns) break;
      put(at, events_[child]);
      at = child;
    }
    put(at, event);
  }

  const Windows& windows_;
  const GraphView& g_;
  const Routes& routes_;
  std::vector<Line> lines_;    // by route
  std::vector<State> states_;  // by resource
  std::vector<std::int32_t> place_of_stop_;  // index of a stop in open_stops of its resource
  std::vector<std::int32_t> changed_, restless_;
  std::vector<Event> events_;
  std::int64_t num_updates_ = 0;
};

}  // namespace augury
