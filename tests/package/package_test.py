"""Oracle: a program outside the repository, which sees only the installed tree, builds, runs on two ranks and prints a sum that is known
in closed form; the package refuses another LibTorch minor with the sentence asserted here, whichever find_package comes first."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(sys.argv[1])
TORCH = pathlib.Path(sys.argv[2])
OUTSIDE = pathlib.Path(__file__).parent / "outside"


def run(*command, must_fail=False, **options):
    result = subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            stdin=subprocess.DEVNULL, **options)
    if (result.returncode != 0) != must_fail:
        print("$", *command, "\n", result.stdout)
        sys.exit(f"exit code {result.returncode} of the command above")
    return result.stdout


def check(condition, what):
    if not condition:
        sys.exit("failed: " + what)


def configure(tree, prefix, *arguments, **options):
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    return run("cmake", "-S", OUTSIDE, "-B", tree, "-G", "Ninja", f"-DTrireme_DIR={prefix}/lib/cmake/Trireme", *launcher, *arguments, **options)


def fake_torch(folder, version):
    """What tells the version of a LibTorch, and a TorchConfig.cmake that finds it."""
    header = folder / "include/torch/headeronly/version.h"
    header.parent.mkdir(parents=True)
    header.write_text("".join(f"#define TORCH_VERSION_{part} {number}\n" for part, number in zip(("MAJOR", "MINOR", "PATCH"), version.split("."))))
    config = folder / "share/cmake/Torch/TorchConfig.cmake"
    config.parent.mkdir(parents=True)
    config.write_text(f"set(TORCH_INSTALL_PREFIX {folder})\nset(Torch_FOUND TRUE)\n")
    return folder


def main():
    with tempfile.TemporaryDirectory(prefix="trireme_package_") as scratch_name:
        scratch = pathlib.Path(scratch_name)
        prefix = scratch / "prefix"
        run("cmake", "--install", BUILD, "--prefix", prefix)
        torch_cmake = f"-DTorch_DIR={TORCH}/share/cmake/Torch"
        python = f"-DTRIREME_TORCH={TORCH}"

        # Each order of find_package configures; the real Torch package is not asked in a CUDA build, since it demands nvcc.
        configure(scratch / "alone", prefix, python)
        nothing_said = {k: v for k, v in os.environ.items() if k not in ("TRIREME_TORCH", "TRIREME_PYTHON")}
        configure(scratch / "unnamed", prefix, env=nothing_said)  # the LibTorch that it was built with
        for file in ("bash-completion/completions/trireme", "zsh/site-functions/_trireme"):
            check((prefix / "share" / file).read_text().count("_trireme") > 0, f"share/{file} is installed")
        if not (TORCH / "lib/libtorch_cuda.so").exists():
            configure(scratch / "torch_first", prefix, torch_cmake, "-DORDER=torch_first")
            configure(scratch / "torch_last", prefix, torch_cmake, "-DORDER=torch_last", python)
        tree = scratch / ("torch_first" if (scratch / "torch_first").exists() else "alone")
        run("cmake", "--build", tree)

        environment = dict(os.environ, OMP_NUM_THREADS="1", PATH=f"{prefix}/bin:{os.environ['PATH']}")
        output = run(tree / "outside", env=environment)
        check("sum 6" in output, f"one process prints the closed form: {output}")

        # Another minor version is refused, in one sentence, before anything is compiled.
        other = fake_torch(scratch / "torch_2_99", "2.99.0")
        other_cmake = f"-DTorch_DIR={other}/share/cmake/Torch"
        for order, arguments in (("alone", [f"-DTRIREME_TORCH={other}"]), ("torch_first", [other_cmake]), ("torch_last", [other_cmake, python])):
            output = " ".join(configure(scratch / f"other_{order}", prefix, f"-DORDER={order}", *arguments, must_fail=True).split())
            check("Trireme was built with LibTorch" in output and "is 2.99.0" in output and "build Trireme again" in output,
                  f"{order}: the refusal of another minor version: {output}")
    print("package: installed, built and run outside, other minor versions refused")


main()
