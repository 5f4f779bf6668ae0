#include "plan/machine_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/str.h"
#include "plan/data_folder.h"
#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

using ::testing::HasSubstr;

std::string message_of(const std::string& text) {
  MachineCatalog catalog;
  try {
    catalog.add(text, "m.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Oracle: the data sheets, typed again here: dense 16-bit peak (TFLOP/s), memory (GB/s), processors, link (GB/s a direction).
TEST(MachineFiles, HaveTheDataSheetsValues) {
  struct Sheet {
    const char* name;
    const char* precision;
    double tflops, memory_gb_s, processors, link_gb_s;
  };
  const MachineCatalog catalog = load_machines();
  for (const Sheet& sheet :
       {Sheet{"V100-32", "fp16", 125, 900, 80, 150}, Sheet{"V100-16", "fp16", 125, 900, 80, 150},
        Sheet{"A100-80", "bf16", 312, 2039, 108, 300}, Sheet{"A100-40", "bf16", 312, 1555, 108, 300},
        Sheet{"H100", "bf16", 989.4, 3350, 132, 450}, Sheet{"H200", "bf16", 989.4, 4800, 132, 450},
        Sheet{"B200", "bf16", 2250, 8000, 148, 900}, Sheet{"GB200", "bf16", 2500, 8000, 148, 900},
        Sheet{"RTX-3090", "fp16", 71.2, 936, 82, 31.5}, Sheet{"RTX-4090", "fp16", 165.2, 1008, 128, 31.5},
        Sheet{"MI250X", "bf16", 191.5, 1638.4, 110, 200}, Sheet{"MI300X", "bf16", 1307.4, 5300, 304, 448},
        Sheet{"P100", "fp16", 21.2, 732, 56, 80}, Sheet{"GB300", "fp8", 5000, 8000, 148, 900},
        Sheet{"H100-HBM2e-500W", "fp8", 1978.9, 2400, 132, 450}}) {
    const DeviceDesc& device = catalog.device(sheet.name);
    EXPECT_DOUBLE_EQ(device.peak_flops.at(sheet.precision).value, sheet.tflops * 1e12) << sheet.name;
    EXPECT_DOUBLE_EQ(device.memory_bandwidth.value, sheet.memory_gb_s * 1e9) << sheet.name;
    EXPECT_EQ(device.processors.value, sheet.processors) << sheet.name;
    EXPECT_DOUBLE_EQ(device.link_bandwidth.value, sheet.link_gb_s * 1e9) << sheet.name;
  }
  EXPECT_NE(catalog.find_device("CPU"), nullptr);
}

// Oracle: the rule that every constant says where it is from, and that a share of a peak is none above it.
TEST(MachineFiles, GiveEveryConstantASource) {
  const MachineCatalog catalog = load_machines();
  for (const DeviceDesc& d : catalog.devices) {
    for (const Sourced* s : {&d.matmul_efficiency, &d.memory_efficiency, &d.attention_efficiency, &d.batched_efficiency,
                             &d.link_efficiency, &d.convolution_efficiency}) {
      EXPECT_GT(s->value, 0) << d.name;
      EXPECT_LE(s->value, 1.5) << d.name;
      EXPECT_FALSE(s->source.empty()) << d.name;
    }
    EXPECT_GT(d.memory_bytes.value, 1e9) << d.name;
    EXPECT_EQ(d.low_precision_efficiency.value > 0, d.peak_flops.contains("fp8")) << d.name;
  }
}

// Oracle: the spellings of the published tables of measured runs.
TEST(MachineFiles, KnowDevicesAsPublicationsSpellThem) {
  const MachineCatalog catalog = load_machines();
  for (const char* name : {"A100-80GB", "A100-40GB", "A100", "V100-32GB", "V100-16GB", "H100-80GB", "H100", "B200",
                           "B200-SXM", "B300", "GB200", "GB300", "H200-141GB", "RTX3090-24GB", "Pascal (P100)",
                           "H100-96GB-HBM2e-500W", "H100-95GB-HBM2e-lowTDP", "h100", "a100-80gb"}) {
    EXPECT_NE(catalog.find_device(name), nullptr) << name;
  }
}

// Oracle: the message names the wrong name, the nearest known one and what to do.
TEST(MachineFiles, RefuseAnUnknownDeviceWithTheNearestName) {
  const MachineCatalog catalog = load_machines();
  try {
    (void)catalog.device("A100-80BG");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("no device is called 'A100-80BG'; did you mean 'A100-80GB'?"));
    EXPECT_THAT(error.what(), HasSubstr("Known: "));
  }
}

// Oracle: each fault has one message with file, key and what is required.
TEST(MachineFiles, NameFileAndKeyOfAFault) {
  EXPECT_THAT(message_of("{"), HasSubstr("[plan.machine_file] m.json: not JSON"));
  EXPECT_THAT(message_of("[]"), HasSubstr("an object {...} is required"));
  EXPECT_THAT(message_of(R"({"schema": 2})"), HasSubstr("key 'schema' is 2; from 1 to 1 is required"));
  EXPECT_THAT(message_of(R"({"schema": 1, "device": []})"),
              HasSubstr("key 'device' is not known here; did you mean 'devices'?"));
  EXPECT_THAT(message_of(R"({"schema": 1, "schema": 1})"), HasSubstr("key 'schema' stands twice"));
  EXPECT_THAT(
      message_of(R"({"schema": 1, "devices": [{"name": "x", "peak_flops": {"bf16": {"value": -1, "source": "s"}}}]})"),
      HasSubstr("key 'devices.0.peak_flops.bf16.value' is -1; more than 0 is required"));
  EXPECT_THAT(message_of(R"({"schema": 1, "devices": [{"name": "x", "peak_flops": {"bf16": {"value": 1}}}]})"),
              HasSubstr("exactly one of them is required"));
  EXPECT_THAT(message_of(R"({"schema": 1, "devices": [{"name": "x", "peak_flops": {"bf16": 3}}]})"),
              HasSubstr("key 'devices.0.peak_flops.bf16' is 3; an object {...} is required"));
}

/// A whole machine file with one value changed.
std::string machine(const std::string& key, const std::string& value) {
  std::string text =
      R"({"schema": 1, "devices": [{"name": "x", "peak_flops": {"bf16": {"value": 1e14, "source": "s"}}, "measured": false)";
  for (const auto& [name, usual] :
       std::initializer_list<std::pair<const char*, const char*>>{{"memory_bytes", "8e10"},
                                                                  {"memory_bandwidth", "2e12"},
                                                                  {"processors", "100"},
                                                                  {"link_bandwidth", "3e11"},
                                                                  {"nic_bandwidth", "25e9"},
                                                                  {"matmul_efficiency", "0.7"},
                                                                  {"matmul_half_depth", "80"},
                                                                  {"memory_efficiency", "0.8"},
                                                                  {"attention_efficiency", "0.3"},
                                                                  {"batched_efficiency", "0.7"},
                                                                  {"link_efficiency", "0.8"},
                                                                  {"convolution_efficiency", "0.7"}}) {
    text += str(", \"", name, "\": {\"value\": ", name == key ? value : usual, ", \"source\": \"s\"}");
  }
  text += R"(}], "clusters": [{"name": "c", "source": "s", "devices_per_host": 8, "device": "x")";
  for (const auto& [name, usual] :
       std::initializer_list<std::pair<const char*, const char*>>{{"host_network", "2e11"},
                                                                  {"launch_seconds", "2e-5"},
                                                                  {"link_latency", "0"},
                                                                  {"network_efficiency", "0.9"}}) {
    text += str(", \"", name, "\": {\"value\": ", name == key ? value : usual, ", \"source\": \"s\"}");
  }
  text += str(", \"price_per_device_hour\": ", key == "price_per_device_hour" ? value : "2",
              R"(}], "software": [{"name": "p", "source": "s")");
  for (const auto& [name, usual] :
       std::initializer_list<std::pair<const char*, const char*>>{{"attention_generation", "1"},
                                                                  {"overlap", "0"},
                                                                  {"framework_rate", "1"},
                                                                  {"gather_share", "0.5"},
                                                                  {"context_bytes", "0"}}) {
    text += str(", \"", name, "\": {\"value\": ", name == key ? value : usual, ", \"source\": \"s\"}");
  }
  return text + "}]}";
}

// Oracle: what the words mean. A share of a peak is above 0 and at most 1, a rate and a size are above 0, a price is not below it.
TEST(MachineFiles, RefuseWhatNoMachineHas) {
  EXPECT_EQ(message_of(machine("", "")), "");
  for (const char* share : {"matmul_efficiency", "memory_efficiency", "attention_efficiency", "link_efficiency",
                            "network_efficiency", "gather_share"}) {
    EXPECT_EQ(message_of(machine(share, "1")), "") << share;
    for (const char* wrong : {"1.01", "7", "0", "-0.5"})
      EXPECT_THAT(message_of(machine(share, wrong)),
                  HasSubstr(str(share, ".value' is ", wrong, "; more than 0, at most 1, is required")));
  }
  for (const char* relative : {"batched_efficiency", "convolution_efficiency"})
    EXPECT_THAT(message_of(machine(relative, "1.6")), HasSubstr("at most 1.5, is required"));
  for (const char* factor : {"attention_generation", "framework_rate"})
    EXPECT_THAT(message_of(machine(factor, "11")), HasSubstr("at most 10, is required"));
  for (const char* rate :
       {"memory_bytes", "memory_bandwidth", "processors", "link_bandwidth", "nic_bandwidth", "host_network"}) {
    for (const char* wrong : {"0", "-1"})
      EXPECT_THAT(message_of(machine(rate, wrong)), HasSubstr("more than 0 is required")) << rate;
  }
  EXPECT_THAT(message_of(machine("overlap", "1.1")), HasSubstr("0 or more, at most 1, is required"));
  EXPECT_THAT(message_of(machine("link_latency", "-1")), HasSubstr("0 or more is required"));
  EXPECT_THAT(message_of(machine("price_per_device_hour", "-2")), HasSubstr("is -2; 0 or more is required"));
  EXPECT_EQ(message_of(machine("price_per_device_hour", "0")), "");
}

// Oracle: the rule that a folder that was named and is not there is an error, not a reason to look elsewhere.
TEST(DataFolder, IsNeverSilentlyAnotherThanTheOneNamed) {
  setenv("TRIREME_DATA_DIR", "/nowhere", 1);
  EXPECT_THROW((void)data_folder("machines"), Error);
  setenv("TRIREME_DATA_DIR", TRIREME_SOURCE_DIR, 1);
  EXPECT_EQ(data_folder("machines"), TRIREME_SOURCE_DIR "/machines");
  unsetenv("TRIREME_DATA_DIR");
}

}  // namespace
}  // namespace trireme::plan
