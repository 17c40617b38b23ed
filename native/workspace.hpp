// Scratch memory that is kept between replays: requesting fresh pages from the system costs as much
// as a replay, and searches replay thousands of times.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#ifdef __linux__
#include <sys/mman.h>
#endif

namespace augury {

class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() { std::free(memory_); }

  // Returns room for count values; earlier contents are lost.
  template <class T>
  T* room_for(std::size_t count) {
    const std::size_t bytes = (count * sizeof(T) + kHugePage - 1) / kHugePage * kHugePage;
    if (bytes > size_) {
      std::free(memory_);
      size_ = 0;
      memory_ = std::aligned_alloc(kHugePage, bytes);
      if (memory_ == nullptr) throw std::bad_alloc();
      size_ = bytes;
#ifdef __linux__
      madvise(memory_, bytes, MADV_HUGEPAGE);
#endif
    }
    return static_cast<T*>(memory_);
  }

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  void* memory_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace augury
