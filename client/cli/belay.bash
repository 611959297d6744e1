# SPDX-License-Identifier: Apache-2.0
# Completion of the `belay` command for bash. The words come from `belay help --words`, so that they
# are those of the belay that is installed.

_belay() {
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command='' i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --)
            # What follows is another program's command line.
            if declare -F _command_offset >/dev/null; then
                _command_offset $((i + 1))
            else
                mapfile -t COMPREPLY < <(compgen -c -- "$word")
            fi
            return
            ;;
        -e | -n | -o | -t | --endpoints | --namespace | --output | --timeout) ((i++)) ;;
        -*) ;;
        *) [[ -z $command ]] && command=${COMP_WORDS[i]} ;;
        esac
    done
    case $previous in
    -o | --output)
        mapfile -t COMPREPLY < <(compgen -W 'table json' -- "$word")
        return
        ;;
    --leftovers)
        mapfile -t COMPREPLY < <(compgen -W 'end wait' -- "$word")
        return
        ;;
    --on-lost)
        mapfile -t COMPREPLY < <(compgen -W 'HUP INT QUIT ABRT KILL USR1 PIPE ALRM TERM USR2' -- "$word")
        return
        ;;
    -f | --file)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
        ;;
    --device)
        mapfile -t COMPREPLY < <(compgen -W "$(cd /sys/class/net 2>/dev/null && echo *)" -- "$word")
        return
        ;;
    -d | --dir | --data-dir | --root)
        mapfile -t COMPREPLY < <(compgen -d -- "$word")
        return
        ;;
    esac
    if [[ -z $command || $word == -* || $command == help ]]; then
        [[ $command == help ]] && command=''
        mapfile -t COMPREPLY < <(compgen -W "$(belay help --words $command 2>/dev/null)" -- "$word")
    fi
}
complete -F _belay belay
