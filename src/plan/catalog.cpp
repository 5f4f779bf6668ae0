#include "plan/catalog.h"

#include <memory>

#include "plan/model_file.h"

namespace trireme::plan {

Catalog load_catalog() {
  Catalog catalog;
  catalog.machines = load_machines();
  const auto models = std::make_shared<const ModelCatalog>(load_models());
  catalog.model = [models](const std::string& name) -> std::optional<ModelDesc> {
    const ModelDesc* found = models->find(name);
    return found != nullptr ? std::optional(*found) : std::nullopt;
  };
  return catalog;
}

}  // namespace trireme::plan
