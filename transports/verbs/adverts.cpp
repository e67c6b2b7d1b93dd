#include "transports/verbs/adverts.hpp"

#include <algorithm>

namespace epccl::transports::verbs {

uint32_t AdvertTable::add(Receive& receive) {
  if (free_.empty()) {
    if (places_.size() >> place_bits != 0) return 0;
    free_.push_back(static_cast<uint32_t>(places_.size()));
    places_.emplace_back();
  }
  const uint32_t place = free_.back();
  free_.pop_back();
  places_[place].receive = &receive;
  return place | places_[place].uses << place_bits;
}

Receive* AdvertTable::find(uint32_t id) const {
  const uint32_t place = id & ((1U << place_bits) - 1);
  if (place >= places_.size() || places_[place].uses != id >> place_bits) return nullptr;
  return places_[place].receive;
}

void AdvertTable::remove(uint32_t id) {
  const uint32_t place = id & ((1U << place_bits) - 1);
  places_[place].receive = nullptr;
  places_[place].uses = std::max(1U, (places_[place].uses + 1) & uses_mask);  // never 0: no id is 0
  free_.push_back(place);
}

}  // namespace epccl::transports::verbs
