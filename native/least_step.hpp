// Lower bound on the step with a given cost per message; defined by augury.schedule.least_step.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace augury {

// Jobs are bytes with a head (their release) and a tail (the time needed after their arrival).
class LeastStep {
 public:
  // Heads must be ascending.
  LeastStep(std::int32_t num_jobs, const double* head_ns, const double* tail_ns,
            const double* work_ns, double overhead_ns, bool is_pipelined)
      : overhead_ns_(overhead_ns), is_pipelined_(is_pipelined) {
    for (std::int32_t job = 0; job < num_jobs; ++job) {
      if (job == 0 || head_ns[job] != head_ns_.back()) {
        head_ns_.push_back(head_ns[job]);
        released_ns_.push_back(all_ns_);
      }
      all_ns_ += work_ns[job];
      released_ns_.back() = all_ns_;
      jobs_.push_back({tail_ns[job], work_ns[job], work_ns[job], static_cast<std::int32_t>(head_ns_.size()) - 1});
    }
    std::sort(jobs_.begin(), jobs_.end(), [](const Job& a, const Job& b) {
      return a.tail_ns != b.tail_ns ? a.tail_ns > b.tail_ns : a.head > b.head;
    });
    leave_the_least_urgent();
  }

  // Returns `at_least_ns`, or a longer step if that is not enough.
  double run(double at_least_ns) {
    if (is_enough(at_least_ns)) return at_least_ns;
    double low = at_least_ns;
    double high = std::max(at_least_ns, head_ns_.back()) + 2 * (overhead_ns_ + all_ns_) +
                  2 * overhead_ns_ + jobs_.front().tail_ns;
    while (high - low > 0.25 && high - low > 1e-9 * high) {
      const double middle = low + (high - low) / 2;
      (is_enough(middle) ? high : low) = middle;
    }
    return low;
  }

 private:
  struct Job {
    double tail_ns;
    double work_ns;
    double whole_ns;
    std::int32_t head;
  };

  // Tests messages that start at heads and end where the next begins, the last at the last head.
  bool can_carry(double carried_ns) {
    const auto last = static_cast<std::int32_t>(head_ns_.size()) - 1;
    const double end_ns = head_ns_[last];
    earliest_ns_.clear();  // by the number of messages from there on, less one
    for (std::int32_t at = last - 1; at >= 0; --at) {
      std::size_t count = 0;
      if (released_ns_[at] < carried_ns) {
        const double free_ns = end_ns - (carried_ns - released_ns_[at]);
        while (count < earliest_ns_.size() &&
               earliest_ns_[count] + overhead_ns_ * static_cast<double>(count + 1) > free_ns) {
          ++count;
        }
        if (count == earliest_ns_.size()) continue;
        ++count;
      }
      if (head_ns_[at] + overhead_ns_ * static_cast<double>(count + 1) + carried_ns <= end_ns) {
        return true;
      }
      if (count == earliest_ns_.size()) earliest_ns_.push_back(0);
      earliest_ns_[count] = head_ns_[at];
    }
    return false;
  }

  void leave_the_least_urgent() {
    const auto last = static_cast<std::int32_t>(head_ns_.size()) - 1;
    double carried_ns = 0;
    if (last > 0) {
      double too_much_ns = std::min(released_ns_[last - 1], head_ns_[last] - head_ns_[0]);
      if (can_carry(too_much_ns)) carried_ns = too_much_ns;
      while (too_much_ns - carried_ns > 0.25 && too_much_ns - carried_ns > 1e-9 * too_much_ns) {
        const double middle = (carried_ns + too_much_ns) / 2;
        (can_carry(middle) ? carried_ns : too_much_ns) = middle;
      }
      carried_ns = too_much_ns;
    }
    begin_ns_ = head_ns_[last];
    if (is_pipelined_ || jobs_.front().head != last) begin_ns_ -= overhead_ns_;
    for (Job& job : jobs_) {
      if (job.head == last) continue;
      const double before_ns = std::min(job.work_ns, carried_ns);
      job.work_ns -= before_ns;
      carried_ns -= before_ns;
    }
  }

  double pipelined_ns(double carried_ns) const {
    const double best = std::sqrt(carried_ns / std::max(overhead_ns_, 1e-9));
    const double low = std::max(1.0, std::floor(best));
    const double high = low + 1;
    return std::min(overhead_ns_ * (low + 1) + carried_ns * (1 + 1 / low),
                    overhead_ns_ * (high + 1) + carried_ns * (1 + 1 / high));
  }

  // Tests messages that are as long as their first deadline allows, from the last head on.
  bool is_enough(double step_ns) const {
    double free_ns = begin_ns_ + (is_pipelined_ ? overhead_ns_ : 0);
    double room_ns = 0;
    double sum_ns = 0;
    double whole_ns = 0;
    for (const Job& job : jobs_) {
      const double due_ns = step_ns - job.tail_ns;
      whole_ns += job.whole_ns;
      if (is_pipelined_ && head_ns_[0] + pipelined_ns(whole_ns) > due_ns) return false;
      if (job.work_ns <= 0) continue;
      sum_ns += job.work_ns;
      if (is_pipelined_ && begin_ns_ + pipelined_ns(sum_ns) > due_ns) return false;
      if (job.work_ns <= room_ns) {
        room_ns -= job.work_ns;
        continue;
      }
      room_ns = due_ns - free_ns - overhead_ns_ - (job.work_ns - room_ns);
      if (room_ns < 0) return false;
      free_ns = due_ns;
    }
    return true;
  }

  double overhead_ns_;
  bool is_pipelined_;
  double begin_ns_ = 0;
  double all_ns_ = 0;
  std::vector<double> head_ns_;
  std::vector<double> released_ns_;
  std::vector<Job> jobs_;  // longest tail first
  std::vector<double> earliest_ns_;
};

}  // namespace augury
