// A 4-ary min-heap: shallower than a binary one, and four children share a cache line.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace augury {

// Allocates memory that begins at a cache line.
template <class T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  LineAllocator() = default;
  template <class U>
  LineAllocator(const LineAllocator<U>&) {}
  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kLine));
  }
  void deallocate(T* memory, std::size_t) { ::operator delete(memory, kLine); }
  bool operator==(const LineAllocator&) const { return true; }
  bool operator!=(const LineAllocator&) const { return false; }
};

// Before(a, b): a leaves the heap earlier than b.
template <class T, class Before>
class Heap {
 public:
  bool empty() const { return items_.size() <= kUnused; }
  const T& top() const { return items_[kUnused]; }

  void push(const T& item) {
    if (items_.empty()) items_.resize(kUnused);
    std::size_t at = items_.size() - kUnused;
    items_.push_back(item);
    T* const items = items_.data() + kUnused;
    while (at > 0) {
      const std::size_t parent = (at - 1) / 4;
      if (!before_(item, items[parent])) break;
      items[at] = items[parent];
      at = parent;
    }
    items[at] = item;
  }

  void pop() {
    const T last = items_.back();
    items_.pop_back();
    if (!empty()) sink(last);
  }

  // Keeps its memory.
  void clear() { items_.clear(); }

  // pop, then push: one pass instead of two.
  void replace_top(const T& item) { sink(item); }

 private:
  void sink(const T& item) {
    const std::size_t size = items_.size() - kUnused;
    T* const items = items_.data() + kUnused;
    std::size_t at = 0;
    for (;;) {
      const std::size_t child = 4 * at + 1;
      // In a large heap the levels below are not in the cache: prefetched one level ahead.
      if (const std::size_t grandchild = 4 * child + 1; grandchild < size)
        for (std::size_t line = 0; line < 16; line += 4)
          __builtin_prefetch(items + grandchild + line, 1);
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

  // Unused items at the front, so that the children, from the second item on, begin a line.
  static constexpr std::size_t kUnused = 3;
  std::vector<T, LineAllocator<T>> items_;
  Before before_;
};

}  // namespace augury
