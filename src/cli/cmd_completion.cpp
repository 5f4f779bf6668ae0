#include <cstdio>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/completion_scripts.h"
#include "trireme/base/error.h"

namespace trireme::cli {

int cmd_completion(const std::vector<std::string>& args) {
  const std::string shell = args.empty() ? "" : args.front();
  if (args.size() > 1) {
    throw Error(ErrorKind::kConfig,
                str("[cli.completion] '", args[1], "' is one word too many; trireme completion takes bash or zsh."));
  }
  if (shell == "bash") return std::fputs(kBashCompletion, stdout) < 0 ? 1 : 0;
  if (shell == "zsh") return std::fputs(kZshCompletion, stdout) < 0 ? 1 : 0;
  const char* help =
      "usage: trireme completion bash|zsh\n"
      "\n"
      "Prints the completion script. For this shell only:  source <(trireme completion bash)\n"
      "For good: trireme completion bash > ~/.local/share/bash-completion/completions/trireme\n"
      "          trireme completion zsh > _trireme, in a folder of $fpath\n";
  if (shell == "--help" || shell == "-h") return std::fputs(help, stdout) < 0 ? 1 : 0;
  throw Error(ErrorKind::kConfig, str("[cli.completion] '", shell,
                                      "' is no shell that is known; bash or zsh is "
                                      "required. Example: source <(trireme completion bash)"));
}

}  // namespace trireme::cli
