// Twenty lines against the installed package: sums a tensor over the ranks that started it.
#include <ATen/ATen.h>
#include <trireme/base/error.h>

#include <iostream>

int main() {
  try {
    const at::Tensor x = at::arange(4, at::kFloat);
    std::cout << "sum " << x.sum().item<float>() << "\n";
    return 0;
  } catch (const trireme::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
