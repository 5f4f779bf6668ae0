// A small transformer on made-up machines, for tests of the search and what lies around it.
#pragma once

#include "plan/numbers.h"

namespace trireme::plan {

inline ModelDesc small_model() {
  ModelDesc model;
  model.name = "small";
  model.hidden = 1024;
  model.vocab = 32000;
  TransformerLayer layer;
  layer.attention = {.heads = 16, .kv_heads = 8, .head_dim = 64, .value_dim = 64};
  layer.feed_forward = {.width = 4096, .gated = true};
  model.layers = {{.layer = layer, .count = 24}};
  return model;
}

inline Sourced made(double value) { return {.value = value, .source = "made up", .fitted = false}; }

inline Machine machine(double gigabytes, double network = 50e9) {
  Machine m;
  m.device.name = "test";
  m.device.peak_flops["bf16"] = made(300e12);
  m.device.memory_bytes = made(gigabytes * 1e9);
  m.device.memory_bandwidth = made(2e12);
  m.device.processors = made(108);
  m.device.link_bandwidth = made(300e9);
  m.device.matmul_efficiency = made(0.7);
  m.device.matmul_half_depth = made(100);
  m.device.memory_efficiency = made(0.8);
  m.device.attention_efficiency = made(0.4);
  m.device.batched_efficiency = made(0.7);
  m.device.low_precision_efficiency = made(0.5);
  m.device.link_efficiency = made(0.8);
  m.cluster.hosts = 2;
  m.cluster.devices_per_host = 8;
  m.cluster.host_network = made(network);
  m.cluster.launch_seconds = made(1e-5);
  m.cluster.link_latency = made(3e-5);
  m.cluster.network_efficiency = made(0.9);
  m.software.attention_generation = made(1);
  m.software.overlap = made(0.5);
  m.software.framework_rate = made(1);
  return m;
}

inline Training training() {
  Training t;
  t.global_batch = 64;
  t.sequence = 2048;
  return t;
}

struct Numbers {
  explicit Numbers(const Machine& m) : machine(numbers_of(m, plan::training())) {}
  ModelNumbers model = numbers_of(small_model());
  MachineNumbers machine;
  TrainingNumbers training = numbers_of(plan::training());
};

}  // namespace trireme::plan
