# bash completion for trireme. In this shell only: source <(trireme completion bash)
_trireme() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local run_flags="--nproc-per-node --nnodes --standalone --module --no-python --run-path --role --max-restarts
    --report-grace --grace --shutdown-timeout --signals-to-handle --log-dir --run-dir --redirects --tee
    --local-ranks-filter --master-addr --master-port --rdzv-endpoint --rdzv-id --rdzv-backend
    --monitor-interval --start-method --use-env --dry-run --json --help"
  local train_flags="--recipe --data --epochs --max-steps --global-batch --lr --seed --config --set --ranks --run-dir
    --resume --json --help"
  local simulate_flags="--schedule --stages --virtual-stages --micro-batches --recompute --forward-only --forward-ms --backward-ms
    --backward-input-ms --backward-weight-ms --stage-factors --optimizer-ms --message-mb --link-gb-s
    --link-latency-us --blocking --activations-mb --checkpoint-mb --state-gb --replicas --tensor-parallel
    --gradients-mb --topology --domain --domain-link-gb-s --nic-gb-s --nic-latency-us --spine-share --slow-rank
    --slow-link --compare --compare-links --compare-topologies --svg --trace --csv --width --json --model --cluster --global-batch
    --seq-len --micro-batch --zero --precision --software --like --help"
  local doctor_flags="--from --hostfile --host-limit --links --ranks --json --help"
  local bench_flags="--ranks --json --repetitions --op --bytes --model --gradients --set --batch --leak-watch --help"
  local trace_flags="--json --html --steps --peak-tflops --output --limit-mb --format --gzip --help"
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    # Programs named trireme-X, beside trireme or in PATH, are commands as well.
    local external
    external=$(compgen -c trireme- | sed 's/^trireme-//' | sort -u)
    mapfile -t COMPREPLY < <(compgen -W "run train bench trace plan simulate doctor diagnose completion --help --version $external" -- "$current")
    return
  fi
  case ${COMP_WORDS[1]} in
    completion)
      mapfile -t COMPREPLY < <(compgen -W "bash zsh" -- "$current")
      return
      ;;
    run)
      case $previous in
        --nproc-per-node) mapfile -t COMPREPLY < <(compgen -W "1 2 4 8 cpu gpu auto" -- "$current") ;;
        --log-dir | --run-dir) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
        --redirects | --tee | -r | -t) mapfile -t COMPREPLY < <(compgen -W "0 1 2 3" -- "$current") ;;
        --rdzv-backend) mapfile -t COMPREPLY < <(compgen -W "c10d static" -- "$current") ;;
        --nnodes) COMPREPLY=(1) ;;
        *)
          if [[ $current == -* ]]; then
            mapfile -t COMPREPLY < <(compgen -W "$run_flags" -- "$current")
          else
            mapfile -t COMPREPLY < <(compgen -c -f -- "$current" | sort -u)
          fi
          ;;
      esac
      return
      ;;
    plan)
      local flags="--help --model --cluster --global-batch --seq-len --precision --software --like --dp --tp --pp --cp --ep
        --micro-batch --virtual-stages --zero --recompute --max-tp --max-pp --max-cp --tp-across-hosts --spare
        --even-stages --schedule --constraint --runnable --bucket-mb --shard-ranks --compress --offload-optimizer --offload-activations
        --top --pareto --explain --price --json"
      case ${COMP_WORDS[2]} in
        score) flags="--help --out --calibrate --cluster --software --cross-validate --rows --json" ;;
        estimate-memory)
          flags="--help --model --cluster --global-batch --seq-len --precision --software --like --tp --pp --cp --ep
          --micro-batch --virtual-stages --zero --recompute --spare --json" ;;
      esac
      if ((COMP_CWORD == 2)); then flags="score estimate-memory $flags"; fi
      mapfile -t COMPREPLY < <(compgen -f -W "$flags" -- "$current")
      return
      ;;
    diagnose)
      case $previous in
        --job | --world-size) ;;
        *) mapfile -t COMPREPLY < <(compgen -f -W "--job --world-size --json --help" -- "$current") ;;
      esac
      return
      ;;
    simulate)
      case $previous in
        --schedule | --compare)
          mapfile -t COMPREPLY < <(compgen -f -W "gpipe 1f1b interleaved zb1p zb2p zbv" -- "$current") ;;
        --topology) mapfile -t COMPREPLY < <(compgen -W "ring tree domains rails" -- "$current") ;;
        --svg | --trace | --csv) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$simulate_flags" -- "$current") ;;
      esac
      return
      ;;
    doctor)
      if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$doctor_flags" -- "$current")
      else
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
      fi
      return
      ;;
    train)
      case $previous in
        --recipe) mapfile -t COMPREPLY < <(compgen -W "resnet vit mlp" -- "$current") ;;
        --data | --run-dir | --resume) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
        --config) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$train_flags" -- "$current") ;;
      esac
      return
      ;;
    trace)
      if ((COMP_CWORD == 2)); then
        mapfile -t COMPREPLY < <(compgen -W "report merge export --help" -- "$current")
      elif [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$trace_flags" -- "$current")
      else
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
      fi
      return
      ;;
    bench)
      if ((COMP_CWORD == 2)); then
        mapfile -t COMPREPLY < <(compgen -W "comm ddp overhead launch" -- "$current")
        return
      fi
      case $previous in
        --op) mapfile -t COMPREPLY < <(compgen -W "all_reduce all_gather reduce_scatter all_to_all broadcast memcpy" -- "$current") ;;
        --model) mapfile -t COMPREPLY < <(compgen -W "784-256-10 784-2048-2048-10 784-60x128-10" -- "$current") ;;
        --gradients) mapfile -t COMPREPLY < <(compgen -W "arena staged bucket_view" -- "$current") ;;
        --json) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$bench_flags" -- "$current") ;;
      esac
      return
      ;;
  esac
  mapfile -t COMPREPLY < <(compgen -f -- "$current")
}
complete -o filenames -F _trireme trireme
