#include <torch/torch.h>
#include <trireme/trireme.h>
int main() {
  auto world = trireme::init();
  torch::manual_seed(world.rank());  // every rank draws its own part of the batch
  torch::nn::Sequential net(torch::nn::Linear(2, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  trireme::DistributedDataParallel<torch::nn::Sequential> model(world, net);
  torch::optim::SGD sgd(model.parameters(), 0.2);
  for (int step = 0; step <= 300; ++step, sgd.step(), sgd.zero_grad()) {
    auto x = torch::rand({64, 2}), loss = torch::mse_loss(model.forward(x), x.prod(1, true));
    loss.backward();  // gradients are averaged over the ranks here
    if (step % 300 == 0) std::printf("rank %d step %d loss %.4f\n", world.rank(), step, loss.item<float>());
  }
}
