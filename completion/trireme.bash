# bash completion for trireme
