// Evaluates an Order of pieces; defined by augury.schedule.evaluate_reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace augury {

// Arrays by gradient; segment_ns has one more entry: forward up to the first gradient needed.
struct ProblemView {
  std::int32_t num_gradients;
  const std::int64_t* release_ns;
  const std::int64_t* update_ns;
  const std::int64_t* size_bytes;
  const std::int64_t* segment_ns;
  std::int64_t begin_ns;
};

struct OrderView {
  std::int32_t num_pieces;
  const std::uint8_t* link;
  const std::uint8_t* is_last;
  const std::int32_t* after;
  const std::int64_t* lag_ns;
  const std::int64_t* not_before_ns;
  const std::int64_t* hold_ns;
  const std::int64_t* size_bytes;
  const std::int32_t* first;
  const std::int32_t* gradient;
  const std::int64_t* slice_bytes;
  std::int64_t latency_ns;
  std::int64_t window_bytes;
  bool has_barrier;
};

// Ranges of bytes in the order of sending, divided into messages, which are all-reduced, or pushed
// and then pulled in the order `back`.
struct LineView {
  std::int32_t num_runs;
  const std::int32_t* gradient;
  const std::int64_t* end_bytes;
  std::int32_t num_messages;
  const std::int64_t* cuts;
  const std::int64_t* back;  // null: no parameter server
};

struct NetworkView {
  double overhead_ns;
  double ns_per_byte;
  double server_ns_per_byte;
  std::int64_t latency_ns;
};

// Makes the columns of an order from a line.
class LineOrder {
 public:
  OrderView lay(const LineView& line, const NetworkView& network) {
    clear();
    std::int32_t run = 0;
    std::int64_t at_bytes = 0;
    first_.push_back(0);
    for (std::int32_t message = 0; message < line.num_messages; ++message) {
      const std::int64_t begin_bytes = at_bytes;
      while (at_bytes < line.cuts[message]) {
        const std::int64_t until_bytes = std::min(line.end_bytes[run], line.cuts[message]);
        gradient_.push_back(line.gradient[run]);
        slice_bytes_.push_back(until_bytes - at_bytes);
        at_bytes = until_bytes;
        if (at_bytes == line.end_bytes[run]) ++run;
      }
      add(at_bytes - begin_bytes, -1, line.back == nullptr, network);
    }
    for (std::int32_t nth = 0; line.back != nullptr && nth < line.num_messages; ++nth) {
      const auto message = static_cast<std::int32_t>(line.back[nth]);
      for (std::int32_t slice = first_[message]; slice < first_[message + 1]; ++slice) {
        gradient_.push_back(gradient_[slice]);
        slice_bytes_.push_back(slice_bytes_[slice]);
      }
      add(size_bytes_[message], message, true, network);
    }
    not_before_ns_.assign(link_.size(), 0);
    return {static_cast<std::int32_t>(link_.size()),
            link_.data(),
            is_last_.data(),
            after_.data(),
            lag_ns_.data(),
            not_before_ns_.data(),
            hold_ns_.data(),
            size_bytes_.data(),
            first_.data(),
            gradient_.data(),
            slice_bytes_.data(),
            network.latency_ns,
            std::numeric_limits<std::int64_t>::max(),
            false};
  }

 private:
  void add(std::int64_t size_bytes, std::int32_t after, bool is_last, const NetworkView& network) {
    const auto size = static_cast<double>(size_bytes);
    link_.push_back(after >= 0);
    is_last_.push_back(is_last);
    after_.push_back(after);
    lag_ns_.push_back(after < 0 ? 0 : up(network.server_ns_per_byte * size));
    hold_ns_.push_back(up(network.overhead_ns + network.ns_per_byte * size));
    size_bytes_.push_back(size_bytes);
    first_.push_back(static_cast<std::int32_t>(gradient_.size()));
  }

  static std::int64_t up(double exact_ns) { return static_cast<std::int64_t>(std::ceil(exact_ns)); }

  void clear() {
    link_.clear();
    is_last_.clear();
    after_.clear();
    lag_ns_.clear();
    hold_ns_.clear();
    size_bytes_.clear();
    first_.clear();
    gradient_.clear();
    slice_bytes_.clear();
  }

  std::vector<std::uint8_t> link_;
  std::vector<std::uint8_t> is_last_;
  std::vector<std::int32_t> after_;
  std::vector<std::int64_t> lag_ns_;
  std::vector<std::int64_t> not_before_ns_;
  std::vector<std::int64_t> hold_ns_;
  std::vector<std::int64_t> size_bytes_;
  std::vector<std::int32_t> first_;
  std::vector<std::int32_t> gradient_;
  std::vector<std::int64_t> slice_bytes_;
};

struct Step {
  std::int64_t step_ns;
  std::int64_t waiting_ns;
};

// Keeps scratch memory between evaluations: a search makes thousands of them.
class OrderEvaluation {
 public:
  // The step is -1 if the order does not send all bytes.
  Step run(const ProblemView& problem, const OrderView& order) {
    on_links(problem, order);
    note_arrivals(problem, order);
    if (static_cast<std::int32_t>(arrived_.size()) < problem.num_gradients) return {-1, 0};
    return order.has_barrier ? with_barrier(problem) : without_barrier(problem);
  }

  std::vector<std::int64_t> start_ns;
  std::vector<std::int64_t> arrive_ns;
  std::vector<std::int64_t> arrived_ns;

 private:
  void on_links(const ProblemView& problem, const OrderView& order) {
    start_ns.resize(order.num_pieces);
    arrive_ns.resize(order.num_pieces);
    std::int64_t free_ns[2] = {0, 0};
    std::int64_t in_flight_bytes[2] = {0, 0};
    std::size_t num_arrived[2] = {0, 0};
    in_flight_[0].clear();
    in_flight_[1].clear();
    for (std::int32_t piece = 0; piece < order.num_pieces; ++piece) {
      const int link = order.link[piece];
      std::int64_t start = std::max(free_ns[link], order.not_before_ns[piece]);
      for (std::int32_t at = order.first[piece]; at < order.first[piece + 1]; ++at) {
        start = std::max(start, problem.release_ns[order.gradient[at]]);
      }
      if (order.after[piece] >= 0) {
        start = std::max(start, arrive_ns[order.after[piece]] + order.lag_ns[piece]);
      }
      while (in_flight_bytes[link] >= order.window_bytes) {
        const std::int32_t ahead = in_flight_[link][num_arrived[link]++];
        in_flight_bytes[link] -= order.size_bytes[ahead];
        start = std::max(start, arrive_ns[ahead]);
      }
      in_flight_[link].push_back(piece);
      in_flight_bytes[link] += order.size_bytes[piece];
      free_ns[link] = start + order.hold_ns[piece];
      start_ns[piece] = start;
      arrive_ns[piece] = free_ns[link] + order.latency_ns;
    }
  }

  // All last pieces share a link, so they arrive in order.
  void note_arrivals(const ProblemView& problem, const OrderView& order) {
    missing_bytes_.assign(problem.size_bytes, problem.size_bytes + problem.num_gradients);
    arrived_ns.assign(problem.num_gradients, -1);
    arrived_.clear();
    for (std::int32_t piece = 0; piece < order.num_pieces; ++piece) {
      if (!order.is_last[piece]) continue;
      for (std::int32_t at = order.first[piece]; at < order.first[piece + 1]; ++at) {
        const std::int32_t gradient = order.gradient[at];
        missing_bytes_[gradient] -= order.slice_bytes[at];
        if (missing_bytes_[gradient] == 0) {
          arrived_.push_back(gradient);
          arrived_ns[gradient] = arrive_ns[piece];
        }
      }
    }
  }

  Step with_barrier(const ProblemView& problem) const {
    std::int64_t step_ns = std::max(problem.begin_ns, arrived_ns[arrived_.back()]);
    const std::int64_t waiting_ns = step_ns - problem.begin_ns;
    for (std::int32_t i = 0; i < problem.num_gradients; ++i) step_ns += problem.update_ns[i];
    for (std::int32_t i = 0; i <= problem.num_gradients; ++i) step_ns += problem.segment_ns[i];
    return {step_ns, waiting_ns};
  }

  Step without_barrier(const ProblemView& problem) {
    std::int64_t now_ns = problem.begin_ns + problem.segment_ns[0];
    std::int64_t waiting_ns = 0;
    std::size_t num_seen = 0;
    is_updated_.assign(problem.num_gradients, 0);
    to_update_.clear();
    for (std::int32_t gradient = 0; gradient < problem.num_gradients; ++gradient) {
      while (!is_updated_[gradient]) {
        while (num_seen < arrived_.size() && arrived_ns[arrived_[num_seen]] <= now_ns) {
          to_update_.push_back(arrived_[num_seen++]);
          std::push_heap(to_update_.begin(), to_update_.end(), std::greater<>());
        }
        if (!to_update_.empty()) {
          std::pop_heap(to_update_.begin(), to_update_.end(), std::greater<>());
          is_updated_[to_update_.back()] = 1;
          now_ns += problem.update_ns[to_update_.back()];
          to_update_.pop_back();
        } else {
          const std::int64_t next_ns = arrived_ns[arrived_[num_seen]];
          waiting_ns += next_ns - now_ns;
          now_ns = next_ns;
        }
      }
      now_ns += problem.segment_ns[gradient + 1];
    }
    return {now_ns, waiting_ns};
  }

  std::vector<std::int32_t> in_flight_[2];
  std::vector<std::int64_t> missing_bytes_;
  std::vector<std::int32_t> arrived_;
  std::vector<std::int32_t> to_update_;
  std::vector<std::uint8_t> is_updated_;
};

}  // namespace augury
