#include "doctor/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <memory>

#include "base/str.h"
#include "doctor/place.h"

namespace trireme::doctor {
namespace {

std::string text_of(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = address->sa_family == AF_INET
                          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
                          : static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  return inet_ntop(address->sa_family, bytes, text.data(), text.size()) == nullptr ? "" : text.data();
}

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> parts;
  size_t at = 0;
  while (at <= text.size()) {
    const size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

/// NCCL's and Gloo's words for interfaces: prefixes, "^" for all but these, "=" for whole names.
bool matches(const std::string& name, const std::string& list) {
  std::string rest = list;
  const bool not_these = rest.starts_with('^');
  if (not_these) rest.erase(0, 1);
  const bool whole = rest.starts_with('=');
  if (whole) rest.erase(0, 1);
  const std::vector<std::string> parts = split_commas(rest);
  const bool found = std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
    return whole ? name == part : name.starts_with(part);
  });
  return found != not_these;
}

}  // namespace

std::vector<Interface> list_interfaces(const std::string& sys) {
  std::vector<Interface> all;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return all;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> keep(list, freeifaddrs);
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    auto found = std::find_if(all.begin(), all.end(), [&](const Interface& one) { return one.name == at->ifa_name; });
    if (found == all.end()) {
      Interface one;
      one.name = at->ifa_name;
      one.up = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_RUNNING) != 0;
      one.loopback = (at->ifa_flags & IFF_LOOPBACK) != 0;
      one.speed_mbit = std::max<int64_t>(0, read_number_file(str(sys, "/class/net/", one.name, "/speed")).value_or(0));
      found = all.insert(all.end(), std::move(one));
    }
    if (at->ifa_addr == nullptr || (at->ifa_addr->sa_family != AF_INET && at->ifa_addr->sa_family != AF_INET6))
      continue;
    found->addresses.push_back(text_of(at->ifa_addr));
  }
  return all;
}

std::vector<std::string> nccl_interfaces(const std::vector<Interface>& all, const std::string& only) {
  const auto pick = [&](const std::string& list) {
    std::vector<std::string> names;
    for (const Interface& one : all) {
      if (one.up && !one.addresses.empty() && matches(one.name, list)) names.push_back(one.name);
    }
    return names;
  };
  if (!only.empty()) return pick(only);
  for (const char* list : {"ib", "^docker,lo,virbr", "docker", "lo"}) {
    std::vector<std::string> names = pick(list);
    if (!names.empty()) return names;
  }
  return {};
}

std::string gloo_interface(const std::vector<Interface>& all, const std::vector<std::string>& own_addresses,
                           const std::string& only) {
  for (const std::string& name : split_commas(only)) return name;
  for (const std::string& address : own_addresses) {
    for (const Interface& one : all) {
      if (std::find(one.addresses.begin(), one.addresses.end(), address) != one.addresses.end()) return one.name;
    }
  }
  return "lo";
}

bool is_host_local(const std::string& name) {
  if (name == "lo") return true;
  for (const char* front : {"docker", "virbr", "br-", "veth", "cni", "podman", "lxcbr", "dummy"}) {
    if (name.starts_with(front)) return true;
  }
  return false;
}

std::vector<std::string> resolve(const std::string& name, std::string* error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code = getaddrinfo(name.c_str(), nullptr, &hints, &list);
  if (code != 0) {
    if (error != nullptr) *error = gai_strerror(code);
    return {};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> keep(list, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    if (at->ai_family != AF_INET && at->ai_family != AF_INET6) continue;
    std::string text = text_of(at->ai_addr);
    if (std::find(addresses.begin(), addresses.end(), text) == addresses.end()) addresses.push_back(std::move(text));
  }
  return addresses;
}

bool is_loopback_address(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address.starts_with("::ffff:127.");
}

std::string own_host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace trireme::doctor
