#include "cli/run_flags.h"

namespace trireme::cli {

const char* run_help() {
  return R"(usage: trireme run [FLAGS] PROGRAM [ARGUMENTS]

Starts the program N times on this host, as ranks 0 to N-1 of one job, serves the store they meet in, shows their
output in whole lines, and ends all of them when one fails. A PROGRAM that ends in .py is run by Python.
Flags may be written with '-' or '_' (--nproc_per_node), as torchrun takes them. PET_NPROC_PER_NODE and so on set
defaults, as for torchrun.

ranks:
  --nproc-per-node N       ranks on this host: a number, cpu (one per usable CPU), gpu, or auto; default 1
  --nnodes 1               this host only
  --standalone             accepted; one host never needs a fixed port
  -m, --module             PROGRAM is a Python module, as in python -m
  --no-python              execute PROGRAM itself although its name ends in .py
  --run-path               PROGRAM is a Python script whatever its name
  --role NAME              ROLE_NAME of the ranks; default 'default'

failures:
  --max-restarts N         after a failure start all ranks again, up to N times; default 0
  --report-grace SECONDS   from the first failure to SIGTERM for the others; default 1.5 (TRIREME_REPORT_GRACE)
  --grace SECONDS          from SIGTERM or Ctrl-C to SIGKILL; default 5 (TRIREME_GRACE); --shutdown-timeout is the same
  --signals-to-handle S,S  signals that are passed on to the ranks; default SIGTERM,SIGINT,SIGHUP,SIGQUIT

output:
  --log-dir DIR            the run folder is DIR/<date>-<job id>; default runs
  --run-dir DIR            the run folder itself
  -r, --redirects STD      only into the log files: 1 stdout, 2 stderr, 3 both, or rank:std,...; default 0
  -t, --tee STD            into the files and to the console, which is what happens anyway
  --local-ranks-filter R,R only these ranks are shown on the console

store:
  --master-addr ADDR       where the store listens; default 127.0.0.1
  --master-port PORT       default 0: the kernel picks a free one
  --rdzv-endpoint ADDR:PORT, --rdzv-id ID, --rdzv-backend c10d|static
                           torchrun's names for the address, TORCHELASTIC_RUN_ID and (no effect) the kind

torchrun's flags that have nothing to decide here: --monitor-interval, --start-method spawn, --use-env

  --dry-run                print what would be started and end; --json for programs
  --help, -h               this text

not there yet: --nnodes above 1, --node-rank, --rdzv-conf, --local-addr, --numa-binding, --virtual-local-rank,
  --logs-specs, --event-log-handler, --duplicate-stdout-filters, --duplicate-stderr-filters

exit code: that of the rank that failed first, 128 + signal when it was killed; 2 for wrong flags
)";
}

}  // namespace trireme::cli
