#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>

#include "base/str.h"
#include "diagnose/excerpt.h"
#include "diagnose/report.h"
#include "trireme/base/error.h"

// Field by field in one place for both directions: what is written is what is read. A field is json key, member.
namespace trireme::diagnose {
namespace {

using Json = nlohmann::ordered_json;

/// Writes members into an object.
class Writer {
 public:
  template <typename T>
  void operator()(const char* key, const T& value) {
    json_[key] = of(value);
  }
  [[nodiscard]] Json take() { return std::move(json_); }

 private:
  static Json of(const std::string& value) { return value; }
  static Json of(Severity value) { return to_string(value); }
  static Json of(Check::State value) { return to_string(value); }
  template <typename T>
    requires std::is_arithmetic_v<T>
  static Json of(T value) {
    return value;
  }
  template <typename T>
  static Json of(const std::optional<T>& value) {
    return value ? of(*value) : Json(nullptr);
  }
  template <typename T>
  static Json of(const std::vector<T>& values) {
    Json array = Json::array();
    for (const T& value : values) array.push_back(of(value));
    return array;
  }
  template <typename T>
    requires std::is_class_v<T>
  static Json of(const T& value);

  Json json_ = Json::object();
};

/// Reads them back; what is missing or of another type is left alone.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}
  template <typename T>
  void operator()(const char* key, T& value) {
    if (!json_.is_object()) return;
    const auto found = json_.find(key);
    if (found != json_.end()) into(*found, value);
  }

 private:
  static void into(const Json& json, std::string& value) {
    if (json.is_string()) value = json.get<std::string>();
  }
  static void into(const Json& json, bool& value) {
    if (json.is_boolean()) value = json.get<bool>();
  }
  static void into(const Json& json, Severity& value) {
    for (const Severity one : {Severity::kInfo, Severity::kWarning, Severity::kError}) {
      if (json == to_string(one)) value = one;
    }
  }
  static void into(const Json& json, Check::State& value) {
    using State = Check::State;
    for (const State one : {State::kOk, State::kWarning, State::kError, State::kUnknown}) {
      if (json == to_string(one)) value = one;
    }
  }
  template <typename T>
    requires std::is_arithmetic_v<T>
  static void into(const Json& json, T& value) {
    if (json.is_number()) value = json.get<T>();
  }
  template <typename T>
  static void into(const Json& json, std::optional<T>& value) {
    if (json.is_null()) return;
    T read{};
    into(json, read);
    value = std::move(read);
  }
  template <typename T>
  static void into(const Json& json, std::vector<T>& values) {
    if (!json.is_array()) return;
    for (const Json& item : json) into(item, values.emplace_back());
  }
  template <typename T>
    requires std::is_class_v<T>
  static void into(const Json& json, T& value);

  const Json& json_;
};

template <typename Visitor>
void fields(Visitor& visit, auto& item)
  requires std::is_same_v<std::remove_cvref_t<decltype(item)>, Evidence>
{
  visit("file", item.file);
  visit("line", item.line);
  visit("text", item.text);
}

template <typename Visitor>
void fields(Visitor& visit, auto& item)
  requires std::is_same_v<std::remove_cvref_t<decltype(item)>, Finding>
{
  visit("cause", item.cause);
  visit("code", item.code);
  visit("severity", item.severity);
  visit("confidence", item.confidence);
  visit("ranks", item.ranks);
  visit("advice", item.advice);
  visit("host", item.host);
  visit("evidence", item.evidence);
}

template <typename Visitor>
void fields(Visitor& visit, auto& item)
  requires std::is_same_v<std::remove_cvref_t<decltype(item)>, Check>
{
  visit("name", item.name);
  visit("state", item.state);
  visit("text", item.text);
  visit("host", item.host);
}

template <typename Visitor>
void fields(Visitor& visit, auto& item)
  requires std::is_same_v<std::remove_cvref_t<decltype(item)>, FileNote>
{
  visit("file", item.file);
  visit("kinds", item.kinds);
  visit("note", item.note);
}

template <typename Visitor>
void fields(Visitor& visit, auto& item)
  requires std::is_same_v<std::remove_cvref_t<decltype(item)>, Topology>
{
  visit("gpus", item.gpus);
  visit("nics", item.nics);
  visit("links", item.links);
  visit("numa", item.numa);
  visit("nearest_nic", item.nearest_nic);
  visit("nearest_nic_link", item.nearest_nic_link);
  visit("nic_links", item.nic_links);
  visit("gpu_names", item.gpu_names);
  visit("nic_names", item.nic_names);
  visit("nic_devices", item.nic_devices);
  visit("cpus", item.cpus);
  visit("shows", item.shows);
  visit("nvlink", item.nvlink);
  visit("host", item.host);
  visit("file", item.file);
}

template <typename Visitor>
void fields(Visitor& visit, auto& item)
  requires std::is_same_v<std::remove_cvref_t<decltype(item)>, Port>
{
  visit("device", item.device);
  visit("port", item.port);
  visit("state", item.state);
  visit("link_layer", item.link_layer);
  visit("rate_gbps", item.rate_gbps);
  visit("usable", item.usable);
  visit("type", item.type);
  visit("host", item.host);
}

template <typename Visitor>
void fields(Visitor& visit, auto& item)
  requires std::is_same_v<std::remove_cvref_t<decltype(item)>, Versions>
{
  visit("nccl", item.nccl);
  visit("cuda", item.cuda);
  visit("driver", item.driver);
  visit("torch", item.torch);
}

template <typename Visitor>
void fields(Visitor& visit, auto& item)
  requires std::is_same_v<std::remove_cvref_t<decltype(item)>, Network>
{
  visit("host", item.host);
  visit("rank", item.rank);
  visit("transport", item.transport);
  visit("plugin", item.plugin);
  visit("devices", item.devices);
}

template <typename Visitor>
void fields(Visitor& visit, auto& item)
  requires std::is_same_v<std::remove_cvref_t<decltype(item)>, MemoryAsk>
{
  visit("file", item.file);
  visit("line", item.line);
  visit("ask_bytes", item.ask_bytes);
  visit("capacity_bytes", item.capacity_bytes);
  visit("allocated_bytes", item.allocated_bytes);
  visit("reserved_unallocated_bytes", item.reserved_unallocated_bytes);
}

template <typename Visitor>
void fields(Visitor& visit, auto& item)
  requires std::is_same_v<std::remove_cvref_t<decltype(item)>, LinkMeasure>
{
  visit("kind", item.kind);
  visit("from", item.from);
  visit("to", item.to);
  visit("median_latency_us", item.median_latency_us);
  visit("gb_per_s", item.gb_per_s);
  visit("wrong", item.wrong);
  visit("peer", item.peer);
}

template <typename Visitor>
void fields(Visitor& visit, auto& item)
  requires std::is_same_v<std::remove_cvref_t<decltype(item)>, Facts>
{
  visit("topology", item.topology);
  visit("ports", item.ports);
  visit("versions", item.versions);
  visit("network", item.network);
  visit("memory", item.memory);
  visit("more_topologies", item.more_topologies);
  visit("links", item.links);
}

template <typename Visitor>
void fields(Visitor& visit, auto& item)
  requires std::is_same_v<std::remove_cvref_t<decltype(item)>, Report>
{
  visit("findings", item.findings);
  visit("facts", item.facts);
  visit("checks", item.checks);
  visit("files", item.files);
  visit("hosts", item.hosts);
}

template <typename T>
  requires std::is_class_v<T>
Json Writer::of(const T& value) {
  Writer inner;
  fields(inner, value);
  return inner.take();
}

template <typename T>
  requires std::is_class_v<T>
void Reader::into(const Json& json, T& value) {
  Reader inner(json);
  fields(inner, value);
}

}  // namespace

std::string to_json(const Report& report) {
  Writer writer;
  fields(writer, report);
  Json json = {{"schema", 1}};
  json.update(writer.take());
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

Report report_from_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("schema", Json()) != 1) {
    throw Error(ErrorKind::kIo,
                str("[diagnose.json] this is no report of Trireme (a JSON object with \"schema\": 1 is required): ",
                    excerpt(text, 120)));
  }
  Report report;
  Reader reader(json);
  fields(reader, report);
  return report;
}

}  // namespace trireme::diagnose
