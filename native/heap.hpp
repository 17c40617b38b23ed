// A 4-ary min-heap: shallower than a binary one, and four children share a cache line.
#pragma once

#include <cstddef>
#include <vector>

namespace augury {

// Before(a, b): a leaves the heap earlier than b.
template <class T, class Before>
class Heap {
 public:
  bool empty() const { return items_.empty(); }
  const T& top() const { return items_.front(); }

  void push(const T& item) {
    std::size_t at = items_.size();
    items_.push_back(item);
    while (at > 0) {
      const std::size_t parent = (at - 1) / 4;
      if (!before_(item, items_[parent])) break;
      items_[at] = items_[parent];
      at = parent;
    }
    items_[at] = item;
  }

  void pop() {
    const T last = items_.back();
    items_.pop_back();
    if (!items_.empty()) sink(last);
  }

  // pop, then push: one pass instead of two.
  void replace_top(const T& item) { sink(item); }

 private:
  void sink(const T& item) {
    const std::size_t size = items_.size();
    T* const items = items_.data();
    std::size_t at = 0;
    for (;;) {
      const std::size_t child = 4 * at + 1;
      std::size_t best;
      if (child + 4 <= size) {
        const std::size_t left = child + (before_(items[child + 1], items[child]) ? 1 : 0);
        const std::size_t right = child + 2 + (before_(items[child + 3], items[child + 2]) ? 1 : 0);
        best = before_(items[right], items[left]) ? right : left;
      } else if (child < size) {
        best = child;
        for (std::size_t c = child + 1; c < size; ++c)
          if (before_(items[c], items[best])) best = c;
      } else {
        break;
      }
      if (!before_(items[best], item)) break;
      items[at] = items[best];
      at = best;
    }
    items[at] = item;
  }

  std::vector<T> items_;
  Before before_;
};

}  // namespace augury
