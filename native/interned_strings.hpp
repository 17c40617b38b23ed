// Distinct strings, numbered in order of their first appearance.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace augury {

class InternedStrings {
 public:
  // A seed that files cannot know keeps them from choosing strings that collide.
  explicit InternedStrings(std::uint64_t seed) : seed_(seed), slots_(1024, kFree) {}

  std::int32_t number(std::string_view text) {
    const std::uint64_t hash = hash_of(text);
    std::size_t slot = hash & (slots_.size() - 1);
    for (; slots_[slot] != kFree; slot = (slot + 1) & (slots_.size() - 1)) {
      const std::int32_t found = slots_[slot];
      if (hashes_[found] == hash && (*this)[found] == text) return found;
    }
    const auto added = static_cast<std::int32_t>(ends_.size());
    slots_[slot] = added;
    hashes_.push_back(hash);
    text_.append(text);
    ends_.push_back(static_cast<std::int64_t>(text_.size()));
    if (2 * ends_.size() > slots_.size()) grow();
    return added;
  }

  std::string_view operator[](std::int32_t i) const {
    const std::int64_t begin = i == 0 ? 0 : ends_[i - 1];
    return {text_.data() + begin, static_cast<std::size_t>(ends_[i] - begin)};
  }

  std::size_t size() const { return ends_.size(); }
  const std::string& text() const { return text_; }
  const std::vector<std::int64_t>& ends() const { return ends_; }

 private:
  static constexpr std::int32_t kFree = -1;

  std::uint64_t hash_of(std::string_view text) const {
    std::uint64_t hash = seed_ ^ text.size();
    const char* p = text.data();
    std::size_t left = text.size();
    while (left > 0) {
      std::uint64_t word = 0;
      const std::size_t size = left < 8 ? left : 8;
      std::memcpy(&word, p, size);
      hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
      p += size;
      left -= size;
    }
    hash *= 0xBF58476D1CE4E5B9u;
    return hash ^ (hash >> 32);
  }

  void grow() {
    slots_.assign(slots_.size() * 2, kFree);
    for (std::size_t i = 0; i < hashes_.size(); ++i) {
      std::size_t slot = hashes_[i] & (slots_.size() - 1);
      while (slots_[slot] != kFree) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = static_cast<std::int32_t>(i);
    }
  }

  std::uint64_t seed_;
  std::vector<std::int32_t> slots_;
  std::vector<std::uint64_t> hashes_;
  std::string text_;
  std::vector<std::int64_t> ends_;
};

}  // namespace augury
