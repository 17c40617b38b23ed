// How soon messages can have carried everything: augury.schedule.least_makespan says what is meant.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace augury {

class LeastMakespan {
 public:
  LeastMakespan(std::int32_t num_jobs, const double* head_ns, const double* work_ns,
                double overhead_ns, bool is_pipelined)
      : overhead_ns_(overhead_ns), is_pipelined_(is_pipelined) {
    for (std::int32_t job = 0; job < num_jobs; ++job) {
      if (job == 0 || head_ns[job] != head_ns_.back()) {
        head_ns_.push_back(head_ns[job]);
        released_ns_.push_back(all_ns_);
      }
      all_ns_ += work_ns[job];
      released_ns_.back() = all_ns_;
    }
    most_messages_ = static_cast<double>(head_ns_.size());
    if (is_pipelined_) most_messages_ += std::sqrt(all_ns_ / std::max(overhead_ns_, 1e-9));
  }

  // `at_least_ns`, or more if that is not enough.
  double run(double at_least_ns) {
    if (is_enough(at_least_ns)) return at_least_ns;
    double low = at_least_ns;
    double high = head_ns_.back() + time_ns(1, all_ns_);
    while (high - low > 0.25 && high - low > 1e-9 * high) {
      const double middle = low + (high - low) / 2;
      (is_enough(middle) ? high : low) = middle;
    }
    return low;
  }

 private:
  double time_ns(double num_messages, double carried_ns) const {
    if (!is_pipelined_) return overhead_ns_ * num_messages + carried_ns;
    return overhead_ns_ * (num_messages + 1) + carried_ns * (1 + 1 / num_messages);
  }

  bool is_enough(double limit_ns) {
    const auto num_heads = static_cast<std::int32_t>(head_ns_.size());
    const std::int32_t last = num_heads - 1;
    can_.assign(num_heads, 0);
    can_[last] = 1;
    for (double count = 1; count <= most_messages_; ++count) {
      std::int32_t next = last;
      std::int32_t first = last;
      for (std::int32_t at = last; at >= 0; --at) {
        if (can_[at]) first = at;
      }
      if (head_ns_[first] + time_ns(count, all_ns_) <= limit_ns) return true;
      // In place: of what `count` messages can do, only what lies at or after `at` is looked at.
      for (std::int32_t at = last; at >= 0; --at) {
        if (can_[at]) next = at;
        can_[at] = at == last ||
                   head_ns_[next] + time_ns(count, all_ns_ - released_ns_[at]) <= limit_ns;
      }
    }
    return false;
  }

  double overhead_ns_;
  bool is_pipelined_;
  double all_ns_ = 0;
  double most_messages_ = 0;
  std::vector<double> head_ns_;
  std::vector<double> released_ns_;
  std::vector<std::uint8_t> can_;
};

}  // namespace augury
