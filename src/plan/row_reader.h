// One row of a table of published measurements as something that can be predicted: model, machine, training, plan, and what was measured.
//
// The measured columns only ever reach Case::seconds and Case::bytes, never the prediction.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/csv_file.h"
#include "plan/machine_file.h"
#include "trireme/base/result.h"
#include "trireme/plan/plan.h"

namespace trireme::plan {

/// What is known of machines and models, as machines/ and models/ have it.
struct Catalog {
  MachineCatalog machines;
  /// A model by the name that a table uses; nothing where no description has it.
  std::function<std::optional<ModelDesc>(const std::string& name)> model;
  /// Where rows whose source names no known publication ran; -1: nobody knows, and defaults are taken.
  int own_cluster = -1, own_software = -1;
};

/// A row, its numbers read; an empty field is NaN or "".
struct Row {
  int line = 0;
  std::string source, model, gpu, recompute, precision, note;
  double year, params_b, layers, hidden, heads, kv_heads, ffn_hidden, vocab, seq_len, gpus, gpus_per_node, dp, tp, pp,
      cp, ep, zero_stage, micro_batch, global_batch, virtual_stages, seconds_per_step, samples_per_s,
      tokens_per_s_per_gpu, tflops_per_gpu, mfu_pct, peak_mem_gb;
};

/// Errors   kConfig with `file:line` and the column: a field that should be a number and is none; a column that is missing.
[[nodiscard]] std::vector<Row> read_rows(const CsvFile& file);

enum class MemoryKind { kAllocated, kReserved, kProcess, kEstimate };

struct Case {
  int line = 0;
  ModelDesc model;
  Training training;
  Plan plan;
  int device = 0, cluster = 0, software = 0;  ///< of the catalog
  double gpus = 0, gpus_per_host = 8;
  double seconds = 0;  ///< measured step; 0 = none
  double bytes = 0;    ///< measured peak; 0 = none
  MemoryKind memory_kind = MemoryKind::kAllocated;
  bool out_of_memory = false;  ///< the row says that it ran out
  std::string group;           ///< rows of one group are plans for the same task
  std::string publisher;
  std::vector<std::string> assumptions;
};

/// Errors   a Reason that names what the row lacks or what is not modelled.
[[nodiscard]] Result<Case> read_case(const Row& row, const Catalog& catalog);

/// The machine of a case, from the catalog as it is now (constants may have been fitted since).
[[nodiscard]] Machine machine_of(const Case& row, const Catalog& catalog);

}  // namespace trireme::plan
