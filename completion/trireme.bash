# bash completion for trireme. In this shell only: source <(trireme completion bash)
_trireme() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local run_flags="--nproc-per-node --nnodes --standalone --module --no-python --run-path --role --max-restarts
    --report-grace --grace --shutdown-timeout --signals-to-handle --log-dir --run-dir --redirects --tee
    --local-ranks-filter --master-addr --master-port --rdzv-endpoint --rdzv-id --rdzv-backend --dry-run --json --help"
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    # Programs named trireme-X, beside trireme or in PATH, are commands as well.
    local external
    external=$(compgen -c trireme- | sed 's/^trireme-//' | sort -u)
    mapfile -t COMPREPLY < <(compgen -W "run train bench completion --help --version $external" -- "$current")
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
  esac
  mapfile -t COMPREPLY < <(compgen -f -- "$current")
}
complete -o filenames -F _trireme trireme
